"""Errors of values on one line: sampled once, and estimated closely where the samples do not decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from ...budget import block_bytes
from ...lines import Lines
from ...network.graph import Network
from ...numerics.crossing_positions import CloseCrossings, locate_crossings
from ...numerics.equal_units import breaking_op
from ...numerics.plan import BYTES_PER_NUMBER, sweep_plan
from ...numerics.point_errors import (
    PointErrors,
    bytes_per_estimate,
    is_short_line,
    points_per_estimate,
    random_signs,
    share_errors,
)
from ...numerics.repeated_units import repeated_units
from ...numerics.static_filter import Magnitude, StaticFilter
from ...ops.base import Breaking, Input, flatten_units
from ...ops.masks import is_host, is_on_host
from ...options import free_device_bytes
from ...tolerances import (
    AMBIGUITY_MARGIN,
    ERROR_SAMPLES,
    FLOAT64_EPS,
    MAX_DRIFT_ROUNDINGS,
    MAX_SAMPLE_DEFICIT,
    MAX_SAMPLE_EXCESS,
    PERTURBATIONS,
    SEGMENT_ERROR_SAMPLES,
    SEGMENT_SAMPLE_POINTS,
)
from ..dense.state import line_magnitudes
from .patch import MapShape
from .timeline import NeedsDenseFallback, to_host

PIXEL_TABLES_DIVISOR = 8  # cached tables by pixel may take one part in so many of the memory
MAX_REFINED_UNITS = 256  # values refined at one node; more need the dense fallback


@dataclass(frozen=True, eq=False)
class ErrorOracle:
    """Errors of one line's values at the inputs of breaking nodes."""

    network: Network
    lines: Lines
    line: int
    thresholds: dict[int, float]  # by node: values further than this from a knot are unambiguous
    margins: dict[int, Tensor]  # by node, (2, elements): `thresholds` per element, and a lower bound of the error
    ends: dict[int, Tensor]  # by node: error bounds (2, elements) at both ends of the line; see `end_bounds`
    filter: StaticFilter  # for parts of the line that are swept densely
    pattern_changes: float  # units whose activation differs between neighbouring sample points: a forecast of breaks
    magnitudes: dict[int, Magnitude]  # by node before the first dense one
    is_shared: bool  # whether all points share one estimate, as on a short line
    end_values: dict[int, Tensor]  # by node, (2, *shape): values at both ends of the line, where they are kept
    pixel_tables: dict[int, Tensor] = field(default_factory=dict)  # by node: see `margins_by_pixel`

    @staticmethod
    def sample(network: Network, lines: Lines, line: int, first_dense_node: int) -> ErrorOracle:
        """Sample the errors along a line at all breaking nodes; margins are kept before ``first_dense_node`` only."""
        points, input_errors = _sample_points(lines, line)
        nodes = [i for i in network.breaking_nodes if i in sweep_plan(network).last_use]
        samples, changes = {i: _NodeSamples() for i in nodes}, torch.zeros((), device=points[0].device)
        is_shared = len(input_errors[0]) < len(points[0])
        step = len(points[0]) if is_shared else points_per_estimate(network, SEGMENT_ERROR_SAMPLES)
        is_one_batch = step >= len(points[0])
        kept_nodes = _choose_kept_nodes(network, first_dense_node) if is_one_batch else frozenset[int]()
        end_values = dict[int, Tensor]()
        for first in range(0, len(points[0]), step):
            part = slice(first, first + step)
            some_errors = input_errors if is_shared else [e[part] for e in input_errors]
            some_points = [p[part] for p in points]
            estimate = PointErrors(network, some_points, some_errors, SEGMENT_ERROR_SAMPLES, kept_nodes)
            for i in nodes:
                source = network.nodes[i].inputs[0]
                errors, values = flatten_units(estimate.advance_to(source)), estimate.values[source]
                samples[i].add(first, errors, flatten_units(values) if i < first_dense_node else None, is_shared)
                pattern = breaking_op(network, i).branch_at(values)
                changes += (pattern[1:] != pattern[:-1]).sum()
            end_values = {i: v if len(v) == 2 else v[[0, -1]] for i, v in estimate.kept_values.items()}
        largest_errors = {i: _max_or_zero(found.error) for i, found in samples.items()}
        largest_values = {i: _max_or_zero(samples[i].value) for i in nodes if i < first_dense_node}
        largest, margins, ends = dict[int, Tensor](), dict[int, Tensor](), dict[int, Tensor]()
        for i in nodes:
            if i < first_dense_node:
                found = samples.pop(i)
                upper = MAX_SAMPLE_EXCESS * found.error + MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * found.value
                margins[i] = torch.stack([upper, found.inner_error / MAX_SAMPLE_DEFICIT])
                largest[i] = _max_or_zero(upper)
                if not is_shared:
                    ends[i] = torch.stack([found.start, found.stop])
        changed, *numbers = to_host(changes, *largest.values(), *largest_errors.values(), *largest_values.values())
        changed = changed if is_one_batch else float("inf")  # points were not compared with each other
        thresholds = dict(zip(largest, numbers[: len(largest)], strict=True))
        errors, values = numbers[len(largest) : len(largest) + len(nodes)], numbers[len(largest) + len(nodes) :]
        static_filter = StaticFilter(dict(zip(largest_errors, errors, strict=True)))
        bounds = line_magnitudes(lines, torch.tensor([line]), dict(zip(network.inputs, points, strict=True)))
        magnitudes = _propagate_magnitudes(
            network, static_filter, bounds, dict(zip(largest_values, values, strict=True)), first_dense_node
        )
        return ErrorOracle(
            network, lines, line, thresholds, margins, ends, static_filter, changed, magnitudes, is_shared, end_values
        )

    def margins_by_pixel(self, node: int, map_shape: MapShape) -> tuple[Tensor, Tensor]:
        """Both margins of the input of a breaking node, (pixels, channels) each."""
        table = self.pixel_tables.get(node)
        if table is None:
            table = _by_pixel(self.margins[node], map_shape)
            cached = sum(t.nbytes for t in self.pixel_tables.values())
            if not is_on_host(table) or cached + table.nbytes <= block_bytes(PIXEL_TABLES_DIVISOR):
                self.pixel_tables[node] = table
        upper, lower = table
        return upper, lower

    def least_errors(self, node: int, alphas: Tensor, elements: Tensor) -> Tensor:
        """Lower bounds (k,) of the errors of some elements of a breaking node's input, which may be less near the ends.

        The ends of a line are exact. Of a short line, whose points share one estimate, no errors there are known.
        """
        middle, share = self.margins[node][1].index_select(0, elements), 1 - (2 * alphas - 1).abs()
        if self.is_shared:
            return middle * share
        at_ends = self.ends[node].index_select(1, elements).amin(0) / MAX_SAMPLE_DEFICIT
        return torch.lerp(torch.minimum(at_ends, middle), middle, share)

    def repeated_by_pixel(self, node: int, map_shape: MapShape) -> Tensor | None:
        """Which units of a breaking node repeat one of an earlier node, (pixels, channels); None if there are none."""
        repeated = repeated_units(self.network).get(node)
        return None if repeated is None else _by_pixel(repeated[None], map_shape)[0]

    def end_bounds(self, node: int, map_shape: MapShape) -> tuple[Tensor, Tensor]:
        """Error bounds of the input of a breaking node at the start and at the end of the line, (pixels, channels)."""
        if node not in self.ends:
            device = self.lines.starts[0].device
            points = self.lines.at(torch.full((2,), self.line, device=device), torch.tensor([0.0, 1.0], device=device))
            estimate = PointErrors(self.network, *points, SEGMENT_ERROR_SAMPLES)
            for i in self.margins:
                self.ends[i] = flatten_units(estimate.advance_to(self.network.nodes[i].inputs[0]))
        start, stop = _by_pixel(self.ends[node], map_shape)
        return start, stop

    def refine(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, samples: int = ERROR_SAMPLES
    ) -> tuple[Tensor, Tensor]:
        """Directly evaluated differences (k,) at the inputs of breaking nodes, and their error bounds."""
        order = torch.argsort(nodes, stable=True)
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        at, step = 0, self._points_per_batch(samples)
        while at < len(order):
            rows = order[at : at + step]
            try:
                columns = nodes[rows], alphas[rows], elements[rows], partners[rows]
                values[rows], bounds[rows] = self._evaluate(*columns, samples)
            except torch.cuda.OutOfMemoryError:
                if step == 1:
                    raise
                torch.cuda.empty_cache()
                step = max(1, min(step, len(rows)) // 2)
                continue
            at += step
        return values, bounds

    def locate(self, node: int, crossings: CloseCrossings) -> tuple[Tensor, Tensor]:
        """`locate_crossings` at the input of a breaking node."""
        source = self.network.nodes[node].inputs[0]
        return locate_crossings(self.network, source, self.lines, crossings, self._points_per_batch(ERROR_SAMPLES))

    def _evaluate(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, samples: int
    ) -> tuple[Tensor, Tensor]:
        """`refine` for one batch, sorted by node."""
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        points = self.lines.at(torch.full_like(nodes, self.line), alphas)
        estimate = PointErrors(self.network, *points, samples)
        at = 0
        for node, count in torch.stack(torch.unique_consecutive(nodes, return_counts=True)).T.tolist():
            source = self.network.nodes[node].inputs[0]
            errors, rows = estimate.advance_to(source), slice(at, at + count)
            pair = elements[rows], partners[rows]
            bounds[rows] = _difference(flatten_units(errors[:count]), *pair, 1.0)
            values[rows] = _difference(flatten_units(estimate.values[source][:count]), *pair, -1.0)
            estimate, at = estimate.drop_first(count), at + count
        return values, bounds

    def _points_per_batch(self, samples: int) -> int:
        """How many points are refined together."""
        device = self.network.device
        if is_host(device):
            return points_per_estimate(self.network, samples)
        return max(1, free_device_bytes(device) // 4 // bytes_per_estimate(self.network, samples))

    def classify(
        self, node: int, alphas: Tensor, elements: Tensor, partners: Tensor, knot: float
    ) -> tuple[Tensor, Tensor]:
        """Refined distances to a knot, zero within their error, and error bounds; may raise `NeedsDenseFallback`."""
        if len(alphas) > MAX_REFINED_UNITS:
            raise NeedsDenseFallback(float(alphas.median()))
        values, bounds = self.refine(torch.full_like(elements, node), alphas, elements, partners)
        distances = values - knot
        unclear = ((distances.abs() - bounds).abs() <= AMBIGUITY_MARGIN * bounds) & (bounds > 0)
        if bool(unclear.any()):
            raise NeedsDenseFallback(float(alphas[unclear][0]))
        return distances.masked_fill(distances.abs() <= bounds, 0.0), bounds

    def require_clear_at(self, alpha: float) -> None:
        """Raise `NeedsDenseFallback` if a unit may be on a knot at this alpha, so that no segment may end there."""
        if alpha in (0.0, 1.0):
            return
        device = self.lines.starts[0].device
        alphas = torch.tensor([alpha], dtype=torch.float64, device=device)
        points, _ = self.lines.at(torch.tensor([self.line], device=device), alphas)
        values = self.network.evaluate(points, [self.network.nodes[i].inputs[0] for i in self.thresholds])
        for i, (upper, _) in self.margins.items():
            op, source = breaking_op(self.network, i), self.network.nodes[i].inputs[0]
            x = values[source].expand(PERTURBATIONS, *self.network.nodes[source].shape)
            shifts = random_signs(self.network, i, PERTURBATIONS, x).flatten(0, 1) * upper.view(x.shape[1:])
            low, high = x - shifts, x + shifts
            if bool((op.activation_pattern(low, low) != op.activation_pattern(high, high)).any()):
                raise NeedsDenseFallback(alpha)


def _propagate_magnitudes(
    network: Network,
    static_filter: StaticFilter,
    inputs: dict[int, Magnitude],
    largest: dict[int, float],  # by breaking node: the largest sampled value of its input
    stop: int,
) -> dict[int, Magnitude]:
    """Magnitudes by node before ``stop``, as the dense engine finds them; the filter learns how errors grow.

    Errors that saturated units hide at the sample points are seen only in this way.
    """
    plan, magnitudes = sweep_plan(network), dict(inputs)
    for i, node in enumerate(network.nodes[:stop]):
        if i not in plan.last_use or isinstance(node.op, Input):
            continue
        sources = [magnitudes[j] for j in node.inputs]
        if isinstance(node.op, Breaking):
            static_filter.threshold(i, network.dtype, largest[i], sources[0])
            magnitudes[i] = Magnitude(largest[i] * plan.value_gain[i], sources[0].errors * plan.error_gain[i])
        else:
            magnitudes[i] = Magnitude.after(plan, i, sources, torch.finfo(network.dtype).eps)
    return magnitudes


def _sample_points(lines: Lines, line: int) -> tuple[list[Tensor], list[Tensor]]:
    """Points of a line, (k, *in) for each input, and bounds on their errors: of each point, or of all, (1, *in)."""
    device = lines.starts[0].device
    alphas = torch.linspace(0, 1, SEGMENT_SAMPLE_POINTS, dtype=torch.float64, device=device)
    points, errors = lines.at(torch.full((SEGMENT_SAMPLE_POINTS,), line, device=device), alphas)
    return share_errors(points, errors) if is_short_line(lines, line) else (points, errors)


def _choose_kept_nodes(network: Network, first_dense_node: int) -> frozenset[int]:
    """Nodes whose values at both ends of a line are kept for the sweep: as many as fit, long sums first."""
    last_use, room = sweep_plan(network).last_use, block_bytes() // (SEGMENT_SAMPLE_POINTS * BYTES_PER_NUMBER)
    nodes = [i for i in range(first_dense_node) if i in last_use and not isinstance(network.nodes[i].op, Input)]
    kept = set[int]()
    for i in sorted(nodes, key=lambda i: -network.nodes[i].op.rounding_terms):
        size = prod(network.nodes[i].shape)
        if size <= room:
            room -= size
            kept.add(i)
    return frozenset(kept)


def _by_pixel(numbers: Tensor, map_shape: MapShape) -> Tensor:
    """Numbers (k, elements) as (k, pixels, channels)."""
    return numbers.view(len(numbers), map_shape.channels, -1).transpose(1, 2).contiguous()


@dataclass(eq=False)
class _NodeSamples:
    """Extremes over the sample points of a line at the input of one node, (elements,) each."""

    error: Tensor = field(init=False)  # largest error bound
    value: Tensor = field(init=False)  # largest absolute value
    inner_error: Tensor = field(init=False)  # smallest error bound, except at the ends of the line
    start: Tensor = field(init=False)  # error bound at the first point
    stop: Tensor = field(init=False)  # error bound at the last point

    def add(
        self,
        first: int,
        errors: Tensor,  # (k, elements)
        values: Tensor | None,  # (k, elements); None: only errors are sampled
        is_shared: bool,  # whether the errors are (1, elements), of all points
    ) -> None:
        """Add the error bounds and values at the sample points from ``first`` on."""
        last = first + len(errors)
        self.error = errors.amax(0) if first == 0 else torch.maximum(self.error, errors.amax(0))
        if values is None:
            return
        value = values.abs().amax(0)
        self.value = value if first == 0 else torch.maximum(self.value, value)
        if is_shared:
            self.inner_error = errors[0]
            return
        inner = errors[int(first == 0) : SEGMENT_SAMPLE_POINTS - 1 - first]
        if len(inner):
            self.inner_error = inner.amin(0) if first <= 1 else torch.minimum(self.inner_error, inner.amin(0))
        if first == 0:
            self.start = errors[0].clone()  # a view would keep the errors of all points
        if last == SEGMENT_SAMPLE_POINTS:
            self.stop = errors[-1].clone()


def _max_or_zero(numbers: Tensor) -> Tensor:
    """The maximum of a tensor; zero if it is empty."""
    return numbers.amax() if numbers.numel() else numbers.new_zeros(())


def _difference(numbers: Tensor, elements: Tensor, partners: Tensor, sign: float) -> Tensor:
    """One element of each row of numbers (k, n), plus ``sign`` times its partner if it has one."""
    one = numbers.gather(1, elements[:, None])[:, 0]
    other = numbers.gather(1, partners.clamp(min=0)[:, None])[:, 0]
    return one + sign * other * (partners >= 0)
