"""Densities: how many breaks a network has for each unit of length, along lines from a point in given directions."""

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
    """Breaks, lengths and densities of lines, (n,) or (m, n) as the directions were; exact counts, not samples.

    >>> import exactline as xl
    >>> found = xl.density(torch.nn.ReLU(), [-1.0, -1.0], [[2.0, 0.0], [4.0, 4.0]])
    >>> found
    <Density: 2 lines, 6 breaks, 0.7836 breaks for each unit of length>
    >>> found.counts, found.births
    (tensor([3, 3]), {'relu': tensor([1, 1])})
    >>> found.densities
    tensor([1.5000, 0.5303], dtype=torch.float64)
    """

    counts: Tensor  # (..., n) int64, breaks with both ends counted: 2 where the network is affine on the line
    lengths: Tensor  # (..., n) float64, Euclidean, in input units
    births: dict[str, Tensor]  # (..., n) int64 each, breaks inside the line by the node that bore them, in sweep order
    lines: Restrictions  # the lines themselves, one after another, without values

    @property
    def densities(self) -> Tensor:
        """(..., n) breaks for each unit of length."""
        return self.counts / self.lengths

    @property
    def pieces(self) -> Tensor:
        """(..., n) int64."""
        return self.counts - 1

    @property
    def total(self) -> float:
        """Breaks of all lines over the length of all lines."""
        return float(self.counts.sum() / self.lengths.sum())

    def within(self, length: float) -> Tensor:  # (..., n) int64
        """How many pieces the first so much of each line has: exactly those of the shorter line.

        >>> import exactline as xl
        >>> xl.density(torch.nn.ReLU(), [-1.0, -2.0], [[4.0, 0.0], [0.0, 4.0]]).within(1.5)
        tensor([2, 1])
        """
        farthest = float(self.lengths.min()) if self.lengths.numel() else float("inf")
        if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 < length <= farthest:
            raise ArgumentError(
                f"length must be above 0 and at most {farthest:g}, the shortest line's, not {length!r}.",
                where="argument length",
                hint="Ask for longer lines with xl.density(..., length=...).",
            )
        owner = _owners(self.lines)
        flat = self.lengths.reshape(-1)
        inside = (self.lines.alphas > 0) & (self.lines.alphas * flat[owner] < length)
        found = torch.ones(len(flat), dtype=torch.int64)
        return found.index_add_(0, owner, inside.long()).view(self.lengths.shape)

    def __repr__(self) -> str:
        lines, breaks = self.counts.numel(), int(self.counts.sum())
        shown = f"{self.total:.4g}" if lines else "no"
        return f"<Density: {lines:,} lines, {breaks:,} breaks, {shown} breaks for each unit of length>"


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
    """Breaks for each Euclidean unit along the lines from x to x + direction, exactly.

    ``x`` is one point (*in) with directions (n, *in), or several (m, *in) with directions (m, n, *in). With ``length``
    every line is made that long; ``many`` says which of the two is meant where the shapes fit both. Both ends of a line
    count as breaks, as in the literature; `Density.pieces` is one less. Lengths are those of the lines in float64.

    >>> import exactline as xl
    >>> found = xl.density(torch.nn.ReLU(), [-1.0, -2.0], [[4.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])
    >>> found.counts.tolist(), found.lengths.tolist(), found.densities.tolist()
    ([3, 4, 2], [4.0, 5.0, 1.0], [0.75, 0.8, 2.0])
    >>> found.births
    {'relu': tensor([1, 2, 0])}

    Raises LineError for directions of no length or of another shape, and what `restrict_many` raises.
    """
    starts, ends, lengths, shape = _lines(model, x, directions, length, many)
    lines = restrict_many(
        model, starts, ends, device=device, memory=memory, values=False, progress=progress, rewrite=rewrite
    )
    counts = (lines.offsets[1:] - lines.offsets[:-1]).view(shape)
    return Density(counts, lengths.view(shape), _births(lines, shape), lines)


