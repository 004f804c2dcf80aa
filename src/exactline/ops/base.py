"""What an operator is: how it evaluates, how errors pass through it and, if it breaks, where."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Op(ABC):
    """One node's work on a batch of points; every tensor is (points, *shape)."""

    @abstractmethod
    def evaluate(self, *xs: Tensor) -> Tensor:
        """The operator's value at every point."""

    @property
    def title(self) -> str:
        """What people call this operator."""
        return type(self).__name__

    @property
    def rounding_terms(self) -> float:
        """How many roundings one output gathers on its way, as a root mean square."""
        return 1.0

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same operator with its tensors elsewhere or in another precision."""
        changes = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            moved = _move(value, device, dtype)
            if moved is not value:
                changes[field.name] = moved
        return dataclasses.replace(self, **changes) if changes else self


@dataclass(frozen=True, eq=False)
class Input(Op):
    """The network's input: what the line gives."""

    def evaluate(self, *xs: Tensor) -> Tensor:
        return xs[0]


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """An operator with no breaks: a linear map and a constant."""

    @abstractmethod
    def linear(self, *xs: Tensor) -> Tensor:
        """`evaluate` without its constant part."""

    @abstractmethod
    def error_spread(self, *errors: Tensor) -> Tensor:
        """The size of the output's error when the inputs carry independent ``errors``."""

    def constant_part(self, *zeros: Tensor) -> Tensor:
        """What is added, given zeros for every input; it may have to be expanded."""
        return self.evaluate(*zeros)

    def evaluate_scaled(self, *xs: Tensor) -> Tensor:
        """`evaluate` in float64 where a product or a partial sum may overflow though the result does not.

        Otherwise it would depend on the processor whether it does: a fused multiply-add never forms the product.
        """
        zeros = (torch.zeros_like(x[:1]) for x in xs)
        return (
            self.linear(*(x * OVERFLOW_SCALE for x in xs)) + self.constant_part(*zeros) * OVERFLOW_SCALE
        ) / OVERFLOW_SCALE

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Gradients at the output, (points, *out), as gradients at every input, (points, *shape) each."""
        with torch.enable_grad():
            made = (torch.zeros(len(grad), *s, dtype=grad.dtype, device=grad.device) for s in shapes)
            xs = [x.requires_grad_() for x in made]
            return list(torch.autograd.grad(self.linear(*xs), xs, grad))


@dataclass(frozen=True, eq=False)
class Breaking(Op):
    """A continuous operator of one input that is affine between its breaks."""

    @abstractmethod
    def units(self, shape: tuple[int, ...]) -> int:
        """How many units can break, for an input of this shape."""

    @property
    def max_slope(self) -> float:
        """The largest slope of any branch."""
        return 1.0

    def evaluate_inplace(self, x: Tensor) -> Tensor:
        """`evaluate` where the input is not needed any more and may be written over."""
        return self.evaluate(x)

    def knot_distances(self, x: Tensor) -> Tensor | None:
        """How near to each knot any value comes, (knots,); None for an operator without knots."""
        return None

    @abstractmethod
    def snap_to_knots(self, x: Tensor, noise: ErrorBounds) -> SnappedInput:
        """Decide which values are on a knot, given how far they can be trusted."""

    @abstractmethod
    def crossings(self, settled: SnappedInput, noise: ErrorBounds) -> Crossings:
        """Every crossing between neighbouring points of one line."""

    def knot_passes(self, settled: SnappedInput, noise: ErrorBounds) -> KnotPasses | None:
        """Crossings that fall on points that exist already; None where there are none or they are not counted."""
        return None

    @abstractmethod
    def jvp(self, x: Tensor, errors: Tensor) -> Tensor:
        """Small errors (probes, points, *in) at some points, carried to the output along the branch taken."""

    @abstractmethod
    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        """The branch taken by every unit on pieces that run from ``before`` to ``after``."""

    @abstractmethod
    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        """The affine map of a branch pattern, applied to any point."""

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        """The pattern with every unit that is on a knot along a whole piece on its other side; None: there is none."""
        return None

    def vjp(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        """Gradients at the output, (pieces, *out), as gradients at the input, (pieces, *shape)."""
        with torch.enable_grad():
            x = torch.zeros(len(grad), *shape, dtype=grad.dtype, device=grad.device, requires_grad=True)
            (found,) = torch.autograd.grad(self.apply_affine(pattern, x), x, grad)
        return found


OVERFLOW_GUARD = 2.0**1020  # values beyond this are scaled before they are added
OVERFLOW_SCALE = 2.0**-600  # by so much: products of two numbers of up to 2^800 do not overflow


class ErrorBounds(ABC):
    """How far the values that reach a breaking node can be trusted, point by point."""

    same_line: Tensor  # (points - 1,) whether a point and the next lie on one line
    line_ends: Tensor  # (k,) the points whose next one is on another line
    several_lines: bool  # whether there are any
    magnitude: float  # the size of the largest value
    widths: Tensor  # (points - 1,) in alpha
    threshold: float  # values further than this from a knot are clear without a closer look
    knot_distances: Sequence[float] | None = (
        None  # how near to each knot any value comes, where that is known beforehand
    )

    @abstractmethod
    def bound(self, rows: Tensor) -> Tensor:
        """Error bounds (rows, elements) of the node's input at some points."""

    def thresholds_at(self, elements: Tensor) -> Tensor | float:
        """The same limit for some elements, smaller for those whose weights are."""
        return self.threshold


