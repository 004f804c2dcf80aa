"""The fourth chapter: a map of a collision-avoidance network, and what samples of it miss."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from pathlib import Path

import numpy as np

from ..api import restrict
from ..arrays import Bools, Floats
from ..files import write_atomically
from ..humanize import count_noun
from ..paper.acas import lines as acas
from ..paper.acas.advisor import ADVISORIES, INPUT_NAMES
from ..paper.acas.geometry import EncounterGeometry
from ..paper.acas.line_report import format_missed_csv
from ..paper.acas.lines import LineStudy, MissedInterval
from ..paper.acas.map_plot import to_cartesian
from ..paper.acas.maps import DEFAULT_REACH_FEET, AdvisoryMap, map_advice
from ..paper.acas.regions import compute_polygon_areas
from .encounter_maps import plot_encounter_maps
from .report import Chapter, ChapterFile, ChapterPicture, ChapterTable, format_number

HEADING_DEGREES = 150.0  # the intruder comes towards the ownship, from left to right
MAX_LISTED_INTERVALS = 6
UNITS = ("ft", "rad", "rad", "ft/s", "ft/s")
FEATURES = [f"{name} ({unit})" for name, unit in zip(INPUT_NAMES, UNITS, strict=True)]
LABELS = [advisory.name for advisory in ADVISORIES]
CODE = """from exactline.paper.acas import lines
from exactline.paper.acas.geometry import EncounterGeometry

study = lines.run(geometry=EncounterGeometry(psi=150.0))  # or lines.run("ACASXU_1_1.nnet")
for missed in study.missed:
    print(missed.line.track.kind, missed.interval.advisory, missed.interval.start, missed.interval.stop)
"""


@dataclass(frozen=True)
class UnsampledRegion:
    """A region of constant advice that holds none of the samples of the grid."""

    label: int
    area: float  # square feet
    ring: Floats  # (corners, 2) its outer boundary in rho and theta

    @property
    def advisory(self) -> str:
        """The name of the advice."""
        return ADVISORIES[self.label].name

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of its bounding box: x (ahead) and y (left) in feet."""
        corners = to_cartesian(self.ring)
        x, y = ((corners.max(0) + corners.min(0)) / 2).tolist()
        return x, y


def encounter_chapter() -> Chapter:
    """Advice around an aircraft: exact lines and an exact map against samples."""
    geometry = EncounterGeometry(psi=HEADING_DEGREES)
    study = acas.run(geometry=geometry)
    chart = map_advice(study.advisor, geometry, DEFAULT_REACH_FEET)
    unsampled = find_unsampled_regions(study, chart)
    intervals = sum(len(line.intervals) for line in study.lines)
    off_grid = sum(m.off_grid for m in study.missed)
    return Chapter(
        name="encounter",
        title="What samples of a controller miss",
        texts=(
            "An aircraft is told how to turn when another comes near. A small network gives the advice (it is not "
            "ACAS Xu, but has the same inputs and the same five advisories). Sampling "
            f"{len(study.grid):,} positions of the intruder gives the left map of the picture. What does it miss?",
            _describe_unsampled(unsampled),
            f"The {len(study.lines):,} exact lines and arcs around the aircraft have {intervals:,} intervals of "
            f"constant advice. {len(study.missed):,} of them lie between the {geometry.samples} samples of their line, "
            f"and {off_grid} of those are not shown by the nearest samples of the grid either.",
        ),
        code=CODE,
        facts={
            "psi": geometry.psi,
            "grid": len(study.grid),
            "lines": len(study.lines),
            "intervals": intervals,
            "samples_per_line": geometry.samples,
            "missed": len(study.missed),
            "missed_off_grid": off_grid,
            "polygons": len(chart.plane),
            "regions": len(chart.decisions),
            "unsampled": [{"advisory": u.advisory, "square_feet": u.area, "middle": list(u.middle)} for u in unsampled],
        },
        tables=(_tabulate_regions(chart, unsampled), _tabulate_missed(study)),
        pictures=(
            ChapterPicture(
                "encounter",
                lambda: plot_encounter_maps(study, chart, unsampled),
                f"Three maps around an aircraft: {len(study.grid)} samples, the exact regions of advice, and a closer "
                "look at a region that holds no sample",
                "The intruder's position around the ownship, coloured by the advice. Left: samples. Middle: every "
                "region, with exact boundaries. Right: a closer look at a region without a sample.",
            ),
        ),
        files=(
            ChapterFile(
                "encounter.html", "Explore the map: distance and bearing", lambda path: _write_map(chart, path)
            ),
            ChapterFile(
                "encounter-line.html",
                "Explore a line with an interval that samples miss",
                lambda path: _write_line(study, path),
            ),
            ChapterFile(
                "missed.csv",
                "All intervals that samples miss, as a table",
                lambda path: write_atomically(path, format_missed_csv(study).encode()),
            ),
        ),
    )


