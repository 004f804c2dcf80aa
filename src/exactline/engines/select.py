"""The choice between the dense engine and the patch engine.

A break costs less in the patch engine, but a line costs more before its first break is found. So lines start in the
dense engine, and as soon as they turn out to have more breaks than patches need to pay, the patch engine starts anew.
Most breaks of a long line show at the first breaking nodes, before much is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from ..budget import MIN_MEMORY
from ..errors import ArgumentError
from ..humanize import format_bytes
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import BYTES_PER_NUMBER, MIN_PART_POINTS, sweep_plan
from ..numerics.point_errors import bytes_per_estimate
from .dense.sweep import SweepLimits, SweepPart, TooManyBreaks, sweep_lines
from .layer_record import LayerRecorder
from .patches.plan import PatchPlan, patch_plan
from .patches.segmentation import SegmentCounts
from .patches.sweep import sweep_patches

# Where the choice does not depend on the breaks of a line:
MIN_PATCH_GAIN = {"cpu": 1.5, "cuda": 1.5}  # by device: the factor of work that patches must save at least
MIN_POINT_WORK = 1e5  # multiplications per point: below, the dense engine is always fast enough
MIN_LINE_WORK = {"cuda": 1e11}  # by device: multiplications per line below which patches cannot win
NUMBERS_PER_UNIT = 4  # that the patch engine keeps for every unit along a line: bounds on its error
MIN_SEGMENT_MEMORY_DIVISOR = 6  # segments have at least one part in so many of the memory, however large weights are
SEGMENT_SHARE = 0.5  # of the memory that weights and errors leave: the rest is room for what the allocator keeps
SEGMENT_COPIES = 6  # of a point: both ends of a segment and the slope there, in two layouts


class EngineChoice:
    """The engine that runs, and why it was selected.

    Args:
        network: The network.
        engine: "dense", "patches" or "auto".
        limits: When to stop.
        memory: Memory budget in bytes.
        values: Whether the values of the outputs are wanted.
        is_memory_given: Whether the user has set the memory. Otherwise it is what makes sweeps fast, and no limit.
        in_advance: Whether the choice must not depend on the breaks of a line.
        recorder: Collects the units that change their branch; None if they are not wanted.
    """

    def __init__(
        self,
        network: Network,
        engine: str,
        limits: SweepLimits,
        memory: int,
        *,
        values: bool,
        is_memory_given: bool = False,
        in_advance: bool = False,
        recorder: LayerRecorder | None = None,
    ) -> None:
        self.recorder = recorder
        self.network, self.limits, self.memory, self.values = network, limits, memory, values
        self.is_memory_given, self.in_advance = is_memory_given, in_advance
        self.counts = SegmentCounts()
        # By node: points per line from which patches are faster, if that decides
        self.max_dense_points: dict[int, float] | None = None
        self.uses_patches, self.reason = self._select(engine)

    def _select(self, engine: str) -> tuple[bool, str]:
        """Whether to use patches, and the reason."""
        network, device = self.network, self.network.device.type
        if engine != "auto":
            return engine == "patches", "requested"
        if not _has_feature_maps(network):
            return False, "no feature maps: a break affects every unit downstream"
        if self._exceeds_memory(patches=True):
            return False, "patches need more memory"
        plan = patch_plan(network)
        if self.in_advance or device != "cpu" or network.dtype != torch.float64:
            return self._select_in_advance(plan)
        points = min(plan.least_points.values())
        if points > min(_count_units(network), _infinite_if_none(self.limits.max_breaks)):
            return False, f"patches save no time below {points:,.0f} breaks"
        self.max_dense_points = plan.least_points
        return True, f"many breaks, each of which costs 1/{plan.gain:.2g} of a point"

    def _select_in_advance(self, plan: PatchPlan) -> tuple[bool, str]:
        """Whether to use patches, and the reason, whatever the breaks of a line."""
        line_work = plan.point_cost * _count_units(self.network) / 2
        if plan.point_cost < MIN_POINT_WORK or line_work < MIN_LINE_WORK.get(self.network.device.type, 0.0):
            return False, "a small network: points are cheap to evaluate"
        if plan.gain < MIN_PATCH_GAIN.get(self.network.device.type, 1.5):
            return False, f"receptive fields are so large that patches save only a factor of {plan.gain:.2g}"
        return True, f"a break costs 1/{plan.gain:.2g} of a point"

    def _least_memory(self, patches: bool) -> int:
        """Bytes that an engine needs at least: for a part of two points, and an error estimate at one."""
        plan = sweep_plan(self.network)
        needed = MIN_PART_POINTS * plan.bytes_per_point + bytes_per_estimate(self.network)
        if not patches:
            return needed
        return needed + self._bytes_per_line() + SEGMENT_COPIES * plan.bytes_live

    def _bytes_per_line(self) -> int:
        """Bytes that the patch engine holds along a whole line."""
        return NUMBERS_PER_UNIT * BYTES_PER_NUMBER * _count_units(self.network)

    def _exceeds_memory(self, patches: bool) -> bool:
        """Whether an engine needs more memory than the user has allowed."""
        return self.is_memory_given and self._least_memory(patches) > max(self.memory, MIN_MEMORY)

    def require_memory(self) -> None:
        """Raise ArgumentError if the memory is too little for the engine."""
        if self._exceeds_memory(self.uses_patches):
            needed, engine = self._least_memory(self.uses_patches), "patch" if self.uses_patches else "dense"
            raise ArgumentError(
                f"The memory of {format_bytes(self.memory)} is too little for this network.",
                where="argument memory",
                hint=f"The {engine} engine needs {format_bytes(needed)}; give more, or leave memory out.",
            )

    def sweep(self, lines: Lines, float32_network: Network | None) -> Iterator[SweepPart]:
        """Sweep all lines with the selected engine; yields finished parts in order.

        Args:
            lines: The lines, on the network's device.
            float32_network: The network in float32, for patches in single precision; None for float64.
        """
        if self.max_dense_points is not None:
            return self._sweep_densely_first(lines, self.max_dense_points)
        return self._sweep_by_patches(lines, float32_network) if self.uses_patches else self._sweep_densely(lines)

    def _sweep_densely(self, lines: Lines) -> Iterator[SweepPart]:
        return sweep_lines(self.network, lines, self.limits, recorder=self.recorder)

    def _sweep_by_patches(self, lines: Lines, float32_network: Network | None = None) -> Iterator[SweepPart]:
        memory = self.memory
        if self.is_memory_given:
            left = memory - patch_plan(self.network).weight_bytes - self._bytes_per_line()
            memory = max(int(SEGMENT_SHARE * left), memory // MIN_SEGMENT_MEMORY_DIVISOR)
        return sweep_patches(
            self.network,
            lines,
            self.limits,
            memory=memory,
            values=self.values,
            float32_network=float32_network,
            counts=self.counts,
            recorder=self.recorder,
            releases_memory=self.is_memory_given,
        )

    def _sweep_densely_first(self, lines: Lines, max_points: dict[int, float]) -> Iterator[SweepPart]:
        """Sweep densely, or by patches if the first lines have more points on average than ``max_points``."""
        self.limits.max_density, of_patches = max_points, self.reason
        self.uses_patches, self.reason = False, "too few breaks for patches to pay"
        try:
            for part in self._sweep_densely(lines):
                self.limits.max_density = {}
                yield part
            return
        except TooManyBreaks:
            self.limits.max_density = {}
            self.uses_patches, self.reason = True, of_patches
            if self.recorder is not None:
                self.recorder.clear()
        yield from self._sweep_by_patches(lines)

    @property
    def description(self) -> str:
        """The engine that ran and why, in one line."""
        if not self.uses_patches:
            return f"dense ({self.reason})"
        total = self.counts.patches + self.counts.dense
        dense = f", {self.counts.dense} of them dense" if self.counts.dense else ""
        return f"patches ({self.reason}; {total} {'segment' if total == 1 else 'segments'}{dense})"


def _count_units(network: Network) -> int:
    """Number of units of all breaking nodes; a long line has about half as many breaks."""
    last_use = sweep_plan(network).last_use
    return sum(prod(network.nodes[i].shape) for i in network.breaking_nodes if i in last_use)


def _has_feature_maps(network: Network) -> bool:
    """Whether some breaking node reads more than a vector."""
    last_use = sweep_plan(network).last_use
    return any(
        len(network.nodes[network.nodes[i].inputs[0]].shape) > 1 for i in network.breaking_nodes if i in last_use
    )


def _infinite_if_none(number: int | None) -> float:
    return float("inf") if number is None else number
