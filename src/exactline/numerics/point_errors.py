"""Error estimates at single points: how far every value of a network may be from the exact one.

Worst-case bounds explode with depth while the true error stays near the unit roundoff. Two estimates are propagated
beside the values instead, and the larger one counts:

* the standard deviation of the error if all roundings were independent, ``sqrt(sum((weight * error)^2))``,
* a few samples of the error, each with a random sign for every rounding. They follow the weights themselves, so that
  errors that cancel do cancel and errors of one source add up.

Where a value is within its error of a knot, the branch that amplifies the error most counts.
"""

from __future__ import annotations

import weakref
from copy import copy

import torch
from torch import Tensor

from ..budget import block_bytes, check_deadline
from ..lines import Lines
from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input, Op
from ..ops.masks import is_host, is_on_host
from ..tolerances import ERROR_SAMPLES, ERROR_WIDTH, SHORT_LINE_SHARE, SMALLEST_SUBNORMAL, SUMMATION_SHARE
from .plan import sweep_plan

ESTIMATE_DIVISOR = 4  # one error estimate may take one part in so many of the memory
MAX_GPU_ESTIMATE_BYTES = 1 << 31  # bytes of one error estimate on a GPU, where few launches matter more than memory
MAX_SMALL_ERRORS = 1 << 16  # numbers up to which calls cost more than passes over memory on a CPU
MAX_CACHED_SIGNS = 1 << 20  # signs per node that are cached on a CPU; a GPU caches all of them
_cached_signs: weakref.WeakKeyDictionary[Network, dict[tuple[int, int, torch.device], Tensor]] = (
    weakref.WeakKeyDictionary()
)


