"""Base classes of operators: how they evaluate, how errors propagate through them and, if they break, where."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..tolerances import OVERFLOW_SCALE


@dataclass(frozen=True, eq=False)
class Op(ABC):
    """The function that one node of a network computes on a batch of points; every tensor is (points, *shape)."""

    @abstractmethod
    def evaluate(self, *xs: Tensor) -> Tensor:
        """Compute the output (points, *out) at every point; ``xs`` are the inputs, (points, *in) each."""

    @property
    def title(self) -> str:
        """The operator's name in messages and tables."""
        return type(self).__name__

    @property
    def rounding_terms(self) -> float:
        """Number of rounded terms that enter one output; its rounding error grows with the square root."""
        return 1.0

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields, without cached properties."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Copy the operator with its tensors on another device or in another precision."""
        changes = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            moved = _move(value, device, dtype)
            if moved is not value:
                changes[field.name] = moved
        return dataclasses.replace(self, **changes) if changes else self


@dataclass(frozen=True, eq=False)
class Input(Op):
    """An input of the network: a point of the line."""

    def evaluate(self, *xs: Tensor) -> Tensor:
        return xs[0]


@dataclass(frozen=True, eq=False)
class Affine(Op):
    """An operator without breaks: a linear map plus a constant."""

    @abstractmethod
    def linear(self, *xs: Tensor) -> Tensor:
        """Apply the linear part: `evaluate` without the constant. It is also the JVP at every point."""

    @abstractmethod
    def error_spread(self, *errors: Tensor) -> Tensor:
        """Error size of the output, (points, *out), for inputs with independent errors of size ``errors``."""

    def propagate_errors(self, deviations: list[Tensor], samples: list[Tensor]) -> tuple[Tensor, Tensor]:
        """`error_spread` of deviations (n, *in) and `linear` of samples (m, *in), to a few digits."""
        spread = self.error_spread(*deviations)
        return spread, self.linear(*samples) if len(samples[0]) else spread[
            :0
        ]  # torch's pools refuse some empty batches

    @property
    def spreads_elements(self) -> bool:
        """Whether `error_spread` is the absolute value of `linear`, since one input element enters each output."""
        return False

    @property
    def has_constant(self) -> bool:
        """Whether `constant_part` may be other than 0."""
        return True

    def constant_part(self, *zeros: Tensor) -> Tensor:
        """The constant, broadcastable to (points, *out); ``zeros`` are zero inputs, (1, *in) each."""
        return self.evaluate(*zeros)

    def evaluate_scaled(self, *xs: Tensor) -> Tensor:
        """`evaluate` on scaled float64 inputs, for values so large that a product or a partial sum may overflow.

        Without scaling, the result could depend on the processor: a fused multiply-add does not round the product, so
        it does not overflow where a separate multiplication does.
        """
        zeros = (torch.zeros_like(x[:1]) for x in xs)
        return (
            self.linear(*(x * OVERFLOW_SCALE for x in xs)) + self.constant_part(*zeros) * OVERFLOW_SCALE
        ) / OVERFLOW_SCALE

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Vector-Jacobian product: gradients at every input, (points, *shape) each, from those at the output.

        ``grad`` is (points, *out), ``shapes`` are the shapes of the inputs without the batch dimension.
        """
        with torch.enable_grad():
            zeros = (torch.zeros(len(grad), *s, dtype=grad.dtype, device=grad.device) for s in shapes)
            xs = [x.requires_grad_() for x in zeros]
            return list(torch.autograd.grad(self.linear(*xs), xs, grad))


@dataclass(frozen=True, eq=False)
class Breaking(Op):
    """A continuous operator of one input that is affine between its breaks."""

    @abstractmethod
    def units(self, shape: tuple[int, ...]) -> int:
        """Number of units that can break, for an input of this shape."""

    @property
    def max_slope(self) -> float:
        """The largest absolute slope of any branch."""
        return 1.0

    def evaluate_inplace(self, x: Tensor) -> Tensor:
        """`evaluate` that may overwrite its input (points, *in)."""
        return self.evaluate(x)

    def knot_distances(self, x: Tensor) -> Tensor | None:
        """The smallest distance of any value to each knot, (knots,); None for an operator without knots."""
        return None

    @abstractmethod
    def snap_to_knots(self, x: Tensor, errors: ErrorBounds) -> SnappedInput:
        """Set values that are within their error of a knot to the knot; ``x`` is (points, *in)."""

    @abstractmethod
    def crossings(self, snapped: SnappedInput, errors: ErrorBounds) -> Crossings:
        """Find every crossing between neighbouring points of the same line."""

    def knot_passes(
        self, snapped: SnappedInput, errors: ErrorBounds, *, with_switches: bool = False
    ) -> KnotPasses | None:
        """Find crossings that fall on existing points; None where there are none or they are not counted.

        Args:
            snapped: The input.
            errors: Its error bounds.
            with_switches: Whether `KnotPasses.switches` are wanted.
        """
        return None

    @abstractmethod
    def count_ambiguous(self, ends: PieceEnds) -> Tensor:
        """How many units are ambiguous on each piece, (pieces,): rounding hides their branch all along it."""

    @abstractmethod
    def propagate_errors(self, low: Tensor, high: Tensor, errors: Tensor) -> Tensor:
        """Propagate small errors of an input that is between ``low`` and ``high``.

        Of all branches that an element may take there, the one that makes an error largest counts.

        Args:
            low: (points, *in).
            high: (points, *in).
            errors: (k, points, *in) a standard deviation, then samples.

        Returns:
            (k, points, *out) the errors of the output.
        """

    @abstractmethod
    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        """The branch that every unit takes on pieces from ``before`` to ``after``, (pieces, *in) each."""

    def branch_at(self, x: Tensor) -> Tensor:
        """The branch that every unit takes at points (points, *in), to be compared between points."""
        return self.activation_pattern(x, x)

    @abstractmethod
    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        """Apply the affine map of an activation pattern to any points (pieces, *in)."""

    @abstractmethod
    def is_flat(self, pattern: Tensor) -> Tensor:
        """Whether the output of every unit is constant in an activation pattern, (pieces, units)."""

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        """The activation pattern with the other branch wherever a unit stays on a knot along a piece.

        None if no unit stays on a knot.
        """
        return None

    def vjp(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        """Vector-Jacobian product for an activation pattern: (pieces, *out) to (pieces, *shape)."""
        with torch.enable_grad():
            x = torch.zeros(len(grad), *shape, dtype=grad.dtype, device=grad.device, requires_grad=True)
            (input_grad,) = torch.autograd.grad(self.apply_affine(pattern, x), x, grad)
        return input_grad


class ErrorBounds(ABC):
    """Error bounds of the values at the input of a breaking node: a floating-point filter and its refinement.

    A value further than `threshold` from a knot is on a known side of it. For the few others, `bound` estimates the
    error point by point.
    """

    same_line: Tensor  # (points - 1,) whether a point and its successor lie on the same line
    line_ends: Tensor  # (k,) points whose successor lies on another line
    several_lines: bool  # whether line_ends is not empty
    # Whether the first and the last point are inside their lines: what happens there, two parts of a sweep share.
    ends_inside: tuple[bool, bool] = (True, True)
    magnitude: float  # the largest absolute value
    widths: Tensor  # (points - 1,) in alpha
    threshold: float  # filter: values further than this from a knot need no error bound
    knot_distances: Sequence[float] | None = None  # smallest distance of any value to each knot, where known

    @property
    def repeats(self) -> Tensor | None:
        """(elements,) units that repeat a unit of an earlier node, and are not ambiguous beside it; None: no unit."""
        return None

    @abstractmethod
    def bound(self, rows: Tensor) -> Tensor:
        """Error bounds (rows, elements) of the node's input at some points (rows,)."""

    @abstractmethod
    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The node's input at some points (rows,), evaluated again from the points, and its error bounds.

        Both are (rows, elements). Unlike the values of a sweep, they do not depend on other points.
        """

    def thresholds_at(self, elements: Tensor) -> Tensor | float:
        """`threshold` for some elements (k,): smaller where the weights of an element are smaller."""
        return self.threshold


@dataclass(frozen=True, eq=False)
class PieceEnds:
    """The input of a breaking node at the left and the right end of some pieces, evaluated there."""

    values: tuple[Tensor, Tensor]  # (pieces, *in)
    bounds: tuple[Tensor, Tensor]  # (pieces, elements) their errors
    # (pieces, elements) whether a unit may be ambiguous: some term of it is rounded in the middle of the piece, and it
    # does not repeat a unit of an earlier node
    is_counted: Tensor
    is_earlier: tuple[Tensor, Tensor]  # (pieces,) whether the end is an end of the line or a break of an earlier node
    widths: Tensor  # (pieces,) in alpha


@dataclass(frozen=True, eq=False)
class SnappedInput:
    """The input of a breaking node after values within their error of a knot were set to the knot."""

    x: Tensor  # (points, elements), values on a knot are exactly the knot
    sides: tuple[tuple[Tensor, Tensor | None], ...] = ()  # per knot: masks above and below; None: below is not above
    ambiguous: Tensor | None = None  # (points - 1,) whether units may be ambiguous on a piece; None: nowhere
    leaders: Tensor | None = None  # (points, units) the largest element of every window of a maximum


@dataclass(frozen=True, eq=False)
class KnotPasses:
    """Units that pass a knot, or whose leader changes, exactly at an existing point.

    At the first and the last point only one side is known: the engine compares it with the neighbouring part's. A unit
    counts at a knot if all its rows after the point have a row of opposite sign before it, and switches if one of each
    pair is positive and the other one is not. A window has one row after the point for every member that leads there,
    with side 1, and one before it for every tied member that does not lead there, with side -1.
    """

    counts: Tensor  # (points,) how many units pass a knot at each inner point
    first: Tensor  # (k, 4) knot, unit, member of a window or 0, and the side after the first point
    last: Tensor  # (k, 4) knot, unit, member of a window or 0, and the side before the last point
    # (k, 3) inner point, unit, and 1 if it passes a knot there, 0 if it only leaves or reaches one; None if not wanted
    switches: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Crossings:
    """Crossings as parallel arrays: differences that change sign inside a piece."""

    piece: Tensor  # (k,) index of the point at the left end
    unit: Tensor  # (k,) index of the unit in its node
    before: Tensor  # (k,) the difference at the left end
    after: Tensor  # (k,) the difference at the right end
    element: Tensor  # (k,) the input element ...
    partner: Tensor  # (k,) ... minus this element, or, where it is -1, ...
    level: Tensor  # (k,) ... minus this constant

    @staticmethod
    def join(parts: list[Crossings]) -> Crossings:
        """Concatenate several sets of crossings."""
        if len(parts) == 1:
            return parts[0]
        names = [f.name for f in dataclasses.fields(Crossings)]
        return Crossings(*(torch.cat([getattr(p, n) for p in parts]) for n in names))


def flatten_units(x: Tensor) -> Tensor:
    """Flatten (n, *shape) to (n, elements), also where shape is () or has a size of 0."""
    return x.unsqueeze(-1).flatten(1)


def root_sum_squares(call: Callable[[Tensor], Tensor], errors: Tensor, top: float = 1.0) -> Tensor:
    """Propagate independent errors (n, *in) by the root of a sum of squares, scaled so that no square overflows.

    ``call`` is the linear map with squared coefficients, each divided by the square of ``top``.
    """
    size = flatten_units(errors).amax(1) if errors.shape[1:].numel() else errors.new_ones(errors.shape[0])
    size = size.clamp_(min=torch.finfo(errors.dtype).tiny)
    out = call((errors / size.view(-1, *[1] * (errors.dim() - 1))).square_())
    return out.clamp(min=0).sqrt_().mul_((size * top).view(-1, *[1] * (out.dim() - 1)))


def _move(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, tuple):
        moved = tuple(_move(v, device, dtype) for v in value)
        return value if all(a is b for a, b in zip(moved, value, strict=True)) else moved
    return value