def _lines(
    model: Any, x: PointLike, directions: PointLike, length: float | None, many: bool | None
) -> tuple[Tensor, Tensor, Tensor, torch.Size]:
    """Both ends of every line (lines, *in), their lengths (lines,), and the shape of the answer."""
    if isinstance(x, tuple) or isinstance(directions, tuple):
        raise LineError(
            "Densities are of networks with one input; x and directions are tensors, arrays or lists.",
            where="arguments x, directions",
            hint="Join several inputs into one.",
        )
    ((start,), (way,)) = as_points(x, "x"), as_points(directions, "directions")
    shape = way.shape[:2] if _many(model, start, way, many) else way.shape[:1]
    if len(shape) == 2:
        starts = start[:, None].expand(way.shape).reshape(-1, *start.shape[1:])
        ways = way.reshape(-1, *start.shape[1:])
    else:
        starts, ways = start.expand(way.shape), way
    if length is not None:
        if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 < length < float("inf"):
            raise ArgumentError(
                f"length must be a finite number above 0, not {length!r}.",
                where="argument length",
                hint="Leave it out where directions are as long as the lines.",
            )
        largest, norm = _norms(ways, "directions")
        ways = ways / _aligned(largest, ways) * _aligned(length / norm, ways)
    ends = starts + ways
    if not bool(torch.isfinite(ends).all()):
        raise LineError("x + direction overflows.", where="arguments x, directions", hint="Give shorter directions.")
    largest, norm = _norms(ends - starts, "directions")
    return starts, ends, largest * norm, shape


def _many(model: Any, start: Tensor, way: Tensor, said: bool | None) -> bool:
    """Whether there are several points, each with directions of its own."""
    deeper = way.dim() == start.dim() + 1
    one = deeper and way.shape[1:] == start.shape
    many = deeper and start.dim() > 0 and way.shape[0] == start.shape[0] and way.shape[2:] == start.shape[1:]
    if one and many and said is None and isinstance(model, Network):
        said = tuple(start.shape) != tuple(model.nodes[model.inputs[0]].shape)
    elif one and many and said is None and start.dim() == 1:
        said = False  # otherwise these were points without any coordinate
    if said is not None:
        one, many = one and not said, many and said
    if one == many:
        raise LineError(
            f"x of shape {tuple(start.shape)} and directions of shape {tuple(way.shape)}"
            f" {'can be read in two ways' if many else 'do not fit'}.",
            where="arguments x, directions",
            hint="Say many=True or many=False."
            if many
            else "Give x (*in) with directions (n, *in), or x (m, *in) with directions (m, n, *in).",
        )
    return many


def _norms(ways: Tensor, name: str) -> tuple[Tensor, Tensor]:  # (lines,) each
    """Euclidean lengths as a scale times a norm that neither overflows nor vanishes."""
    flat = ways.reshape(len(ways), ways[0].numel() if len(ways) else 0)
    largest = flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(flat))
    if not bool((largest > 0).all()):
        place = int((largest == 0).nonzero()[0])
        raise LineError(
            f"Direction {place} leads nowhere: a line without length has no density.",
            where=f"argument {name}",
            hint="Leave it out, or give a longer one.",
        )
    return largest, (flat / largest[:, None]).norm(dim=1)


def _aligned(numbers: Tensor, ways: Tensor) -> Tensor:  # (lines,) -> (lines, 1, ...)
    return numbers.view(-1, *[1] * (ways.dim() - 1))


def _owners(lines: Restrictions) -> Tensor:  # (breaks,)
    """The line that each break is on."""
    return torch.repeat_interleave(torch.arange(len(lines)), lines.offsets.diff())


def _births(lines: Restrictions, shape: torch.Size) -> dict[str, Tensor]:
    """How many breaks each breaking node bore on each line."""
    born, owner = lines.breaks.origins[:, 0], _owners(lines)
    found: dict[str, Tensor] = {}
    for place in lines.network.breaking:
        counts = torch.bincount(owner[born == place], minlength=len(lines))
        found[lines.network.nodes[place].name] = counts.view(shape)
    return found
