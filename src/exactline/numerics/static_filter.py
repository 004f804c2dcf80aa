"""How large values and their errors can be: only to see where a closer look is due."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..network.graph import Network
from .plan import SweepPlan, sweep_plan
from .roundoff_probes import SMALLEST_SUBNORMAL, RoundoffProbes

FILTER_WIDTH = {torch.float64: 4096.0, torch.float32: 64.0}  # how much wider than expected errors the first look is
SAMPLE_POINTS = 16  # points that tell how large errors usually are
SAMPLE_SAFETY = 1024.0  # how much larger than theirs an error may be
MIN_EXPECTED_HITS = 0.01  # values near a knot that are too few to look for


@dataclass(frozen=True)
class Magnitude:
    """How large the values of a tensor and their errors can be at worst."""

    values: float  # what went into them, before anything cancelled
    errors: float

    @staticmethod
    def after(facts: SweepPlan, i: int, inputs: list[Magnitude], eps: float) -> Magnitude:
        """The size of a node's output, given those of its inputs."""
        values = facts.value_gain[i] * max(s.values for s in inputs) + facts.offset[i]
        return Magnitude(values, facts.error_gain[i] * max(s.errors for s in inputs) + eps * values)


@dataclass
class StaticFilter:
    """Errors as a few points have them, and how much larger rounding may be elsewhere."""

    sampled_errors: dict[int, float] = field(default_factory=dict)  # by breaking node, at its input
    growth: float = (
        1.0  # the largest rounding anywhere, to the errors that are usual at its node; over all nodes so far
    )
    sample: Callable[[], dict[int, float]] | None = None  # finds the errors, once they are needed
    pending: dict[int, float] = field(default_factory=dict)  # by node: rounding seen before they were needed

    def threshold(self, node: int, dtype: torch.dtype, largest: float, size: Magnitude, count: int = 0) -> float:
        """How near to a knot a value of a node's input may be in doubt; ``size`` bounds what went into it.

        Where none of ``count`` values is likely to be that near even at worst, a few points are not looked at.
        """
        wide, eps = FILTER_WIDTH.get(dtype, 4096.0), torch.finfo(dtype).eps
        expected, rounding = wide * size.errors, eps * size.values
        if self.sample is not None:
            if 0 < count * expected < MIN_EXPECTED_HITS * largest:
                self.pending[node] = rounding
                return wide * eps * largest + expected + SMALLEST_SUBNORMAL * 64
            self.sampled_errors, self.sample = self.sample(), None
            for earlier, seen in self.pending.items():
                self._update_growth(earlier, seen)
        if node in self.sampled_errors:
            self._update_growth(node, rounding)
            expected = min(expected, SAMPLE_SAFETY * self.sampled_errors[node] * self.growth)
        return wide * eps * largest + expected + SMALLEST_SUBNORMAL * 64

    def _update_growth(self, node: int, rounding: float) -> None:
        usual = self.sampled_errors[node]
        self.growth = max(self.growth, rounding / usual if usual > 0 else math.inf if rounding > 0 else 1.0)


def sample_errors(network: Network, points: list[Tensor], errors: list[Tensor]) -> dict[int, float]:
    """The largest estimated error, over some points, at the input of every breaking node."""
    walk, last, found = RoundoffProbes(network, points, errors), sweep_plan(network).last_use, dict[int, float]()
    for i in network.breaking:
        if i in last:
            size = walk.advance_to(network.nodes[i].inputs[0])
            found[i] = float(size.max()) if size.numel() else 0.0
    return found
