"""Advice along lines around the ownship: exact intervals, samples, and the intervals that the samples missed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...api import restrict_many
from ...results.restrictions import Restrictions
from ..record import StudyProgress
from .advisor import ADVISORIES, Advisor, load_advisor
from .geometry import EncounterGeometry, Track, TrackKind


@dataclass(frozen=True)
class AdviceInterval:
    """An interval of a line with constant advice; its ends are exact."""

    start: float  # alpha
    stop: float  # alpha
    label: int  # index into ADVISORIES
    margin: float  # the largest lead of the advice over the second best, in the network's units of cost
    tied: tuple[int, ...]  # advisories with equal costs on the whole interval, this one included; usually empty

    @property
    def advisory(self) -> str:
        """The name of the advisory."""
        return ADVISORIES[self.label].name

    @property
    def tied_names(self) -> str:
        """The names of the tied advisories, joined by equals signs."""
        return " = ".join(ADVISORIES[i].name for i in self.tied)

    @property
    def width(self) -> float:
        """Width in alpha."""
        return self.stop - self.start


@dataclass(frozen=True)
class LineAdvice:
    """The advice along one track: exact intervals and samples."""

    track: Track
    breaks: int  # of the network on the line, both ends counted
    intervals: tuple[AdviceInterval, ...]
    samples: tuple[tuple[float, int], ...]  # alpha and advisory of each sample


@dataclass(frozen=True)
class MissedInterval:
    """An interval that is narrower than the spacing of the samples and contains none of them."""

    line: LineAdvice
    interval: AdviceInterval
    before: str  # the advisory of the interval before it; empty at the start of the line
    after: str  # the advisory of the interval after it; empty at the end of the line
    unseen: bool  # whether no sample on the whole line has its advisory
    off_grid: bool  # whether none of the four grid samples around its middle has its advisory

    @property
    def length_feet(self) -> float:
        """Length of the interval along its ray or arc."""
        return self.line.track.length_feet * self.interval.width


@dataclass(frozen=True, eq=False)
class LineStudy:
    """The intervals of every line, the samples, and the intervals that the samples missed."""

    geometry: EncounterGeometry
    advisor: Advisor
    lines: tuple[LineAdvice, ...]
    grid: Tensor  # (n, 2) x and y of the grid samples
    grid_labels: Tensor  # (n,) their advisories
    missed: tuple[MissedInterval, ...]
    seconds: dict[str, float]  # by step: loading, sweep, decisions, samples

    def lines_of(self, *kinds: TrackKind) -> list[LineAdvice]:
        """Return the lines of the given kinds."""
        return [line for line in self.lines if line.track.kind in kinds]

    def break_statistics(self, kind: TrackKind) -> tuple[float, int, int]:
        """Return the mean, smallest and largest number of breaks per line, both ends counted."""
        counts = [line.breaks for line in self.lines_of(kind)]
        return sum(counts) / max(len(counts), 1), min(counts, default=0), max(counts, default=0)


def run(
    network: Any = None,
    geometry: EncounterGeometry | None = None,
    *,
    normalize: bool | None = None,
    progress: StudyProgress | None = None,
) -> LineStudy:
    """Study a collision-avoidance network along lines around the ownship.

    Args:
        network: A file (.nnet, .onnx), a module or a Network from (rho, theta, psi, v_own, v_int) to five costs, or an
            `Advisor`; None for the bundled network.
        geometry: The encounter and its lines; the paper's by default.
        normalize: Whether to normalize the inputs first, see `exactline.paper.acas.advisor.load_advisor`.
        progress: Called with the share of the work done and a description of the current step.

    >>> from exactline.paper.acas.geometry import EncounterGeometry
    >>> study = run(geometry=EncounterGeometry(ray_count=2, circle_count=2))
    >>> [line.track.kind for line in study.lines]
    ['single distance', 'single theta', 'distance', 'distance', 'circle']

    Raises ArgumentError for a network of another shape, FileError for a file that cannot be read.
    """
    geometry = EncounterGeometry() if geometry is None else geometry
    report = progress or (lambda share, step: None)
    timer = _LapTimer()
    report(0.0, "reading the network")
    advisor = network if isinstance(network, Advisor) else load_advisor(network, normalize=normalize)
    timer.lap("loading")
    tracks = geometry.tracks()
    restrictions = restrict_many(
        advisor.network,
        geometry.to_inputs([track.start for track in tracks]),
        geometry.to_inputs([track.end for track in tracks]),
        progress=lambda share, breaks: report(0.6 * share, f"{breaks:,} breaks"),
    )
    timer.lap("sweep")
    report(0.6, "decisions")
    intervals = _find_intervals(restrictions)
    timer.lap("decisions")
    report(0.8, "samples")
    samples = _sample_advice(advisor, geometry, tracks)
    grid = geometry.grid()
    polar = torch.stack([torch.hypot(grid[:, 0], grid[:, 1]), torch.atan2(grid[:, 1], grid[:, 0])], 1)
    labels = advisor.advise(geometry.to_inputs(polar))
    timer.lap("samples")
    counts = (restrictions.offsets[1:] - restrictions.offsets[:-1]).tolist()
    lines = tuple(map(LineAdvice, tracks, counts, intervals, samples))
    report(1.0, "done")
    return LineStudy(
        geometry=geometry,
        advisor=advisor,
        lines=lines,
        grid=grid,
        grid_labels=labels,
        missed=_find_missed(geometry, lines, labels),
        seconds=timer.laps,
    )


class _LapTimer:
    """The seconds that each step takes."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.began = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.began = now - self.began, now


