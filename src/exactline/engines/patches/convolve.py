"""Patches through convolutions: a matrix product for each place of the output that a patch can reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

from .patch import (
    Group,
    Groups,
    MapShape,
    PatchGroup,
    PointPatch,
    as_whole_maps,
    box_pixels,
    covers,
    pair_tensor,
    stored_size,
    zero_outside,
)

MAX_UNFOLDED_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 27}  # numbers of unfolded patches at a time
MAX_PADDING_WASTE = 1.6  # more multiplications with zeros than this, and each place gets a product of its own
NO_PLACE = 1 << 60  # a place that no patch has
GPU_FREE_MULTIPLICATIONS = 2e8  # multiplications that a GPU does sooner than it begins another product


@dataclass(frozen=True, eq=False)
class ConvolutionRule:
    """A convolution of one or two spatial dims, without its bias."""

    weight: Tensor  # (out, in, rows, columns)
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    source_shape: MapShape
    map_shape: MapShape

    @cached_property
    def taps(self) -> Tensor:
        """(rows, columns, in, out)."""
        return self.weight.permute(2, 3, 1, 0).contiguous()

    @cached_property
    def table(self) -> Tensor:
        """Output channels for every input channel and tap, zeros after its last: (in * (rows * columns + 1), out)."""
        flat = self.weight.permute(1, 2, 3, 0).flatten(1, 2)
        return torch.cat([flat, flat.new_zeros(len(flat), 1, flat.shape[2])], 1).flatten(0, 1)

    @cached_property
    def returns(self) -> Tensor:
        """(out, rows, columns, in)."""
        return self.weight.permute(0, 2, 3, 1).contiguous()

    def vjp(self, groups: Groups) -> list[Groups]:
        """Gradients of the output as gradients of the input."""
        return [{births: self._vjp_group(group) for births, group in groups.items()}]

    def _vjp_group(self, group: Group) -> PatchGroup:
        if isinstance(group, PointPatch):
            corner = torch.stack([group.pixel // self.map_shape[2], group.pixel % self.map_shape[2]], 1)
            taps = self.returns.index_select(0, group.channel) * group.jump.view(-1, 1, 1, 1)
            jump = self._apart(taps[:, None, None])
        else:
            corner, jump = group.corner, self._unroll(group.jump)
        stride, padding = (pair_tensor(v, corner.device) for v in (self.stride, self.padding))
        if jump.shape[1:3] == (
            self.source_shape[1],
            self.source_shape[2],
        ):  # as large as the map, but perhaps not in its place
            jump = F.pad(jump, (0, 0, 0, 0, 0, 1))
        found = zero_outside(PatchGroup(corner * stride - padding, jump), self.source_shape)
        return as_whole_maps(found, self.source_shape) if covers(found.size, self.source_shape) else found

    def _unroll(self, jump: Tensor) -> Tensor:
        _, rows, columns, channels = jump.shape
        table = self.returns.view(channels, -1)
        step = max(1, MAX_UNFOLDED_NUMBERS.get(jump.device.type, 1 << 22) // max(1, rows * columns * table.shape[1]))
        parts = []
        for some in jump.split(step):
            wide = some.reshape(-1, channels) @ table
            parts.append(self._apart(wide.view(len(some), rows, columns, *self.returns.shape[1:])))
        return torch.cat(parts) if len(parts) != 1 else parts[0]

    def _apart(self, taps: Tensor) -> Tensor:
        """Every output's taps (n, rows, columns, taps, taps, in) added up where they fall on the input."""
        n, rows, columns, k0, k1, channels = taps.shape
        (s0, s1), (d0, d1), (m0, m1) = self.stride, self.dilation, self.span
        out = taps.new_zeros(n, (rows - 1) * s0 + m0 + 1, (columns - 1) * s1 + m1 + 1, channels)
        for y in range(k0):
            for x in range(k1):
                into = out[:, y * d0 : y * d0 + (rows - 1) * s0 + 1 : s0, x * d1 : x * d1 + (columns - 1) * s1 + 1 : s1]
                into += taps[:, :, :, y, x]
        return out

    @property
    def span(self) -> tuple[int, int]:
        """From the first tap to the last."""
        return tuple((k - 1) * d for k, d in zip(self.weight.shape[2:], self.dilation, strict=True))  # pyright: ignore

    def reach(self, size: tuple[int, int]) -> tuple[int, int]:
        """How many outputs a patch can reach."""
        return tuple((n - 1 + m) // s + 1 for n, m, s in zip(size, self.span, self.stride, strict=True))  # pyright: ignore

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(sizes[0]), self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        area = (
            sizes[0][0] * sizes[0][1]
            if sizes[0] != (self.source_shape[1], self.source_shape[2])
            else self._whole_area()
        )
        steps = self.stride[0] * self.stride[1]
        return area * self.weight.numel() / (steps if sizes[0] != (self.source_shape[1], self.source_shape[2]) else 1)

    def _whole_area(self) -> int:
        return self.map_shape[1] * self.map_shape[2]

    def apply(self, *groups: Groups) -> Groups:
        return {births: self._apply_group(group) for births, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        if isinstance(group, PatchGroup) and self._alone:
            return group.with_jump(self._mix_channels(group.jump))
        if isinstance(group, PatchGroup) and group.size == (self.source_shape[1], self.source_shape[2]):
            return self._whole(group)
        size = (1, 1) if isinstance(group, PointPatch) else group.size
        reach = self.reach(size)
        if covers(reach, self.map_shape):
            return self._whole(as_whole_maps(group, self.source_shape))
        return (
            self._apply_points(group, reach)
            if isinstance(group, PointPatch)
            else zero_outside(self._spread(group, reach), self.map_shape)
        )

    @cached_property
    def _alone(self) -> bool:
        """Whether every pixel reads itself only."""
        return (self.weight.shape[2:], self.stride, self.padding) == ((1, 1), (1, 1), (0, 0))

    def _mix_channels(self, jump: Tensor) -> Tensor:
        """The channels of each place on its own."""
        return (jump.reshape(-1, jump.shape[3]) @ self.taps[0, 0]).view(*jump.shape[:3], self.map_shape[0])

    def _top(self, top: Tensor) -> Tensor:
        """The first output that patches can reach."""
        first = tuple(p - m + s - 1 for p, m, s in zip(self.padding, self.span, self.stride, strict=True))
        top = top + pair_tensor(first, top.device)  # pyright: ignore[reportArgumentType]
        return top if self.stride == (1, 1) else top // pair_tensor(self.stride, top.device)

    @cached_property
    def _point_table(self) -> tuple[Tensor, Tensor, Tensor]:
        """For a spark at every pixel: the first output it reaches, the tap that each one reads it by, their pixels."""
        device, reach, count = self.weight.device, self.reach((1, 1)), self.weight.shape[2] * self.weight.shape[3]
        places = torch.arange(self.source_shape[1] * self.source_shape[2], device=device)
        corner = torch.stack([places // self.source_shape[2], places % self.source_shape[2]], 1)
        top = self._top(corner)
        at, inside = list[Tensor](), list[Tensor]()
        for k in range(2):
            out = top[:, k, None] + torch.arange(reach[k], device=device)
            gap = corner[:, k, None] + self.padding[k] - out * self.stride[k]  # from the window's first place
            tap = gap // self.dilation[k]
            inside.append((gap % self.dilation[k] == 0) & (tap >= 0) & (tap < self.weight.shape[2 + k]))
            at.append(tap)
        tap = (at[0][:, :, None] * self.weight.shape[3] + at[1][:, None, :]).flatten(1)
        pixel = box_pixels(top, reach, self.map_shape)
        read = (inside[0][:, :, None] & inside[1][:, None, :]).flatten(1) & (
            pixel < self.map_shape[1] * self.map_shape[2]
        )
        return top, torch.where(read, tap, count), pixel

    def _apply_points(self, sparks: PointPatch, reach: tuple[int, int]) -> PatchGroup:
        """A spark times a slice of the kernel."""
        top, tap, pixel = (t.index_select(0, sparks.pixel) for t in self._point_table)
        row = torch.add(tap, sparks.channel[:, None], alpha=self.weight.shape[2] * self.weight.shape[3] + 1)
        jump = self.table.index_select(0, row.view(-1)).view(len(sparks), -1)
        jump = jump.mul_(sparks.jump[:, None]).view(len(sparks), *reach, self.map_shape[0])
        return PatchGroup(top, jump, {(self.map_shape[1], self.map_shape[2]): pixel})

    def _spread(self, patches: PatchGroup, reach: tuple[int, int]) -> PatchGroup:
        """Patches that begin at the same place relative to the stride are unfolded in the same way."""
        top = self._top(patches.corner)
        jump = patches.jump.new_empty(len(patches), *reach, self.map_shape[0])
        if self.stride == (1, 1):
            self._fill(jump, patches.jump, (-self.span[0], -self.span[1]))
            return PatchGroup(top, jump)
        strides, corner = pair_tensor(self.stride, top.device), pair_tensor(self._corner, top.device)
        offset = top * strides - patches.corner - corner  # of the first tap within the patch, counted from the least
        kind = offset[:, 0] * self.stride[1] + offset[:, 1]
        if jump.is_cuda:
            self._pick(jump, patches.jump, kind)
            return PatchGroup(top, jump)
        for k in range(self.stride[0] * self.stride[1]):
            rows = (kind == k).nonzero()[:, 0]
            if not len(rows):
                continue
            part = jump.new_empty(len(rows), *reach, self.map_shape[0])
            self._fill(part, patches.jump.index_select(0, rows), self._first(k))
            jump.index_copy_(0, rows, part)
        return PatchGroup(top, jump)

    @property
    def _corner(self) -> tuple[int, int]:
        return self.padding[0] - self.span[0], self.padding[1] - self.span[1]

    def _first(self, kind: int) -> tuple[int, int]:
        """Where within a patch of some kind its first window begins."""
        return kind // self.stride[1] - self.span[0], kind % self.stride[1] - self.span[1]

    @cached_property
    def _known(self) -> dict[tuple[int, int], Tensor]:
        """Windows by the size of patches, once they are found."""
        return {}

    def _windows(self, size: tuple[int, int], reach: tuple[int, int]) -> Tensor:
        """For patches of each kind: the places that all windows read, (kinds, windows * taps); far off outside."""
        if size not in self._known:
            device, kinds = self.weight.device, list[Tensor]()
            for k in range(self.stride[0] * self.stride[1]):
                lines = list[Tensor]()
                for d, first in enumerate(self._first(k)):
                    taps = torch.arange(self.weight.shape[2 + d], device=device) * self.dilation[d]
                    at = first + torch.arange(reach[d], device=device)[:, None] * self.stride[d] + taps
                    lines.append(torch.where((at >= 0) & (at < size[d]), at * (size[1] if d == 0 else 1), NO_PLACE))
                kinds.append((lines[0][:, None, :, None] + lines[1][None, :, None, :]).flatten())
            self._known[size] = torch.stack(kinds)
        return self._known[size]

    def _pick(self, out: Tensor, jump: Tensor, kind: Tensor) -> None:
        """Outputs of patches of any kind, each window picked place by place: nobody need know how many are of which."""
        n, rows, columns, channels = jump.shape
        windows = self._windows((rows, columns), (out.shape[1], out.shape[2]))
        taps = self.taps.reshape(-1, out.shape[3])
        step = max(1, MAX_UNFOLDED_NUMBERS.get(jump.device.type, 1 << 22) // max(1, windows.shape[1] * channels))
        for at in range(0, n, step):
            some = jump[at : at + step].reshape(-1, channels)
            wide = torch.cat([some, some.new_zeros(1, channels)])
            firsts = torch.arange(0, len(some), rows * columns, device=jump.device)
            place = windows.index_select(0, kind[at : at + step]).add_(firsts[:, None]).clamp_(max=len(some))
            read = wide.index_select(0, place.view(-1)).view(-1, len(taps))
            torch.matmul(read, taps, out=out[at : at + step].view(-1, out.shape[3]))

    def _fill(self, out: Tensor, jump: Tensor, first: tuple[int, int]) -> None:
        """Outputs (n, *reach, out) of patches whose first window begins at ``first`` within them."""
        n, rows, columns, _ = jump.shape
        ranges = [
            [_taps(first[d] + i * self.stride[d], (rows, columns)[d], self.weight.shape[2 + d], self.dilation[d])
             for i in range(out.shape[1 + d])]
            for d in range(2)
        ]  # fmt: skip
        needed = sum(len(r) for r in ranges[0]) * sum(len(c) for c in ranges[1])
        spent = out.shape[1] * out.shape[2] * self.weight.shape[2] * self.weight.shape[3]
        extra = (spent - needed) * n * jump.shape[3] * out.shape[3] / (out.shape[1] * out.shape[2])
        if spent <= MAX_PADDING_WASTE * needed or (jump.is_cuda and extra < GPU_FREE_MULTIPLICATIONS):
            self._unfold(out, jump, first)
            return
        for i, over_rows in enumerate(ranges[0]):
            for j, over_columns in enumerate(ranges[1]):
                if not over_rows or not over_columns:
                    out[:, i, j] = 0
                    continue
                y, x = over_rows[0], over_columns[0]
                d0, d1 = self.dilation
                top, left = first[0] + i * self.stride[0] + y * d0, first[1] + j * self.stride[1] + x * d1
                part = jump[
                    :,
                    top : top + (len(over_rows) - 1) * d0 + 1 : d0,
                    left : left + (len(over_columns) - 1) * d1 + 1 : d1,
                ]
                taps = self.taps[y : y + len(over_rows), x : x + len(over_columns)]
                out[:, i, j] = part.reshape(n, -1) @ taps.reshape(-1, out.shape[3])

    def _unfold(self, out: Tensor, jump: Tensor, first: tuple[int, int]) -> None:
        """One product for all places, on patches with a border of zeros."""
        n, rows, columns, channels = jump.shape
        before = [max(-f, 0) for f in first]
        ends = [
            first[d] + (out.shape[1 + d] - 1) * self.stride[d] + self.span[d] + 1 - (rows, columns)[d] for d in range(2)
        ]
        wide = F.pad(jump, (0, 0, before[1], max(ends[1], 0), before[0], max(ends[0], 0)))
        wide = wide[:, max(first[0], 0) :, max(first[1], 0) :]
        k0, k1 = self.weight.shape[2:]
        shape = (n, out.shape[1], out.shape[2], k0, k1, channels)
        s = wide.stride()
        strides = (
            s[0],
            s[1] * self.stride[0],
            s[2] * self.stride[1],
            s[1] * self.dilation[0],
            s[2] * self.dilation[1],
            s[3],
        )
        windows = wide.as_strided(shape, strides, wide.storage_offset())
        taps = self.taps.reshape(-1, out.shape[3])
        step = max(1, MAX_UNFOLDED_NUMBERS.get(jump.device.type, 1 << 22) // max(1, windows[:1].numel()))
        for at in range(0, n, step):
            part = windows[at : at + step]
            torch.matmul(part.reshape(-1, len(taps)), taps, out=out[at : at + step].view(-1, out.shape[3]))

    def _whole(self, patches: PatchGroup) -> PatchGroup:
        jump = patches.jump.new_empty(len(patches), self.map_shape[1], self.map_shape[2], self.map_shape[0])
        self._unfold(jump, patches.jump, (-self.padding[0], -self.padding[1]))
        return PatchGroup(torch.zeros_like(patches.corner), jump)


def _taps(first: int, length: int, count: int, dilation: int) -> range:
    """Which taps of a window that begins at ``first`` fall on a stretch of this length."""
    low = max(0, ceil(-first / dilation))
    high = min(count - 1, (length - 1 - first) // dilation)
    return range(low, high + 1)
