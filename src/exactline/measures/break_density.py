"""Break density: the number of breaks per unit of length, along lines from a point in given directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..api import restrict_many
from ..errors import ArgumentError, LineError
from ..lines import PointLike, as_points
from ..network import Network
from ..progress import ProgressCallback
from ..results.restrictions import Restrictions


@dataclass(frozen=True, eq=False)
class Density:
    """Breaks, lengths and densities of lines, (n,) or (m, n) as the directions; exact counts, not samples.

    >>> import exactline as xl
    >>> found = xl.density(torch.nn.ReLU(), [-1.0, -1.0], [[2.0, 0.0], [4.0, 4.0]])
    >>> found
    <Density: 2 lines, 6 breaks, 0.7836 breaks per unit of length>
    >>> found.counts, found.origins
    (tensor([3, 3]), {'relu': tensor([1, 1])})
    >>> found.densities
    tensor([1.5000, 0.5303], dtype=torch.float64)
    """

    counts: Tensor  # (..., n) int64, breaks including both ends: 2 where the network is affine on the line
    lengths: Tensor  # (..., n) float64, Euclidean, in input units
    origins: dict[str, Tensor]  # (..., n) int64, breaks inside the line by the node they originate from
    lines: Restrictions  # the lines, flattened, without values

    @property
    def densities(self) -> Tensor:
        """Breaks per unit of length, (..., n)."""
        return self.counts / self.lengths

    @property
    def pieces(self) -> Tensor:
        """The number of pieces, (..., n) int64."""
        return self.counts - 1

    @property
    def total(self) -> float:
        """The breaks of all lines divided by the length of all lines."""
        return float(self.counts.sum() / self.lengths.sum())

    def pieces_within(self, length: float) -> Tensor:  # (..., n) int64
        """Count the pieces in the first part of each line, as restricting a shorter line would.

        Args:
            length: The length of that part, at most that of the shortest line.

        >>> import exactline as xl
        >>> xl.density(torch.nn.ReLU(), [-1.0, -2.0], [[4.0, 0.0], [0.0, 4.0]]).pieces_within(1.5)
        tensor([2, 1])

        Raises ArgumentError.
        """
        shortest = float(self.lengths.min()) if self.lengths.numel() else float("inf")
        if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 < length <= shortest:
            raise ArgumentError(
                f"length must be above 0 and at most {shortest:g}, the length of the shortest line, not {length!r}.",
                where="argument length",
                hint="Compute longer lines with xl.density(..., length=...).",
            )
        line_index = _line_index(self.lines)
        flat = self.lengths.reshape(-1)
        inside = (self.lines.alphas > 0) & (self.lines.alphas * flat[line_index] < length)
        pieces = torch.ones(len(flat), dtype=torch.int64)
        return pieces.index_add_(0, line_index, inside.long()).view(self.lengths.shape)

    def __repr__(self) -> str:
        lines, breaks = self.counts.numel(), int(self.counts.sum())
        average = f"{self.total:.4g}" if lines else "no"
        return f"<Density: {lines:,} lines, {breaks:,} breaks, {average} breaks per unit of length>"


def density(
    model: Any,
    x: PointLike,
    directions: PointLike,
    *,
    length: float | None = None,
    many: bool | None = None,
    device: torch.device | str | None = None,
    memory: int | None = None,
    progress: bool | ProgressCallback = False,
    rewrite: bool = True,
) -> Density:
    """Count the breaks per Euclidean unit of length along the lines from x to x + direction, exactly.

    Both ends of a line count as breaks, as in the literature; `Density.pieces` is one less. Lengths are those of the
    lines in float64.

    Args:
        model: A module in eval mode, a Network, or a path.
        x: One point, (*in), or several, (m, *in).
        directions: The directions, (n, *in) from one point, or (m, n, *in) from several.
        length: Scale every direction to this length; by default the line is as long as its direction.
        many: Whether x is several points, where the shapes leave that open.
        device: Where to compute; by default where the model's weights are.
        memory: Bytes of the working set; by default a share of the free memory.
        progress: True shows a bar; a function is called with the share done and a count.
        rewrite: False keeps ReLU and maximum apart instead of fusing them.

    >>> import exactline as xl
    >>> found = xl.density(torch.nn.ReLU(), [-1.0, -2.0], [[4.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])
    >>> found.counts.tolist(), found.lengths.tolist(), found.densities.tolist()
    ([3, 4, 2], [4.0, 5.0, 1.0], [0.75, 0.8, 2.0])
    >>> found.origins
    {'relu': tensor([1, 2, 0])}

    Raises LineError for directions of length 0 or of another shape, and the errors of `restrict_many`.
    """
    starts, ends, lengths, shape = _make_lines(model, x, directions, length, many)
    lines = restrict_many(
        model, starts, ends, device=device, memory=memory, values=False, progress=progress, rewrite=rewrite
    )
    counts = (lines.offsets[1:] - lines.offsets[:-1]).view(shape)
    return Density(counts, lengths.view(shape), _count_origins(lines, shape), lines)


def _make_lines(
    model: Any, x: PointLike, directions: PointLike, length: float | None, many: bool | None
) -> tuple[Tensor, Tensor, Tensor, torch.Size]:
    """Return starts and ends of all lines, (lines, *in) each, their lengths, (lines,), and the shape of the answer."""
    if isinstance(x, tuple) or isinstance(directions, tuple):
        raise LineError(
            "Densities are of networks with one input; x and directions are tensors, arrays or lists.",
            where="arguments x, directions",
            hint="Concatenate several inputs into one.",
        )
    ((start,), (direction,)) = as_points(x, "x"), as_points(directions, "directions")
    shape = direction.shape[:2] if _has_many_points(model, start, direction, many) else direction.shape[:1]
    if len(shape) == 2:
        starts = start[:, None].expand(direction.shape).reshape(-1, *start.shape[1:])
        steps = direction.reshape(-1, *start.shape[1:])
    else:
        starts, steps = start.expand(direction.shape), direction
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 < length < float("inf"):
            raise ArgumentError(
                f"length must be a finite number above 0, not {length!r}.",
                where="argument length",
                hint="Leave it out if the directions are as long as the lines.",
            )
        scale, norm = _compute_norms(steps, "directions")
        steps = steps / _expand_like(scale, steps) * _expand_like(length / norm, steps)
    ends = starts + steps
    if not bool(torch.isfinite(ends).all()):
        raise LineError("x + direction overflows.", where="arguments x, directions", hint="Give shorter directions.")
    scale, norm = _compute_norms(ends - starts, "directions")
    return starts, ends, scale * norm, shape


def _has_many_points(model: Any, start: Tensor, direction: Tensor, requested: bool | None) -> bool:
    """Whether x is several points, each with its own directions; ``requested`` is the argument many."""
    deeper = direction.dim() == start.dim() + 1
    fits_one = deeper and direction.shape[1:] == start.shape
    same_count = deeper and start.dim() > 0 and direction.shape[0] == start.shape[0]
    fits_many = same_count and direction.shape[2:] == start.shape[1:]
    if fits_one and fits_many and requested is None and isinstance(model, Network):
        requested = tuple(start.shape) != tuple(model.nodes[model.inputs[0]].shape)
    elif fits_one and fits_many and requested is None and start.dim() == 1:
        requested = False  # several points would have no coordinates
    if requested is not None:
        fits_one, fits_many = fits_one and not requested, fits_many and requested
    if fits_one == fits_many:
        raise LineError(
            f"x of shape {tuple(start.shape)} and directions of shape {tuple(direction.shape)}"
            f" {'can be read in two ways' if fits_many else 'do not fit'}.",
            where="arguments x, directions",
            hint="Give many=True or many=False."
            if fits_many
            else "Give x (*in) with directions (n, *in), or x (m, *in) with directions (m, n, *in).",
        )
    return fits_many


def _compute_norms(steps: Tensor, name: str) -> tuple[Tensor, Tensor]:  # (lines, *in) -> (lines,) each
    """Return Euclidean lengths as a scale and a norm whose product neither overflows nor vanishes on the way."""
    flat = steps.reshape(len(steps), steps[0].numel() if len(steps) else 0)
    scale = flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(flat))
    if not bool((scale > 0).all()):
        index = int((scale == 0).nonzero()[0])
        raise LineError(
            f"Direction {index} has length 0, and a line without length has no density.",
            where=f"argument {name}",
            hint="Leave it out, or give a longer one.",
        )
    return scale, (flat / scale[:, None]).norm(dim=1)


def _expand_like(numbers: Tensor, steps: Tensor) -> Tensor:  # (lines,) -> (lines, 1, ...)
    return numbers.view(-1, *[1] * (steps.dim() - 1))


def _line_index(lines: Restrictions) -> Tensor:  # (breaks,)
    """Return the line of each break."""
    return torch.repeat_interleave(torch.arange(len(lines)), lines.offsets.diff())


def _count_origins(lines: Restrictions, shape: torch.Size) -> dict[str, Tensor]:
    """Count the breaks of each line by the node they originate from."""
    origin_node, line_index = lines.breaks.origins[:, 0], _line_index(lines)
    counts: dict[str, Tensor] = {}
    for node in lines.network.breaking_nodes:
        on_line = torch.bincount(line_index[origin_node == node], minlength=len(lines))
        counts[lines.network.nodes[node].name] = on_line.view(shape)
    return counts