def _find_intervals(lines: Restrictions) -> list[tuple[AdviceInterval, ...]]:
    return [
        tuple(AdviceInterval(i.start, i.stop, i.label, i.margin, i.tied) for i in line if isinstance(i.label, int))
        for line in lines.decisions(order="min")
    ]


def _sample_advice(
    advisor: Advisor, geometry: EncounterGeometry, tracks: list[Track]
) -> list[tuple[tuple[float, int], ...]]:
    """Sample the advice at evenly spaced points of each line."""
    alphas = geometry.sample_alphas()
    polar = [track.polar(alpha) for track in tracks for alpha in alphas]
    labels = iter(advisor.advise(geometry.to_inputs(polar)).tolist())
    return [tuple((alpha, next(labels)) for alpha in alphas) for _ in tracks]


def _find_missed(
    geometry: EncounterGeometry, lines: tuple[LineAdvice, ...], grid_labels: Tensor
) -> tuple[MissedInterval, ...]:
    missed: list[MissedInterval] = []
    spacing = 1 / (geometry.samples - 1)
    for line in lines:
        names = ["", *(interval.advisory for interval in line.intervals), ""]
        sampled = {label for _, label in line.samples}
        for k, interval in enumerate(line.intervals):
            has_sample = any(interval.start <= alpha <= interval.stop for alpha, _ in line.samples)
            if has_sample or interval.width >= spacing:
                continue
            around = _surrounding_samples(geometry, line.track.xy((interval.start + interval.stop) / 2))
            missed.append(
                MissedInterval(
                    line,
                    interval,
                    before=names[k],
                    after=names[k + 2],
                    unseen=interval.label not in sampled,
                    off_grid=all(int(grid_labels[i]) != interval.label for i in around),
                )
            )
    return tuple(missed)


def _surrounding_samples(geometry: EncounterGeometry, xy: tuple[float, float]) -> list[int]:
    """Return the indices of the four grid samples around a point, or of the nearest cell for a point outside."""
    side, cells = geometry.grid_side, geometry.grid_side - 1
    column, row = (
        min(max(int((at - low) / (high - low) * cells // 1), 0), cells - 1)
        for at, low, high in zip(xy, geometry.box[::2], geometry.box[1::2], strict=True)
    )
    return [(column + i) * side + row + j for i in (0, 1) for j in (0, 1)]
