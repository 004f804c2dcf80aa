"""Which engine sweeps a network: points everywhere, or changes of slope where they are small."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from .dense.sweep import SweepLimits, SweepPart, sweep_lines
from .patches.plan import patch_plan
from .patches.segmentation import SegmentCounts
from .patches.sweep import sweep_patches

MIN_PATCH_GAIN = {"cpu": 1.5, "cuda": 2.5}  # how much less work patches must be before they are taken
MIN_POINT_WORK = 1e5  # multiplications for one point: below, points cost hardly more than asking
MIN_LINE_WORK = {"cuda": 1e11}  # for the points of one line: below, a device has done them before patches are begun


class EngineChoice:
    """The engine that was asked for, and the one that is taken, and why."""

    def __init__(self, network: Network, engine: str, limits: SweepLimits, memory: int, values: bool) -> None:
        self.network, self.limits, self.memory, self.values = network, limits, memory, values
        self.counts = SegmentCounts()
        self.uses_patches, self.reason = self._select(engine)

    def _select(self, engine: str) -> tuple[bool, str]:
        network, kind = self.network, self.network.device.type
        if engine != "auto":
            return engine == "patches", "asked for"
        if not _has_maps(network):
            return False, "no maps: a break touches everything"
        path = patch_plan(network)
        if path.point_cost < MIN_POINT_WORK or path.point_cost * _count_units(network) / 2 < MIN_LINE_WORK.get(
            kind, 0.0
        ):
            return False, "a small network: a point costs next to nothing"
        if path.gain < MIN_PATCH_GAIN.get(kind, 1.5):
            return False, f"breaks reach so far that patches save a factor of {path.gain:.2g} only"
        return True, f"a break costs 1/{path.gain:.2g} of a point"

    def sweep(self, lines: Lines, light: Network | None) -> Iterator[SweepPart]:
        """The parts of all lines, in order."""
        if not self.uses_patches:
            return sweep_lines(self.network, lines, self.limits)
        return sweep_patches(self.network, lines, self.limits, self.memory, self.values, light, self.counts)

    @property
    def description(self) -> str:
        """What ran and why, in a line."""
        if not self.uses_patches:
            return f"dense ({self.reason})"
        some = f", {self.counts.dense} of them by points" if self.counts.dense else ""
        total = self.counts.patches + self.counts.dense
        return f"patches ({self.reason}; {total} {'stretch' if total == 1 else 'stretches'}{some})"


def _count_units(network: Network) -> int:
    """Of all breaking nodes; about half as many breaks has a line through most of the space."""
    last = sweep_plan(network).last_use
    return sum(prod(network.nodes[i].shape) for i in network.breaking if i in last)


def _has_maps(network: Network) -> bool:
    """Whether some node that breaks reads more than a vector."""
    last = sweep_plan(network).last_use
    return any(len(network.nodes[network.nodes[i].inputs[0]].shape) > 1 for i in network.breaking if i in last)