class PointErrors:
    """Values and errors of every live tensor at some points; evaluation can be resumed node by node.

    Args:
        network: The network.
        points: (k, *in) for each input.
        errors: (k, *in) for each input: bounds on the rounding errors of the points themselves. Or (1, *in): then one
            error is propagated for all points, at least as large as that of each.
        samples: Number of error samples; 0 evaluates the values only.
        kept_nodes: Nodes whose values stay in `kept_values` when no later node needs them.
        is_guarded: Whether what overflows is scaled or limited; otherwise it becomes infinite or not a number.
    """

    def __init__(
        self,
        network: Network,
        points: list[Tensor],
        errors: list[Tensor],
        samples: int = ERROR_SAMPLES,
        kept_nodes: frozenset[int] = frozenset(),
        is_guarded: bool = True,
    ) -> None:
        self.network, self.samples, self.values_only, self.is_guarded = network, samples, not samples, is_guarded
        self.kept_nodes, self.kept_values = kept_nodes, dict[int, Tensor]()  # (k, *shape)
        self._bounds: tuple[int, Tensor] | None = None  # the last node whose error bounds were computed
        self._shared_sizes = dict[int, Tensor]()  # by live node, see `_largest_sizes`
        self.node = max(network.inputs)  # the last node that was evaluated
        self.values = dict(zip(network.inputs, points, strict=True))  # by live node, (k, *shape)
        # by live node, (1 + samples, k or 1, *shape): the standard deviation, then the samples
        self.errors = {
            i: torch.cat([e[None], random_signs(network, i, samples, e) * e])
            for i, e in zip(network.inputs, errors, strict=True)
        }

    def advance_to(self, target: int) -> Tensor:
        """Evaluate up to node ``target`` and return the error bounds of its values, (k or 1, *shape)."""
        last_use = sweep_plan(self.network).last_use
        while self.node < target:
            self.node += 1
            node = self.network.nodes[self.node]
            if self.node in last_use and not isinstance(node.op, Input):
                check_deadline()
                self._evaluate(self.node)
            for j in set(node.inputs):
                if last_use.get(j) == self.node:
                    del self.values[j], self.errors[j]
                    self._shared_sizes.pop(j, None)
        return self._error_bounds(target) if self.samples else torch.zeros_like(self.values[target])

    def _error_bounds(self, i: int) -> Tensor:
        """The error bounds of a live node, (k or 1, *shape)."""
        if self._bounds is None or self._bounds[0] != i:
            self._bounds = i, error_bounds(self.errors[i])
        return self._bounds[1]

    def select(self, rows: Tensor) -> PointErrors:
        """The errors at some of the points."""
        values = {j: v.index_select(0, rows) for j, v in self.values.items()}
        return self._replace(values, {j: e.index_select(1, rows) for j, e in self.errors.items()})

    def drop_first(self, count: int) -> PointErrors:
        """The errors without the first ``count`` points."""
        values = {j: v[count:] for j, v in self.values.items()}
        return self._replace(values, {j: e[:, count:] for j, e in self.errors.items()})

    def insert(self, source_index: Tensor, new_index: Tensor, other: PointErrors) -> PointErrors:
        """Take the rows ``source_index``, then overwrite the rows ``new_index`` with those of ``other``."""
        other.advance_to(self.node)
        values = {
            j: v.index_select(0, source_index).index_copy_(0, new_index, other.values[j])
            for j, v in self.values.items()
        }
        errors = {
            j: e.index_select(1, source_index).index_copy_(1, new_index, other.errors[j])
            for j, e in self.errors.items()
        }
        return self._replace(values, errors)

    def _replace(self, values: dict[int, Tensor], errors: dict[int, Tensor]) -> PointErrors:
        replaced = copy(self)
        replaced.values, replaced.errors, replaced._shared_sizes, replaced._bounds = values, errors, {}, None
        return replaced

    def _evaluate(self, i: int) -> None:
        """Evaluate node ``i``: its values, the propagated errors, and its own rounding added to them."""
        node = self.network.nodes[i]
        op, xs, errors = node.op, [self.values[j] for j in node.inputs], [self.errors[j] for j in node.inputs]
        if not self.is_guarded and isinstance(op, Affine):
            self.values[i], self.errors[i] = self._evaluate_with_errors(i, op, xs, errors)
            return
        value = self.values[i] = self._evaluate_kept(i, op, xs) if i in self.kept_nodes else self._evaluate_op(op, xs)
        if self.values_only:
            self.errors[i] = value[None, :0]
        elif isinstance(op, Breaking):
            self.errors[i] = propagate_through_breaks(op, xs[0], errors[0], self._error_bounds(node.inputs[0]))
        elif isinstance(op, Affine):
            self.errors[i] = self._propagate_through_affine(i, op, xs, errors)
        else:
            raise TypeError(f"{node.name} is neither affine nor breaking")

    def _evaluate_kept(self, i: int, op: Op, xs: list[Tensor]) -> Tensor:
        """The values of node ``i``, (k, *shape), which are also kept for the sweep."""
        self.kept_values[i] = value = self._evaluate_op(op, xs)
        return value

    def _evaluate_op(self, op: Op, xs: list[Tensor]) -> Tensor:
        """The output (k, *out) of an operator; huge values of affine ones are scaled on the way."""
        value = op.evaluate(*xs)
        if self.is_guarded and isinstance(op, Affine) and is_on_host(value) and not bool(torch.isfinite(value.sum())):
            return op.evaluate_scaled(*xs)
        return value

    def _evaluate_with_errors(
        self, i: int, op: Affine, xs: list[Tensor], errors: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The values and the errors of an affine node, by one product for both."""
        points, count, is_exact = xs[0].shape[0], errors[0].shape[1], not op.rounding_terms
        joins_sizes = op.spreads_elements and not is_exact
        parts = [[x, (e if is_exact else e[1:]).flatten(0, 1)] for x, e in zip(xs, errors, strict=True)]
        if joins_sizes:
            parts = [[*some, *sizes] for some, sizes in zip(parts, self._sizes(i, errors), strict=True)]
        moved = op.linear(*map(torch.cat, parts))
        value, moved = moved[:points], moved[points:]
        constant = _constant_part(op, xs)
        self.values[i] = value = value if constant is None else value + constant
        if is_exact:
            return value, moved.unflatten(0, (1 + self.samples, count))
        if joins_sizes:
            samples = self.samples * count
            return value, self._add_rounding(i, op, constant, moved[samples:].abs(), moved[:samples])
        spread = op.error_spread(*map(torch.cat, self._sizes(i, errors)))
        return value, self._add_rounding(i, op, constant, spread, moved)

    def _propagate_through_affine(self, i: int, op: Affine, xs: list[Tensor], errors: list[Tensor]) -> Tensor:
        """The errors of an affine node, (1 + samples, k or 1, *out), from the values and errors of its inputs."""
        if not op.rounding_terms:  # values are moved, not computed
            shape = 1 + self.samples, errors[0].shape[1]
            return op.linear(*(e.flatten(0, 1) for e in errors)).unflatten(0, shape)
        sizes = [torch.cat(some) for some in self._sizes(i, errors)]
        spread, samples = op.propagate_errors(sizes, [e[1:].flatten(0, 1) for e in errors])
        return self._add_rounding(i, op, _constant_part(op, xs), spread, samples)

    def _sizes(self, i: int, errors: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """For each input of node ``i`` the deviations and the sizes of its values, (k, *in) each."""
        count, inputs = errors[0].shape[1], self.network.nodes[i].inputs
        return [(e[0], self._largest_sizes(j, count)) for j, e in zip(inputs, errors, strict=True)]

    def _add_rounding(
        self,
        i: int,
        op: Affine,
        constant: Tensor | None,
        spread: Tensor,  # (2 k, *out) of `_sizes`
        samples: Tensor,  # (samples * k, *out)
    ) -> Tensor:
        """The errors of node ``i``, (1 + samples, k, *out): those of its inputs, and its own rounding."""
        count = spread.shape[0] // 2
        deviation, own = spread[:count], spread[count:]  # the root of the sum of squares of all products
        value = self._largest_sizes(i, count)
        if op.rounding_terms > 1:  # a single operation rounds its result only; a sum rounds every partial sum
            partial_sums = 1 + 2 * (op.rounding_terms**0.5 - 1) * SUMMATION_SHARE
            own = torch.add(value, own, alpha=partial_sums)
            own = own if constant is None else own.add_(constant.abs())
        else:
            own = value.clone()
        own = own.mul_(0.5 * torch.finfo(value.dtype).eps)
        out = value.new_empty(1 + self.samples, *own.shape)
        if self.is_guarded:
            own.clamp_(min=SMALLEST_SUBNORMAL)
        torch.hypot(deviation, own, out=out[0])
        signs = random_signs(self.network, i, self.samples, own)
        torch.addcmul(samples.unflatten(0, (self.samples, count)), signs, own, out=out[1:])
        if self.is_guarded:
            largest = torch.finfo(value.dtype).max / 64
            out[0].clamp_(max=largest)
            out[1:].nan_to_num_(largest, largest, -largest)
        return out

    def _largest_sizes(self, i: int, count: int) -> Tensor:
        """The absolute values of a live node, or, for a ``count`` of one, the largest of all points, (1, *shape)."""
        if count == self.values[i].shape[0]:
            return self.values[i].abs()
        if i not in self._shared_sizes:
            self._shared_sizes[i] = self.values[i].abs().amax(0, keepdim=True)
        return self._shared_sizes[i]


class RecentErrors(PointErrors):
    """The errors that are made after a node, as standard deviations: a lower bound of those of `PointErrors`.

    Args:
        network: The network.
        node: The last node that was evaluated.
        values: By live node, (k, *shape).
    """

    def __init__(self, network: Network, node: int, values: dict[int, Tensor]) -> None:
        self.network, self.samples, self.values_only, self.is_guarded = network, 0, False, True
        self._bounds = None
        self.kept_nodes, self.kept_values, self._shared_sizes = frozenset(), {}, {}
        self.node, self.values = node, dict(values)
        self.errors = {i: torch.zeros_like(value)[None] for i, value in values.items()}

    @staticmethod
    def at_points(network: Network, points: list[Tensor], errors: list[Tensor]) -> RecentErrors:
        """The errors that are made from the inputs on, and those of the points themselves, (k, *in) for each input."""
        estimate = RecentErrors(network, max(network.inputs), dict(zip(network.inputs, points, strict=True)))
        estimate.errors = {i: error[None] for i, error in zip(network.inputs, errors, strict=True)}
        return estimate

    def advance_to(self, target: int) -> Tensor:
        """Evaluate up to node ``target`` and return the lower bounds of its errors, (k, *shape)."""
        super().advance_to(target)
        return error_bounds(self.errors[target])


def _constant_part(op: Affine, xs: list[Tensor]) -> Tensor | None:
    """The constant of an operator of inputs (k, *in), broadcastable to its output; None if it has none."""
    return op.constant_part(*(x.new_zeros(1, *x.shape[1:]) for x in xs)) if op.has_constant else None


def is_short_line(lines: Lines, line: int) -> bool:
    """Whether a line is so short beside its start that one error estimate serves all of its points."""
    length = max(_largest(b[line] - a[line]) for a, b in zip(lines.starts, lines.ends, strict=True))
    return length <= SHORT_LINE_SHARE * max(_largest(a[line]) for a in lines.starts)


def _largest(x: Tensor) -> float:
    return float(x.abs().amax()) if x.numel() else 0.0


def share_errors(points: list[Tensor], errors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The first and the last of the points of a short line, (2, *in), and errors of all of them, (1, *in)."""
    return [p[[0, -1]] for p in points], [e.amax(0, keepdim=True) for e in errors]


def points_per_estimate(network: Network, samples: int = ERROR_SAMPLES) -> int:
    """How many points have their errors estimated together, by memory."""
    memory = block_bytes(ESTIMATE_DIVISOR)
    if not is_host(network.device):
        memory = min(memory, MAX_GPU_ESTIMATE_BYTES)
    return max(1, memory // bytes_per_estimate(network, samples))


def bytes_per_estimate(network: Network, samples: int = ERROR_SAMPLES) -> int:
    """Bytes of the values and errors of one point, and of as much again while a node is evaluated."""
    return max(1, 2 * (samples + 2) * sweep_plan(network).bytes_live)


def error_bounds(errors: Tensor) -> Tensor:
    """Error bounds (k, *shape) of values with a standard deviation and samples (1 + samples, k, *shape)."""
    if not is_on_host(errors) or errors.numel() <= MAX_SMALL_ERRORS:  # fewer kernels
        return torch.maximum(errors.amax(0), errors.amin(0).neg_()).mul_(ERROR_WIDTH)
    bounds = errors[0] * ERROR_WIDTH  # deviations have no sign
    for sample in errors[1:]:
        torch.maximum(bounds, sample.abs().mul_(ERROR_WIDTH), out=bounds)
    return bounds


def propagate_through_breaks(
    op: Breaking,
    x: Tensor,  # (points, *in)
    errors: Tensor,  # (1 + samples, k, *in) for each of the points or, with k = 1, for all of them
    reach: Tensor,  # (k, *in) their error bounds
) -> Tensor:
    """The errors of a breaking node, (1 + samples, k, *out), from its input and that input's errors."""
    is_shared = errors.shape[1] < x.shape[0]
    low, high = (x.amin(0, keepdim=True), x.amax(0, keepdim=True)) if is_shared else (x, x)
    return op.propagate_errors(low - reach, high + reach, errors)


def estimate_errors(network: Network, node: int, points: list[Tensor], errors: list[Tensor]) -> Tensor:
    """Error bounds (k, *shape) of one node's values at input points; see `PointErrors`."""
    return PointErrors(network, points, errors).advance_to(node)


def random_signs(network: Network, i: int, count: int, like: Tensor) -> Tensor:
    """Random signs (count, 1, *shape) for a node; equal at all points, so that a point's neighbours do not matter."""
    shape, device = (count, 1, *like.shape[1:]), like.device
    cache, key = _cached_signs.setdefault(network, {}), (i, count, device)
    if key in cache:
        return cache[key]
    if is_host(device):
        generator = torch.Generator().manual_seed(i)
        signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8, device="cpu").mul_(2).sub_(1)
    else:
        signs = _hashed_signs(i, shape, device)
    if not is_host(device) or signs.numel() <= MAX_CACHED_SIGNS:
        cache[key] = signs
    return signs


def _hashed_signs(seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random signs from a hashed counter: on a GPU this is much faster than a sequential generator."""
    bits = torch.arange(torch.Size(shape).numel(), device=device).mul_(0x5851F42D4C957F2D).add_(seed * 0x14057B7EF767)
    for shift, factor in ((31, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35)):
        bits = bits.bitwise_xor_(bits >> shift).mul_(factor)
    return (bits < 0).view(shape).to(torch.int8).mul_(2).sub_(1)
