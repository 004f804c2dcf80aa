"""The floating-point filter: how near to a knot a value must be before its error is estimated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..network.graph import Network
from ..tolerances import (
    ERROR_SAMPLES,
    FILTER_WIDTH,
    FUSED_ROUNDING_FACTOR,
    MIN_EXPECTED_HITS,
    SAMPLE_SAFETY,
    SMALLEST_SUBNORMAL,
)
from .plan import SweepPlan, sweep_plan
from .point_errors import PointErrors
from .single_precision import ROUNDOFF_RATIO, are_ordinary_errors, is_ordinary, single_precision


@dataclass(frozen=True)
class Magnitude:
    """Worst-case bounds on the values of a tensor and on their errors."""

    values: float  # before any cancellation
    errors: float

    def at_least(self, other: Magnitude) -> Magnitude:
        """The larger of both bounds."""
        return Magnitude(max(self.values, other.values), max(self.errors, other.errors))

    @staticmethod
    def after(plan: SweepPlan, i: int, inputs: list[Magnitude], eps: float) -> Magnitude:
        """The bounds on the output of node ``i``, given those on its inputs."""
        values = plan.value_gain[i] * max(m.values for m in inputs) + plan.offset[i]
        return Magnitude(values, plan.error_gain[i] * max(m.errors for m in inputs) + eps * values)


@dataclass
class StaticFilter:
    """Thresholds from worst-case bounds, tightened by errors that were estimated at a few sample points."""

    sampled_errors: dict[int, float] = field(default_factory=dict)  # by breaking node: largest error at its input
    growth: float = 1.0  # the largest ratio of rounding to sampled error so far, over all nodes
    sample: Callable[[], dict[int, float]] | None = None  # computes `sampled_errors` on first need
    pending: dict[int, float] = field(default_factory=dict)  # by node: rounding seen before the samples were needed

    def threshold(self, node: int, dtype: torch.dtype, largest: float, bound: Magnitude, count: int = 0) -> float:
        """Distance from a knot beyond which a value of the node's input is unambiguous.

        No samples are taken as long as none of ``count`` values is likely to lie within the worst-case threshold.
        """
        width, eps = FILTER_WIDTH.get(dtype, 4096.0), torch.finfo(dtype).eps
        expected, rounding = width * bound.errors, eps * bound.values
        if self.sample is not None:
            if 0 < count * expected < MIN_EXPECTED_HITS * largest:
                self.pending[node] = rounding
                return width * eps * largest + expected + SMALLEST_SUBNORMAL * 64
            self.sampled_errors, self.sample = self.sample(), None
            for earlier, seen in self.pending.items():
                self._update_growth(earlier, seen)
        if node in self.sampled_errors:
            self._update_growth(node, rounding)
            expected = min(expected, SAMPLE_SAFETY * self.sampled_errors[node] * self.growth)
        return width * eps * largest + expected + SMALLEST_SUBNORMAL * 64

    def _update_growth(self, node: int, rounding: float) -> None:
        sampled = self.sampled_errors[node]
        self.growth = max(self.growth, rounding / sampled if sampled > 0 else math.inf if rounding > 0 else 1.0)


def sample_errors(
    network: Network, points: list[Tensor], errors: list[Tensor], samples: int = ERROR_SAMPLES
) -> dict[int, float]:
    """By breaking node: the largest error bound at its input; for the arguments see `PointErrors`."""
    single = single_precision(network)
    if single is not None and all(map(is_ordinary, points)):
        in_single = [p.to(torch.float32) for p in points]
        scaled = [(e * ROUNDOFF_RATIO).to(torch.float32) for e in errors]
        largest = largest_errors(single, in_single, scaled, samples, is_guarded=False)
        if are_ordinary_errors(largest):
            return {i: error * FUSED_ROUNDING_FACTOR / ROUNDOFF_RATIO for i, error in largest.items()}
    return largest_errors(network, points, errors, samples)


def largest_errors(
    network: Network, points: list[Tensor], errors: list[Tensor], samples: int, is_guarded: bool = True
) -> dict[int, float]:
    """`sample_errors` in the precision of the network."""
    estimate = PointErrors(network, points, errors, samples, is_guarded=is_guarded)
    last_use = sweep_plan(network).last_use
    largest = dict[int, float]()
    for i in network.breaking_nodes:
        if i in last_use:
            bounds = estimate.advance_to(network.nodes[i].inputs[0])
            largest[i] = float(bounds.max()) if bounds.numel() else 0.0
    return largest
