"""The choice between the dense engine and the patch engine."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..budget import MIN_MEMORY
from ..errors import ArgumentError
from ..humanize import format_bytes
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import BYTES_PER_NUMBER, MIN_PART_POINTS, sweep_plan
from ..numerics.point_errors import bytes_per_estimate
from .dense.sweep import SweepLimits, SweepPart, sweep_lines
from .layer_record import LayerRecorder
from .patches.plan import patch_plan
from .patches.segmentation import SegmentCounts
from .patches.sweep import sweep_patches

MIN_PATCH_GAIN = {"cpu": 1.5, "cuda": 1.5}  # by device: the factor of work that patches must save at least
MIN_POINT_WORK = 1e5  # multiplications per point: below, the dense engine is always fast enough
NUMBERS_PER_UNIT = 4  # that the patch engine keeps for every unit along a line: bounds on its error
MIN_SEGMENT_MEMORY_DIVISOR = 4  # segments have at least one part in so many of the memory, however large weights are
SEGMENT_COPIES = 6  # of a point: both ends of a segment and the slope there, in two layouts
MIN_LINE_WORK = {"cuda": 1e11}  # by device: multiplications per line below which patches cannot win


class EngineChoice:
    """The engine that runs, and why it was selected.

    Args:
        network: The network.
        engine: "dense", "patches" or "auto".
        limits: When to stop.
        memory: Memory budget in bytes.
        values: Whether the values of the outputs are wanted.
        is_memory_given: Whether the user has set the memory. Otherwise it is what makes sweeps fast, and no limit.
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
        recorder: LayerRecorder | None = None,
    ) -> None:
        self.recorder = recorder
        self.network, self.limits, self.memory, self.values = network, limits, memory, values
        self.is_memory_given = is_memory_given
        self.counts = SegmentCounts()
        self.uses_patches, self.reason = self._select(engine)

    def _select(self, engine: str) -> tuple[bool, str]:
        """Whether to use patches, and the reason."""
        network, device = self.network, self.network.device.type
        if engine != "auto":
            return engine == "patches", "requested"
        if not _has_feature_maps(network):
            return False, "no feature maps: a break affects every unit downstream"
        plan = patch_plan(network)
        if plan.point_cost < MIN_POINT_WORK or plan.point_cost * _count_units(network) / 2 < MIN_LINE_WORK.get(
            device, 0.0
        ):
            return False, "a small network: points are cheap to evaluate"
        if self._exceeds_memory(patches=True):
            return False, "patches need more memory"
        if plan.gain < MIN_PATCH_GAIN.get(device, 1.5):
            return False, f"receptive fields are so large that patches save only a factor of {plan.gain:.2g}"
        return True, f"a break costs 1/{plan.gain:.2g} of a point"

    def _least_memory(self, patches: bool) -> int:
        """Bytes that an engine needs at least: for a part of two points, and an error estimate at one."""
        plan = sweep_plan(self.network)
        needed = MIN_PART_POINTS * plan.bytes_per_point + bytes_per_estimate(self.network)
        if not patches:
            return needed
        return (
            needed + NUMBERS_PER_UNIT * BYTES_PER_NUMBER * _count_units(self.network) + SEGMENT_COPIES * plan.bytes_live
        )

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
        if not self.uses_patches:
            return sweep_lines(self.network, lines, self.limits, recorder=self.recorder)
        kept = patch_plan(self.network).weight_bytes if self.is_memory_given else 0
        return sweep_patches(
            self.network,
            lines,
            self.limits,
            memory=max(self.memory - kept, self.memory // MIN_SEGMENT_MEMORY_DIVISOR),
            values=self.values,
            float32_network=float32_network,
            counts=self.counts,
            recorder=self.recorder,
        )

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
