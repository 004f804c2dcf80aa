"""Where the slope jumps of a window's members are stored: by entry of a timeline and pixel of the map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .patch import MapShape, PatchGroup, pair_tensor


def patch_boxes(patches: PatchGroup, first_row: int) -> Tensor:
    """(n, 5) the first row, the corner and the size of patches whose pixels are rows from ``first_row`` on."""
    rows, columns = patches.size
    first = first_row + torch.arange(len(patches), device=patches.corner.device) * (rows * columns)
    size = pair_tensor((rows, columns), first.device).expand(len(first), 2)
    return torch.cat([first[:, None], patches.corner, size], 1)


@dataclass(eq=False)
class EntryRows:
    """Finds the row of a pixel's slope jump in the patch that an entry of a timeline belongs to."""

    boxes: Tensor  # (entries + 1, 5) see `patch_boxes`; the last one, for padding, covers no pixel
    columns: int  # of the map
    zero_row: int  # the row of pixels that a patch does not cover
    table: Tensor | None = None  # (entries + 1, window size) the rows of all members of an entry's window

    @staticmethod
    def of(boxes: list[Tensor], source_shape: MapShape, zero_row: int, device: torch.device) -> EntryRows:
        """For the boxes (n, 5) of all entries, on a map."""
        padding = torch.zeros(1, 5, dtype=torch.int64, device=device)
        return EntryRows(torch.cat([*boxes, padding]), source_shape.columns, zero_row)

    def tabulate(
        self,
        windows: Tensor,  # (output pixels, window size)
        pixel: Tensor,  # (entries,) the output pixel of every entry; those outside the map have any larger number
    ) -> None:
        """Compute the rows of all members in advance, which pays for small windows."""
        members = windows[torch.cat([pixel, pixel.new_zeros(1)]).clamp(max=len(windows) - 1)]
        self.table = self._find(self.boxes, members)

    def find(
        self,
        entries: Tensor,  # (p, depth)
        window: Tensor,  # (p, k, channels) pixels
    ) -> Tensor:
        """The rows (p, depth, k, channels) of some pixels at some entries."""
        return self._find(self.boxes[entries], window[:, None])

    def _find(
        self,
        boxes: Tensor,  # (..., 5)
        pixels: Tensor,  # broadcastable to (..., members), with any number of dims for the members
    ) -> Tensor:
        dims = pixels.dim() - boxes.dim() + 1
        first, top, left, rows, columns = (column.view(*column.shape, *[1] * dims) for column in boxes.unbind(-1))
        v, u = pixels // self.columns - top, pixels % self.columns - left
        covered = (v >= 0) & (v < rows) & (u >= 0) & (u < columns)
        return (first + v * columns + u).masked_fill_(covered.logical_not_(), self.zero_row)
