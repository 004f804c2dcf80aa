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
from ..ops.masks import is_on_host
from ..tolerances import ERROR_SAMPLES, ERROR_WIDTH, SHORT_LINE_SHARE, SMALLEST_SUBNORMAL, SUMMATION_SHARE
from .plan import sweep_plan

ESTIMATE_DIVISOR = 4  # one error estimate may take one part in so many of the memory
MAX_GPU_ESTIMATE_BYTES = 1 << 28  # bytes of one error estimate on a GPU
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
    """

    def __init__(
        self,
        network: Network,
        points: list[Tensor],
        errors: list[Tensor],
        samples: int = ERROR_SAMPLES,
        kept_nodes: frozenset[int] = frozenset(),
    ) -> None:
        self.network, self.samples, self.values_only = network, samples, not samples
        self.kept_nodes, self.kept_values = kept_nodes, dict[int, Tensor]()  # (k, *shape)
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
        return error_bounds(self.errors[target]) if self.samples else torch.zeros_like(self.values[target])

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
        replaced.values, replaced.errors, replaced._shared_sizes = values, errors, {}
        return replaced

    def _evaluate(self, i: int) -> None:
        """Evaluate node ``i``: its values, the propagated errors, and its own rounding added to them."""
        node = self.network.nodes[i]
        op, xs, errors = node.op, [self.values[j] for j in node.inputs], [self.errors[j] for j in node.inputs]
        value = self.values[i] = self._evaluate_kept(i, op, xs) if i in self.kept_nodes else _evaluate_op(op, xs)
        if self.values_only:
            self.errors[i] = value[None, :0]
        elif isinstance(op, Breaking):
            self.errors[i] = propagate_through_breaks(op, xs[0], errors[0])
        elif isinstance(op, Affine):
            self.errors[i] = self._propagate_through_affine(i, op, xs, value, errors)
        else:
            raise TypeError(f"{node.name} is neither affine nor breaking")

    def _evaluate_kept(self, i: int, op: Op, xs: list[Tensor]) -> Tensor:
        """The values of node ``i``, (k, *shape), which are also kept for the sweep."""
        self.kept_values[i] = value = _evaluate_op(op, xs)
        return value

    def _propagate_through_affine(
        self, i: int, op: Affine, xs: list[Tensor], value: Tensor, errors: list[Tensor]
    ) -> Tensor:
        """The errors of an affine node, (1 + samples, k or 1, *out), from the values and errors of its inputs."""
        count = errors[0].shape[1]
        samples = [e[1:].flatten(0, 1) for e in errors]
        if not op.rounding_terms:  # values are moved, not computed
            deviation, samples = op.propagate_errors([e[0] for e in errors], samples)
            return torch.cat([deviation[None], samples.unflatten(0, (self.samples, count))])
        sizes = [
            torch.cat([e[0], self._largest_sizes(j, count)])
            for j, e in zip(self.network.nodes[i].inputs, errors, strict=True)
        ]
        both, samples = op.propagate_errors(sizes, samples)
        deviation, own = both[:count], both[count:]  # the root of the sum of squares of all products, then the rounding
        value = self._largest_sizes(i, count)
        if op.rounding_terms > 1:  # a single operation rounds its result only; a sum rounds every partial sum
            partial_sums = 1 + 2 * (op.rounding_terms**0.5 - 1) * SUMMATION_SHARE
            constant = op.constant_part(*(x.new_zeros(1, *x.shape[1:]) for x in xs)).abs()
            own = torch.add(value, own, alpha=partial_sums).add_(constant)
        else:
            own = value.clone()
        own = own.mul_(0.5 * torch.finfo(value.dtype).eps).clamp_(min=SMALLEST_SUBNORMAL)
        largest = torch.finfo(value.dtype).max / 64
        out = value.new_empty(1 + self.samples, *own.shape)
        torch.hypot(deviation, own, out=out[0]).clamp_(max=largest)
        roundings = random_signs(self.network, i, self.samples, own).to(own.dtype) * own
        torch.add(samples.unflatten(0, (self.samples, count)), roundings, out=out[1:])
        out[1:].nan_to_num_(largest, largest, -largest)
        return out

    def _largest_sizes(self, i: int, count: int) -> Tensor:
        """The absolute values of a live node, or, for a ``count`` of one, the largest of all points, (1, *shape)."""
        if count == len(self.values[i]):
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
        self.network, self.samples, self.values_only = network, 0, False
        self.kept_nodes, self.kept_values, self._shared_sizes = frozenset(), {}, {}
        self.node, self.values = node, dict(values)
        self.errors = {i: torch.zeros_like(value)[None] for i, value in values.items()}

    def advance_to(self, target: int) -> Tensor:
        """Evaluate up to node ``target`` and return the lower bounds of its errors, (k, *shape)."""
        super().advance_to(target)
        return error_bounds(self.errors[target])


def _evaluate_op(op: Op, xs: list[Tensor]) -> Tensor:
    """The output (k, *out) of an operator; huge values of affine ones are scaled on the way."""
    value = op.evaluate(*xs)
    if isinstance(op, Affine) and is_on_host(value) and not bool(torch.isfinite(value.sum())):
        return op.evaluate_scaled(*xs)
    return value


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
    memory = MAX_GPU_ESTIMATE_BYTES if network.device.type == "cuda" else block_bytes(ESTIMATE_DIVISOR)
    return max(1, memory // bytes_per_estimate(network, samples))


def bytes_per_estimate(network: Network, samples: int = ERROR_SAMPLES) -> int:
    """Bytes of the values and errors of one point, and of as much again while a node is evaluated."""
    return max(1, 2 * (samples + 2) * sweep_plan(network).bytes_live)


def error_bounds(errors: Tensor) -> Tensor:
    """Error bounds (k, *shape) of values with a standard deviation and samples (1 + samples, k, *shape)."""
    if not is_on_host(errors):  # fewer kernels
        return torch.maximum(errors.amax(0), errors.amin(0).neg_()).mul_(ERROR_WIDTH)
    bounds = errors[0] * ERROR_WIDTH  # deviations have no sign
    for sample in errors[1:]:
        torch.maximum(bounds, sample.abs().mul_(ERROR_WIDTH), out=bounds)
    return bounds


def propagate_through_breaks(op: Breaking, x: Tensor, errors: Tensor) -> Tensor:
    """The errors of a breaking node, (1 + samples, k, *out), from its input (points, *in) and that input's errors.

    ``errors`` is (1 + samples, k, *in), for each of the points or, with k = 1, for all of them.
    """
    reach, is_shared = error_bounds(errors), errors.shape[1] < len(x)
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
    if device.type == "cpu":
        generator = torch.Generator().manual_seed(i)
        signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8, device="cpu").mul_(2).sub_(1)
    else:
        signs = _hashed_signs(i, shape, device)
    if device.type != "cpu" or signs.numel() <= MAX_CACHED_SIGNS:
        cache[key] = signs
    return signs


def _hashed_signs(seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random signs from a hashed counter: on a GPU this is much faster than a sequential generator."""
    bits = torch.arange(torch.Size(shape).numel(), device=device).mul_(0x5851F42D4C957F2D).add_(seed * 0x14057B7EF767)
    for shift, factor in ((31, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35)):
        bits = bits.bitwise_xor_(bits >> shift).mul_(factor)
    return (bits < 0).view(shape).to(torch.int8).mul_(2).sub_(1)
