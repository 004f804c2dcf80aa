"""How large values and their errors can be: only to see where a closer look is due."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..network.graph import Network
from .plan import Plan, plan
from .roundoff_probes import TINY, Walk

FILTER = {torch.float64: 4096.0, torch.float32: 64.0}  # how much wider than expected errors the first look is
SAMPLES = 16  # points that tell how large errors usually are
SPREAD = 1024.0  # how much larger than theirs an error may be
RARE = 0.01  # values near a knot that are too few to look for


@dataclass(frozen=True)
class Size:
    """How large the values of a tensor and their errors can be at worst."""

    values: float  # what went into them, before anything cancelled
    errors: float

    @staticmethod
    def after(facts: Plan, i: int, inputs: list[Size], eps: float) -> Size:
        """The size of a node's output, given those of its inputs."""
        values = facts.reach[i] * max(s.values for s in inputs) + facts.offset[i]
        return Size(values, facts.gain[i] * max(s.errors for s in inputs) + eps * values)


@dataclass
class Usual:
    """Errors as a few points have them, and how much larger rounding may be elsewhere."""

    errors: dict[int, float] = field(default_factory=dict)  # by breaking node, at its input
    surge: float = 1.0  # the largest rounding anywhere, to the errors that are usual at its node; over all nodes so far
    look: Callable[[], dict[int, float]] | None = None  # finds the errors, once they are needed
    sizes: dict[int, float] = field(default_factory=dict)  # by node: rounding seen before they were needed

    def doubtful(self, node: int, dtype: torch.dtype, largest: float, size: Size, count: int = 0) -> float:
        """How near to a knot a value of a node's input may be in doubt; ``size`` bounds what went into it.

        Where none of ``count`` values is likely to be that near even at worst, a few points are not looked at.
        """
        wide, eps = FILTER.get(dtype, 4096.0), torch.finfo(dtype).eps
        expected, rounding = wide * size.errors, eps * size.values
        if self.look is not None:
            if 0 < count * expected < RARE * largest:
                self.sizes[node] = rounding
                return wide * eps * largest + expected + TINY * 64
            self.errors, self.look = self.look(), None
            for earlier, seen in self.sizes.items():
                self._swell(earlier, seen)
        if node in self.errors:
            self._swell(node, rounding)
            expected = min(expected, SPREAD * self.errors[node] * self.surge)
        return wide * eps * largest + expected + TINY * 64

    def _swell(self, node: int, rounding: float) -> None:
        usual = self.errors[node]
        self.surge = max(self.surge, rounding / usual if usual > 0 else math.inf if rounding > 0 else 1.0)


def usual_errors(network: Network, points: list[Tensor], errors: list[Tensor]) -> dict[int, float]:
    """The largest estimated error, over some points, at the input of every breaking node."""
    walk, last, found = Walk(network, points, errors), plan(network).last, dict[int, float]()
    for i in network.breaking:
        if i in last:
            size = walk.to(network.nodes[i].inputs[0])
            found[i] = float(size.max()) if size.numel() else 0.0
    return found