@dataclass(frozen=True, eq=False)
class SnappedInput:
    """A breaking node's input once it is known which values sit on a knot."""

    x: Tensor  # (points, elements), values on a knot are exactly the knot
    sides: tuple[tuple[Tensor, Tensor | None], ...] = ()  # per knot: above, and below unless that is all the rest
    ambiguous: Tensor | None = None  # (points - 1,) units per piece not told from a knot


@dataclass(frozen=True, eq=False)
class KnotPasses:
    """Units that go through a knot exactly at a point: how many at each, and at the outermost points half of it."""

    counts: Tensor  # (points,)
    first: Tensor  # (k, 3) knot, unit, and the side taken after the first point
    last: Tensor  # (k, 3) knot, unit, and the side taken before the last point


@dataclass(frozen=True, eq=False)
class Crossings:
    """Crossings as parallel arrays: a difference that changes sign inside a piece."""

    piece: Tensor  # (k,) the point to the left
    unit: Tensor  # (k,) which unit of the node
    before: Tensor  # (k,) the difference at the left end
    after: Tensor  # (k,) the difference at the right end
    element: Tensor  # (k,) the input element that meets ...
    partner: Tensor  # (k,) ... another element, or -1 for ...
    level: Tensor  # (k,) ... this constant

    @staticmethod
    def join(parts: list[Crossings]) -> Crossings:
        """Several sets of crossings as one."""
        if len(parts) == 1:
            return parts[0]
        names = [f.name for f in dataclasses.fields(Crossings)]
        return Crossings(*(torch.cat([getattr(p, n) for p in parts]) for n in names))


def flatten_units(x: Tensor) -> Tensor:
    """(n, *shape) as (n, elements), also where a point is a single number or nothing."""
    return x.unsqueeze(-1).flatten(1)


def root_sum_squares(call: Callable[[Tensor], Tensor], errors: Tensor, top: float = 1.0) -> Tensor:
    """Independent errors through a ``call`` with squared coefficients, scaled so that no square overflows."""
    size = flatten_units(errors).amax(1) if errors.shape[1:].numel() else errors.new_ones(len(errors))
    size = size.clamp(min=torch.finfo(errors.dtype).tiny)
    out = call((errors / size.view(-1, *[1] * (errors.dim() - 1))).square())
    return out.clamp(min=0).sqrt() * (size * top).view(-1, *[1] * (out.dim() - 1))


def _move(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, tuple):
        moved = tuple(_move(v, device, dtype) for v in value)
        return value if all(a is b for a, b in zip(moved, value, strict=True)) else moved
    return value
