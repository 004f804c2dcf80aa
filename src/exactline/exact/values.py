"""Compare stored values at breaks with exact ones, within a bound on what rounding can explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import ArgumentError
from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input
from ..tolerances import VALUE_ERROR_SAFETY
from .forms import AffineForms
from .integers import read_rationals
from .pattern_interval import PatternInterval

MAX_CHECKED_ELEMENTS = 256  # of all outputs together: each needs a backward pass for its bound


@dataclass(frozen=True, eq=False)
class StoredValues:
    """The values of a restriction that are compared with exact ones."""

    rows: tuple[NDArray[np.float64], ...]  # (breaks, out) for each output
    elements: tuple[NDArray[np.int64], ...]  # (checked,) flat positions in each output
    roundoff: float  # relative spacing of the floats in which they were computed

    @property
    def unchecked_count(self) -> int:
        """The number of values of each break that are not compared."""
        return sum(r.shape[1] - len(e) for r, e in zip(self.rows, self.elements, strict=True))


def read_values(
    values: Tensor | ArrayLike | Sequence[Tensor],
    network: Network,
    breaks: int,
    dtype: torch.dtype | None,  # in which they were computed; None for their own
) -> StoredValues:
    """Convert stored values to arrays, and choose the elements to check, spread evenly over each output.

    Raises ArgumentError where they do not fit the network and its breaks.
    """
    tensors = [values] if isinstance(values, Tensor) else _list_tensors(values)
    shapes = [(breaks, *network.nodes[i].shape) for i in network.outputs]
    if [tuple(t.shape) for t in tensors] != shapes:
        raise ArgumentError(
            f"The values have the shapes {[tuple(t.shape) for t in tensors]}, not {shapes}.",
            where="argument values",
            hint="Give line.stored_values, for the same alphas.",
        )
    is_single = torch.float32 in (dtype, *(t.dtype for t in tensors))
    rows = tuple(t.detach().cpu().to(torch.float64).reshape(breaks, -1).numpy() for t in tensors)
    total = max(1, sum(r.shape[1] for r in rows))
    counts = [min(r.shape[1], -(-MAX_CHECKED_ELEMENTS * r.shape[1] // total)) for r in rows]
    elements = tuple(
        np.unique(np.linspace(0, max(r.shape[1] - 1, 0), count).round().astype(np.int64))
        for r, count in zip(rows, counts, strict=True)
    )
    return StoredValues(rows, elements, float(torch.finfo(torch.float32 if is_single else torch.float64).eps))


def _list_tensors(values: ArrayLike | Sequence[Tensor]) -> list[Tensor]:
    """Convert a sequence of tensors, or one array of numbers, to a list of tensors."""
    parts: list[object] = list(values) if isinstance(values, (tuple, list)) else []
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if tensors and len(tensors) == len(parts):
        return tensors
    return [torch.from_numpy(np.asarray(values, dtype=np.float64))]


def exact_errors(
    row: NDArray[np.float64],  # (elements,) finite
    forms: AffineForms,  # of the elements
    piece: int,
    alpha: Fraction,
) -> NDArray[np.float64]:  # (elements,)
    """The distances of stored values from the exact values of affine forms at alpha, each rounded once."""
    stored = read_rationals(torch.from_numpy(row))
    exact = forms.numerators[:, 0, piece] * alpha.denominator + forms.numerators[:, 1, piece] * alpha.numerator
    denominator = int(forms.denominator) * alpha.denominator
    differences = exact * stored.denominator - stored.numerators * denominator
    return np.array([_divide(abs(int(d)), denominator * stored.denominator) for d in differences.tolist()])


def _divide(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf")


def slope_sizes(forms: AffineForms, piece: int) -> NDArray[np.float64]:  # (elements,)
    """The absolute slopes of affine forms on a piece."""
    denominator = int(forms.denominator)
    return np.array([_divide(abs(int(s)), denominator) for s in forms.numerators[:, 1, piece].tolist()])


@dataclass(frozen=True)
class ValueProof:
    """How many stored values are proved, and what is wrong with the others."""

    checked: int = 0
    proved: int = 0
    unchecked: int = 0
    max_error: float = 0.0
    failures: tuple[str, ...] = ()
    errors_checked: int = 0  # estimated errors
    errors_proved: int = 0


class ValueCheck:
    """Collects the errors of stored values, and the bounds on them, from both sides of every break."""

    def __init__(
        self,
        network: Network,
        ends: Sequence[tuple[Tensor, Tensor]],  # start and end for each input
        stored: StoredValues,
        breaks: Sequence[Fraction],
        estimates: Tensor | None = None,  # (breaks,) estimated errors of the values
    ) -> None:
        if estimates is not None and tuple(estimates.shape) != (len(breaks),):
            raise ArgumentError(
                f"The errors have the shape {tuple(estimates.shape)}, not ({len(breaks)},).",
                where="argument errors",
                hint="Give line.errors.",
            )
        self.stored, self.breaks = stored, breaks
        self.estimates = None if estimates is None else estimates.to("cpu", torch.float64).tolist()
        self.rounding = RoundingBounds(network, ends, stored.roundoff)
        self.errors: dict[int, list[NDArray[np.float64]]] = {}  # by break, for each output
        self.bounds: dict[int, list[NDArray[np.float64]]] = {}

    def add_pieces(
        self,
        pieces: Sequence[int],
        intervals: Sequence[PatternInterval],
        outputs: Sequence[AffineForms],
        patterns: dict[int, Tensor],  # (pieces, ...) by node
    ) -> None:
        """Compare the values at both ends of some pieces, where the pattern of the piece holds."""
        ends = [[float(self.breaks[k + side]) for side in (0, 1)] for k in pieces]
        bounds = self.rounding.compute(torch.tensor(ends, dtype=torch.float64), patterns, self.stored.elements)
        forms = self._select_elements(outputs)
        for at, (piece, interval) in enumerate(zip(pieces, intervals, strict=True)):
            for index, end in ((piece, interval.left), (piece + 1, interval.right)):
                alpha = self.breaks[index]
                distance = float(abs(alpha - end.alpha)) if end.unit else 0.0
                distance += self.stored.roundoff * float(alpha)
                sizes = [
                    b[at] + VALUE_ERROR_SAFETY * distance * slope_sizes(f, at)
                    for b, f in zip(bounds, forms, strict=True)
                ]
                known = self.bounds.get(index)
                self.bounds[index] = (
                    sizes if known is None else [np.maximum(a, b) for a, b in zip(known, sizes, strict=True)]
                )
                if not interval.midpoint_unit and interval.left.alpha <= alpha <= interval.right.alpha:
                    self.add_break(index, outputs, at)

    def add_break(self, index: int, outputs: Sequence[AffineForms], piece: int) -> None:
        """Compare the values at one break with those of affine forms that hold there."""
        if index in self.errors:
            return
        self.errors[index] = []
        for rows, chosen, forms in zip(
            self.stored.rows, self.stored.elements, self._select_elements(outputs), strict=True
        ):
            row = rows[index, chosen]
            is_finite = np.isfinite(row)
            found = exact_errors(np.where(is_finite, row, 0.0), forms, piece, self.breaks[index])
            self.errors[index].append(np.where(is_finite, found, np.inf))

    @property
    def missing(self) -> list[int]:
        """The breaks at which no pattern of a checked piece holds."""
        return sorted(set(self.bounds) - set(self.errors))

    def prove(self) -> ValueProof:
        """Compare all errors with their bounds."""
        checked = proved = 0
        max_error, failures = 0.0, []
        for index in sorted(self.errors):
            sides = zip(self.errors[index], self.bounds[index], self.stored.elements, strict=True)
            for output, (errors, bounds, elements) in enumerate(sides):
                if not len(errors):
                    continue
                is_proved = (errors <= bounds) & np.isfinite(bounds)
                checked, proved = checked + len(errors), proved + int(is_proved.sum())
                max_error = max(max_error, float(errors[is_proved].max(initial=0.0)))
                if not is_proved.all():
                    worst = int(np.where(is_proved, -1.0, errors).argmax())
                    name = f"element {elements[worst]}" + (f" of output {output}" if len(self.stored.rows) > 1 else "")
                    more = int((~is_proved).sum()) - 1
                    failures.append(
                        f"value at break {index}, alpha {float(self.breaks[index])!r}: {name} is off by "
                        f"{errors[worst]:.1e}, rounding explains {bounds[worst]:.1e}"
                        + (f"; {more:,} more" if more else "")
                    )
        unchecked = len(self.errors) * self.stored.unchecked_count
        too_small = self._find_small_estimates()
        estimates = 0 if self.estimates is None else len(self.errors)
        return ValueProof(
            checked, proved, unchecked, max_error, (*failures, *too_small), estimates, estimates - len(too_small)
        )

    def _find_small_estimates(self) -> list[str]:
        """The breaks whose values are further from the exact ones than their estimated errors, in words."""
        if self.estimates is None:
            return []
        worst = {k: max((float(e.max(initial=0.0)) for e in self.errors[k]), default=0.0) for k in sorted(self.errors)}
        return [
            f"error at break {k}, alpha {float(self.breaks[k])!r}: it is {error:.1e}, more than {self.estimates[k]:.1e}"
            for k, error in worst.items()
            if not error <= self.estimates[k]
        ]

    def _select_elements(self, outputs: Sequence[AffineForms]) -> list[AffineForms]:
        pairs = zip(outputs, self.stored.elements, strict=True)
        return [AffineForms(forms.numerators[chosen], forms.denominator) for forms, chosen in pairs]


class RoundingBounds:
    """First-order bounds on the rounding errors of a network's outputs, with the activation patterns of pieces.

    Each node rounds its result: a sum of n products by at most n + 2 roundings of the sum of their sizes. The Jacobian
    from the node to an output element, with the pattern of the piece, carries these errors to the output. Sizes are the
    larger of those at both ends of the line and at the ends of the piece, since sweeps interpolate between them.
    """

    def __init__(self, network: Network, ends: Sequence[tuple[Tensor, Tensor]], roundoff: float) -> None:
        self.network, self.ends, self.roundoff = network, ends, roundoff
        with torch.no_grad():
            self._line = self._local_errors(torch.tensor([0.0, 1.0], dtype=torch.float64), None)

    def compute(
        self,
        alphas: Tensor,  # (pieces, 2) the ends of the pieces
        patterns: dict[int, Tensor],  # (pieces, ...) by node
        elements: Sequence[NDArray[np.int64]],  # of each output
    ) -> list[NDArray[np.float64]]:  # (pieces, elements) for each output
        """Bound the errors of some elements of every output on some pieces."""
        with torch.no_grad():
            left, right = (self._local_errors(a, patterns) for a in alphas.T)
            line = {i: e.amax(0, keepdim=True) for i, e in self._line.items()}
            local = {i: torch.maximum(torch.maximum(left[i], right[i]), line[i]) for i in left}
            return [
                np.stack([self._carry_to_output(node, int(e), local, patterns) for e in chosen], axis=1)
                if len(chosen)
                else np.zeros((len(alphas), 0))
                for node, chosen in zip(self.network.outputs, elements, strict=True)
            ]

    def _local_errors(self, alphas: Tensor, patterns: dict[int, Tensor] | None) -> dict[int, Tensor]:
        """The rounding error that each node adds at some points, (points, *shape) by node."""
        xs = [torch.lerp(a[None], b[None], alphas.view(-1, *[1] * a.dim())) for a, b in self.ends]
        values: dict[int, Tensor] = dict(zip(self.network.inputs, xs, strict=True))
        errors = {
            i: self.roundoff * torch.maximum(a, b).abs().expand_as(x)
            for i, x, (a, b) in zip(self.network.inputs, xs, ((a.abs(), b.abs()) for a, b in self.ends), strict=True)
        }
        last = self.network.last_use(self.network.outputs)
        for i, node in enumerate(self.network.nodes):
            if i not in last or isinstance(node.op, Input):
                continue
            args = [values[j] for j in node.inputs]
            if isinstance(node.op, Breaking):
                values[i] = (
                    node.op.evaluate(args[0]) if patterns is None else node.op.apply_affine(patterns[i], args[0])
                )
                errors[i] = self.roundoff * values[i].abs()
            elif isinstance(node.op, Affine):
                values[i] = node.op.evaluate(*args)
                errors[i] = self.roundoff * _affine_size(node.op, args, values[i])
            for j in set(node.inputs):
                if last[j] == i:
                    del values[j]
        return errors

    def _carry_to_output(
        self, output: int, element: int, local: dict[int, Tensor], patterns: dict[int, Tensor]
    ) -> NDArray[np.float64]:  # (pieces,)
        """Sum the errors of all nodes, times the absolute derivatives of one output element."""
        nodes, pieces = self.network.nodes, len(local[output])
        start = torch.zeros(pieces, *nodes[output].shape, dtype=torch.float64)
        start.view(pieces, -1)[:, element] = 1
        gradients, total = {output: start}, torch.zeros(pieces, dtype=torch.float64)
        for i in range(output, -1, -1):
            gradient = gradients.pop(i, None)
            if gradient is None:
                continue
            total += (gradient.abs() * local[i]).reshape(pieces, -1).sum(1)
            op, inputs = nodes[i].op, nodes[i].inputs
            shapes = [nodes[j].shape for j in inputs]
            found: list[Tensor] = []
            if isinstance(op, Breaking):
                found = [op.vjp(patterns[i], gradient, shapes[0])]
            elif isinstance(op, Affine):
                found = op.vjp(gradient, shapes)
            for j, part in zip(inputs, found, strict=True):
                gradients[j] = gradients[j] + part if j in gradients else part
        return VALUE_ERROR_SAFETY * total.numpy()


def _affine_size(op: Affine, args: list[Tensor], value: Tensor) -> Tensor:
    """Bound the rounding error of an affine node, in roundings: (n + 2) times the sizes of its n terms.

    By Cauchy and Schwarz the sum of n sizes is at most sqrt(n) times the root of the sum of their squares.
    """
    terms = op.rounding_terms
    spread = op.error_spread(*(x.abs() for x in args))
    constant = op.constant_part(*(torch.zeros_like(x[:1]) for x in args)).abs()
    return (terms + 2) * (max(terms, 1.0) ** 0.5 * spread.abs() + constant + value.abs())
