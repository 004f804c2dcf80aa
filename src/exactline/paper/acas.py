"""The ACAS Xu study (the paper's figure 2): advice along lines exactly, by samples, and what the samples missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..api import restrict_many
from ..results.restrictions import Restrictions
from .encounter import ADVISORIES, Advisor, advisor
from .geometry import Kind, Scene, Track

Report = Callable[[float, str], None]  # share done, and of what


@dataclass(frozen=True)
class Stretch:
    """A stretch of a line with one piece of advice: its interval of alpha is exact, not sampled."""

    start: float
    stop: float
    label: int  # the place of the advisory in ADVISORIES
    margin: float  # by how much it is the cheapest, at most, in the network's units of cost
    tied: tuple[int, ...]  # the advisories that cost the same all along, this one among them; mostly none

    @property
    def advisory(self) -> str:
        """Its name."""
        return ADVISORIES[self.label].name

    @property
    def ties(self) -> str:
        """The names of the advisories that are tied along it."""
        return " = ".join(ADVISORIES[i].name for i in self.tied)

    @property
    def width(self) -> float:
        """In alpha."""
        return self.stop - self.start


@dataclass(frozen=True)
class Line:
    """One track with everything that is known of it."""

    track: Track
    breaks: int  # of the network on it, both ends counted
    stretches: tuple[Stretch, ...]
    samples: tuple[tuple[float, int], ...]  # alpha and label of each sample


@dataclass(frozen=True)
class Missed:
    """A stretch narrower than the spacing of the samples on its line that holds none of them."""

    line: Line
    stretch: Stretch
    before: str  # the advisories on both sides, empty at the ends of the line
    after: str
    unseen: bool  # no sample on the whole line shows its advisory
    off_grid: bool  # none of the four samples of the grid around its middle shows its advisory


@dataclass(frozen=True, eq=False)
class Study:
    """The answer: every line's stretches, the samples, and what they missed."""

    scene: Scene
    advisor: Advisor
    lines: tuple[Line, ...]
    grid: Tensor  # (n, 2) x and y of the sampled points
    grid_labels: Tensor  # (n,)
    missed: tuple[Missed, ...]
    seconds: dict[str, float]  # for loading, sweep, decisions, samples

    def of(self, *kinds: Kind) -> list[Line]:
        """The lines of some kinds."""
        return [line for line in self.lines if line.track.kind in kinds]

    def breaks(self, kind: Kind) -> tuple[float, int, int]:
        """Breaks per line, both ends counted: mean, least, most."""
        counts = [line.breaks for line in self.of(kind)]
        return sum(counts) / max(len(counts), 1), min(counts, default=0), max(counts, default=0)


def run(
    network: Any = None,
    scene: Scene | None = None,
    *,
    normalize: bool | None = None,
    progress: Report | None = None,
) -> Study:
    """Study a collision-avoidance network around the ownship; with no network, the small one that ships with us.

    ``network`` is a file (.nnet, .onnx), a module or a Network from (rho, theta, psi, v_own, v_int) to five costs, or
    an `Advisor`; ``scene`` says what to look at, ``normalize`` is explained at `exactline.paper.encounter.advisor`.

    >>> from exactline.paper.geometry import Scene
    >>> study = run(scene=Scene(rays_count=2, circles_count=2))
    >>> [line.track.kind for line in study.lines]
    ['single distance', 'single theta', 'distance', 'distance', 'circle']

    Raises ArgumentError for networks of another shape and scenes that make no sense, FileError for bad files.
    """
    scene = Scene() if scene is None else scene
    say = progress or (lambda share, what: None)
    clock = _Clock()
    say(0.0, "reading the network")
    known = network if isinstance(network, Advisor) else advisor(network, normalize=normalize)
    clock.lap("loading")
    tracks = scene.tracks()
    ends = [scene.encounters([getattr(t, side) for t in tracks]) for side in ("start", "stop")]
    swept = restrict_many(known.network, *ends, progress=lambda share, breaks: say(0.6 * share, f"{breaks:,} breaks"))
    clock.lap("sweep")
    say(0.6, "decisions")
    stretches = _stretches(swept)
    clock.lap("decisions")
    say(0.8, "samples")
    samples = _samples(known, scene, tracks)
    grid = scene.grid()
    polar = torch.stack([torch.hypot(grid[:, 0], grid[:, 1]), torch.atan2(grid[:, 1], grid[:, 0])], 1)
    labels = known.advice(scene.encounters(polar))
    clock.lap("samples")
    counts = (swept.offsets[1:] - swept.offsets[:-1]).tolist()
    lines = tuple(map(Line, tracks, counts, stretches, samples))
    say(1.0, "done")
    return Study(scene, known, lines, grid, labels, _missed(scene, lines, labels), clock.laps)


class _Clock:
    """How long each part takes."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.began = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.began = now - self.began, now


def _stretches(swept: Restrictions) -> list[tuple[Stretch, ...]]:
    return [
        tuple(Stretch(i.start, i.stop, i.label, i.margin, i.tied) for i in line if isinstance(i.label, int))
        for line in swept.decisions(order="min")
    ]


def _samples(known: Advisor, scene: Scene, tracks: list[Track]) -> list[tuple[tuple[float, int], ...]]:
    """The advice at evenly spread points of each line, as somebody would ask who has only the network."""
    alphas = [scene.sampled(track) for track in tracks]
    polar = [track.polar(a) for track, own in zip(tracks, alphas, strict=True) for a in own]
    labels = iter(known.advice(scene.encounters(polar)).tolist())
    return [tuple((a, next(labels)) for a in own) for own in alphas]


def _missed(scene: Scene, lines: tuple[Line, ...], grid: Tensor) -> tuple[Missed, ...]:
    found: list[Missed] = []
    spacing = 1 / (scene.samples - 1)
    for line in lines:
        names = ["", *(s.advisory for s in line.stretches), ""]
        shown = {label for _, label in line.samples}
        for k, stretch in enumerate(line.stretches):
            held = any(stretch.start <= alpha <= stretch.stop for alpha, _ in line.samples)
            if held or stretch.width >= spacing:
                continue
            around = _around(scene, line.track.place((stretch.start + stretch.stop) / 2))
            off_grid = all(int(grid[i]) != stretch.label for i in around)
            found.append(Missed(line, stretch, names[k], names[k + 2], stretch.label not in shown, off_grid))
    return tuple(found)


def _around(scene: Scene, place: tuple[float, float]) -> list[int]:
    """The four samples of the grid around a place in the box, or the nearest where it lies outside."""
    side, cells = scene.grid_side, scene.grid_side - 1
    corners: list[int] = []
    for at, low, high in zip(place, scene.box[::2], scene.box[1::2], strict=True):
        corners.append(min(max(int((at - low) / (high - low) * cells // 1), 0), cells - 1))
    return [(corners[0] + i) * side + corners[1] + j for i in (0, 1) for j in (0, 1)]