def find_unsampled_regions(study: LineStudy, chart: AdvisoryMap) -> list[UnsampledRegion]:
    """The regions inside the sampled box that hold no sample of the grid, the largest first.

    Regions that reach the rear, where the polar map ends, are left out.
    """
    grid = study.grid.numpy()
    polar = np.stack([np.hypot(*grid.T), np.arctan2(grid[:, 1], grid[:, 0])], 1)
    polygons = chart.decisions.polygons
    areas = np.bincount(polygons.regions.numpy(), compute_polygon_areas(polygons)[1], len(chart.decisions))
    x_low, x_high, y_low, y_high = study.geometry.box
    found: list[UnsampledRegion] = []
    for region, area in zip(chart.decisions, areas.tolist(), strict=True):
        rings = [ring.numpy() for ring in region.rings]
        if float(np.abs(rings[0][:, 1]).max()) < pi - 1e-9 and not find_inside(polar, rings).any():
            unsampled = UnsampledRegion(region.label, area, rings[0])
            x, y = unsampled.middle
            if x_low < x < x_high and y_low < y < y_high:
                found.append(unsampled)
    return sorted(found, key=lambda u: -u.area)


def find_inside(
    points: Floats,  # (points, 2)
    rings: list[Floats],  # (corners, 2) each
) -> Bools:  # (points,)
    """Which points lie inside a region with holes: a ray from them crosses its rings an odd number of times.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> find_inside(np.array([[0.5, 0.5], [1.5, 0.5]]), [square]).tolist()
    [True, False]
    """
    x, y = points[:, :1], points[:, 1:]
    is_inside = np.zeros(len(points), dtype=bool)
    for ring in rings:
        a, b = ring, np.roll(ring, -1, 0)
        spans = (a[:, 1] > y) != (b[:, 1] > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
        is_inside ^= (spans & (x < crossing)).sum(1) % 2 == 1
    return is_inside


def _describe_unsampled(unsampled: list[UnsampledRegion]) -> str:
    if not unsampled:
        return "Every region of the exact map holds a sample: here the grid was fine enough."
    first, (x, y) = unsampled[0], unsampled[0].middle
    count, subject = (
        ("a region", "It") if len(unsampled) == 1 else (count_noun(len(unsampled), "region"), "The largest")
    )
    return (
        f"The exact map has {count} without a sample. {subject} says “{first.advisory}” on {first.area:,.0f} square "
        f"feet, {abs(x):,.0f} ft {'ahead' if x > 0 else 'behind'} and {abs(y):,.0f} ft to the "
        f"{'left' if y > 0 else 'right'}."
    )


def _tabulate_regions(chart: AdvisoryMap, unsampled: list[UnsampledRegion]) -> ChapterTable:
    rows = [
        (name, f"{total.regions:,}", f"{total.area / 1e6:,.3f}", str(sum(u.advisory == name for u in unsampled)))
        for name, total in chart.totals.items()
    ]
    head = ("advice", "regions", "million square feet", "without a sample")
    return ChapterTable(f"The exact map, up to {chart.reach:,.0f} ft away", head, tuple(rows))


def _tabulate_missed(study: LineStudy) -> ChapterTable:
    longest = sorted(study.missed, key=lambda m: (not m.off_grid, -m.length_feet))[:MAX_LISTED_INTERVALS]
    rows = tuple(
        (
            m.interval.advisory,
            f"{m.before or 'the end'} and {m.after or 'the end'}",
            _format_position(m),
            format_number(m.length_feet, 3),
            "no" if m.off_grid else "yes",
        )
        for m in longest
    )
    head = ("advice", "between", "where", "feet", "shown by the grid")
    title = f"{len(rows)} of the {len(study.missed):,} intervals between samples"
    return ChapterTable(title, head, rows, text_columns=3)


def _format_position(m: MissedInterval) -> str:
    track = m.line.track
    start, stop = (track.varying_input(alpha) for alpha in (m.interval.start, m.interval.stop))
    if track.varies == "rho":
        return f"{start:,.0f} to {stop:,.0f} ft away, bearing {track.fixed_input:.1f}°"
    return f"bearing {start:.2f}° to {stop:.2f}°, {track.fixed_input:,.0f} ft away"


def _write_map(chart: AdvisoryMap, path: Path) -> None:
    chart.plane.to_html(
        path,
        style="decisions",
        order="min",
        labels=LABELS,
        colors=[advisory.colour for advisory in ADVISORIES],
        regions=chart.decisions,
        title="advice by distance and bearing",
        features=FEATURES,
    )


def _write_line(study: LineStudy, path: Path) -> None:
    """The page of the line with the longest interval that neither its samples nor the grid show."""
    track = max(study.missed, key=lambda m: (m.off_grid, m.length_feet)).line.track
    start, end = study.geometry.to_inputs([track.start, track.end])
    line = restrict(study.advisor.network, start, end)
    colours = [advisory.colour for advisory in ADVISORIES]
    title = f"advice where {track.varies} varies"
    line.to_html(path, order="min", labels=LABELS, features=FEATURES, colors=colours, title=title)
