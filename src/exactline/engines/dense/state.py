"""Where a sweep stands: sorted points of many lines, and what every live tensor is at each of them.

The tensors may be on a GPU. What is known of each point is where it was written last: in NumPy arrays, for what is many
small steps, or on the device, as long as nothing is in doubt there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ...arrays import Bools, Floats, Ints
from ...lines import Lines
from ...numerics.roundoff_probes import RoundoffProbes
from ...numerics.static_filter import Magnitude, StaticFilter


@dataclass(frozen=True)
class PatternRecord:
    """How a breaking node changed the points, kept where gradients are wanted afterwards."""

    source_point: Tensor  # (n,) the point, before the node, that each point is or follows
    points_before: int  # how many points there were before the node
    has_new_points: bool  # whether the points are others than before
    pattern: Tensor  # (n - 1, ...) the branches on the piece that begins at each point
    other_side: Tensor | None  # the same where every unit that sits on a knot along a piece is on its other side


@dataclass(frozen=True)
class DevicePoints:
    """What is known of each point, on a device; nobody writes it over."""

    marks: Tensor  # (n, 8) as `State.marks`
    spots: Tensor  # (n, 3) as `State.spots`
    gaps: Tensor  # (k,) the last points of all lines but one


@dataclass
class SweepState:
    """All points at hand between two nodes; the points of a line stand together, in order of alpha."""

    lines: Lines
    node: int  # the next to evaluate
    facts: Ints | Tensor  # (n, 8) whole numbers of each point, where they were written last: read `marks` or `rows`
    places: Floats | Tensor  # (n, 3) numbers of each point, likewise: read `spots` or `rows`
    live: dict[int, Tensor] = field(default_factory=dict)  # (n, *shape) each
    sizes: dict[int, Magnitude] = field(default_factory=dict)  # of every live tensor
    filter: StaticFilter = field(default_factory=StaticFilter)
    probes: RoundoffProbes | None = None  # errors at all points, once most of them are in doubt
    records_patterns: bool = False  # whether steps are kept
    record: PatternRecord | None = None  # the last one
    is_unambiguous: bool = False  # whether no unit of the node at hand sits on a knot
    continues: bool = False  # whether the first point was also the last of the part before
    shared_crossings: int = 0  # the crossings that were counted there before the cut
    line_ends: Tensor | None = None  # (k,) the last points of all lines but one, while facts are on a device
    magnitudes: dict[int, float] = field(default_factory=dict)  # of live tensors that were looked at: the largest size
    first_on_knot: dict[int, Tensor] = field(default_factory=dict)  # by node: units on a knot at the first point,
    last_on_knot: dict[int, Tensor] = field(
        default_factory=dict
    )  # and at the last, and the sides they go to or come from

    @property
    def marks(self) -> Ints:
        """(n, 8) whole numbers of each point, to read and to write on the host."""
        self._move_to_host()
        return self.facts  # pyright: ignore[reportReturnType]

    @property
    def spots(self) -> Floats:
        """(n, 3) numbers of each point, to read and to write on the host."""
        self._move_to_host()
        return self.places  # pyright: ignore[reportReturnType]

    @property
    def device_points(self) -> DevicePoints:
        """The same on the device of the values, to read; from now on they are there."""
        if self.line_ends is None:
            self.line_ends = to_device(self.device, np.flatnonzero(~self.same_line))
            self.facts, self.places = self.point_tensors()
        return DevicePoints(*self.point_tensors(), self.line_ends)

    def point_tensors(self) -> tuple[Tensor, Tensor]:
        """Marks and spots as tensors, for one look at them."""
        device = self.lines.starts[0].device
        facts, places = (a if isinstance(a, Tensor) else to_device(device, a) for a in (self.facts, self.places))
        return facts, places

    def _move_to_host(self) -> None:
        if isinstance(self.facts, Tensor) or isinstance(self.places, Tensor):
            # a copy even on a processor: what is on a device is never written over, so that states may share it
            facts, places = (t.to("cpu", copy=True).numpy() for t in self.point_tensors())
            self.facts, self.places, self.line_ends = facts, places, None

    @property
    def line(self) -> Ints:
        """(n,) which line a point is on."""
        return self.marks[:, 0]

    @property
    def ambiguous(self) -> Ints:
        """(n,) units not told from a knot on the piece that starts here."""
        return self.marks[:, 1]

    @property
    def origins(self) -> Ints:
        """(n, 5) node or -1, unit, count, element, partner."""
        return self.marks[:, 2:7]

    @property
    def has_sharp_error(self) -> Ints:
        """(n,) whether the fuzz of a point is as small as it can be told."""
        return self.marks[:, 7]

    @property
    def alphas(self) -> Floats:
        """(n,) positions on the line."""
        return self.spots[:, 0]

    @property
    def slopes(self) -> Floats:
        """(n,) how fast the crossing that bore a point changes with alpha."""
        return self.spots[:, 1]

    @property
    def alpha_errors(self) -> Floats:
        """(n,) a radius in alpha around a break, generous unless it is sharp."""
        return self.spots[:, 2]

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.live.values())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.live.values())).device

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps

    @property
    def same_line(self) -> Bools:
        """(n - 1,) whether a point and the next are on one line."""
        return self.line[:-1] == self.line[1:]

    def __len__(self) -> int:
        return len(self.places)

    def line_points(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Input points at some rows, and the rounding error they carry; each (rows, *in)."""
        marks, spots = self.point_tensors()
        return self.lines.at(marks[rows, 0], spots[rows, 0])

    def points_at(self, line: Ints, alphas: Floats) -> tuple[list[Tensor], list[Tensor]]:
        """Input points anywhere on the lines, and the rounding error they carry; each (k, *in)."""
        device = self.lines.starts[0].device
        return self.lines.at(to_device(device, line), to_device(device, alphas))


def start_state(lines: Lines, first: int, last: int, places: tuple[int, ...]) -> SweepState:
    """Both ends of the lines ``first`` to ``last``, before the first node."""
    line = np.arange(first, last).repeat(2)
    ends = np.tile([0.0, 1.0], last - first)
    live = {
        place: torch.stack([start[first:last], end[first:last]], 1).flatten(0, 1)
        for place, start, end in zip(places, lines.starts, lines.ends, strict=True)
    }
    return SweepState(lines, 0, *new_points(line, ends), live, input_magnitudes(live))


def input_magnitudes(live: dict[int, Tensor]) -> dict[int, Magnitude]:
    """Sizes of the inputs themselves."""
    largest = {i: float(x.abs().max()) if x.numel() else 0.0 for i, x in live.items()}
    return {i: Magnitude(size, size * torch.finfo(live[i].dtype).eps) for i, size in largest.items()}


def new_points(line: Ints, alphas: Floats) -> tuple[Ints, Floats]:
    """Marks and spots of points that no crossing bore."""
    marks = np.zeros((len(line), 8), dtype=np.int64)
    marks[:, 0] = line
    marks[:, 2] = marks[:, 6] = -1
    spots = np.zeros((len(line), 3))
    spots[:, 0] = alphas
    return marks, spots


def to_device(device: torch.device, array: Ints | Floats | Bools) -> Tensor:
    """An array as a tensor; on the CPU they share their memory.

    Nobody waits for a GPU: what is not pinned is copied aside before this returns.
    """
    return torch.from_numpy(array).to(device, non_blocking=device.type == "cuda")
