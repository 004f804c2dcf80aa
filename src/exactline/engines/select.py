"""Which engine sweeps a network: points everywhere, or changes of slope where they are small."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..errors import ArgumentError
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import plan
from .dense.sweep import Limits, Part, sweep_lines
from .patches.plan import route
from .patches.segmentation import Tally
from .patches.sweep import sweep_locally

ENGINES = ("auto", "dense", "local")
GAIN = {"cpu": 1.5, "cuda": 2.5}  # how much less work patches must be before they are taken
LIGHT = 1e5  # multiplications for one point: below, points cost hardly more than asking
SHORT = {"cuda": 1e11}  # for the points of one line: below, a device has done them before patches are begun


class Choice:
    """The engine that was asked for, and the one that is taken, and why."""

    def __init__(self, network: Network, engine: str, limits: Limits, memory: int, values: bool) -> None:
        if engine not in ENGINES:
            names = ", ".join(repr(name) for name in ENGINES)
            raise ArgumentError(
                f"There is no engine {engine!r}.",
                where="argument engine",
                hint=f"Give one of {names}, or leave it out.",
            )
        self.network, self.limits, self.memory, self.values = network, limits, memory, values
        self.tally = Tally()
        self.local, self.why = self._decided(engine)

    def _decided(self, engine: str) -> tuple[bool, str]:
        network, kind = self.network, self.network.device.type
        if engine != "auto":
            return engine == "local", "asked for"
        if not _has_maps(network):
            return False, "no maps: a break touches everything"
        path = route(network)
        if path.dense < LIGHT or path.dense * _units(network) / 2 < SHORT.get(kind, 0.0):
            return False, "a small network: a point costs next to nothing"
        if path.gain < GAIN.get(kind, 1.5):
            return False, f"breaks reach so far that patches save a factor of {path.gain:.2g} only"
        return True, f"a break costs 1/{path.gain:.2g} of a point"

    def sweep(self, lines: Lines, light: Network | None) -> Iterator[Part]:
        """The parts of all lines, in order."""
        if not self.local:
            return sweep_lines(self.network, lines, self.limits)
        return sweep_locally(self.network, lines, self.limits, self.memory, self.values, light, self.tally)

    @property
    def told(self) -> str:
        """What ran and why, in a line."""
        if not self.local:
            return f"dense ({self.why})"
        some = f", {self.tally.dense} of them by points" if self.tally.dense else ""
        total = self.tally.local + self.tally.dense
        return f"local ({self.why}; {total} {'stretch' if total == 1 else 'stretches'}{some})"


def _units(network: Network) -> int:
    """Of all breaking nodes; about half as many breaks has a line through most of the space."""
    last = plan(network).last
    return sum(prod(network.nodes[i].shape) for i in network.breaking if i in last)


def _has_maps(network: Network) -> bool:
    """Whether some node that breaks reads more than a vector."""
    last = plan(network).last
    return any(len(network.nodes[network.nodes[i].inputs[0]].shape) > 1 for i in network.breaking if i in last)
