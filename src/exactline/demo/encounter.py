"""The fourth chapter: a map of a collision-avoidance network, and what samples of it miss."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..humanize import count_noun
from ..paper import acas
from ..paper.acas import Missed, Study
from ..paper.acas_plane import REACH, AdvisoryMap, mapped
from ..paper.acas_report import missed_csv
from ..paper.encounter import ADVISORIES, INPUTS
from ..paper.geometry import Scene
from ..paper.regions import cell_areas
from .chapter import Chapter, Page, Picture, Table, number
from .draw_encounter import draw_encounter

HEADING = 150.0  # degrees: the intruder comes towards us, from the left to the right
ROWS = 6  # of the table of missed stretches
UNITS = ("ft", "rad", "rad", "ft/s", "ft/s")
CODE = """from exactline.paper import acas
from exactline.paper.geometry import Scene

study = acas.run(scene=Scene(psi=150.0))  # or acas.run("ACASXU_1_1.nnet")
for missed in study.missed:
    print(missed.line.track.kind, missed.stretch.advisory, missed.stretch.start, missed.stretch.stop)
"""


@dataclass(frozen=True)
class Hidden:
    """A region of constant advice that holds none of the samples of the grid."""

    label: int
    area: float  # square feet
    ring: Floats  # (corners, 2) its outer boundary in rho and theta

    @property
    def advisory(self) -> str:
        """Its name."""
        return ADVISORIES[self.label].name

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of the box around it: x (ahead) and y (left) in feet."""
        corners = np.stack([self.ring[:, 0] * np.cos(self.ring[:, 1]), self.ring[:, 0] * np.sin(self.ring[:, 1])], 1)
        x, y = ((corners.max(0) + corners.min(0)) / 2).tolist()
        return x, y


def encounter() -> Chapter:
    """Advice around an aircraft: exact lines and an exact map against samples."""
    scene = Scene(psi=HEADING)
    study = acas.run(scene=scene)
    chart = mapped(study.advisor, scene, REACH)
    hidden = hidden_regions(study, chart)
    stretches = sum(len(line.stretches) for line in study.lines)
    blind = sum(m.off_grid for m in study.missed)
    texts = (
        "An aircraft is told how to turn when another comes near. A small network of our own gives the advice (it is "
        "not ACAS Xu, but has the same inputs and the same five advisories). Whoever tries "
        f"{len(study.grid):,} positions of the intruder gets the left map of the picture. What stays unseen?",
        _said(hidden),
        f"The {len(study.lines):,} exact lines and arcs of the paper's figure have {stretches:,} stretches of constant "
        f"advice. {len(study.missed):,} of them lie between the {scene.samples} samples of their line, and {blind} of "
        "those are not shown by the nearest samples of the grid either.",
    )
    return Chapter(
        "encounter",
        "What samples of a controller miss",
        texts,
        CODE,
        (_regions(chart, hidden), _missed(study)),
        (
            Picture(
                "encounter",
                lambda: draw_encounter(study, chart, hidden),
                f"Three maps around an aircraft: {len(study.grid)} samples, the exact regions of advice, and a closer "
                "look at a region that holds no sample",
                "The intruder's position around the ownship, coloured by the advice. Left: what samples show. Middle: "
                "every region, with exact boundaries. Right: a closer look where the samples see nothing.",
            ),
        ),
        (
            Page("encounter.html", "Explore the map: distance and bearing", lambda path: _page(chart, path)),
            Page("encounter-line.html", "Explore a line that holds what samples miss", lambda path: _line(study, path)),
            Page("missed.csv", "All stretches that samples miss, as a table", lambda path: _csv(study, path)),
        ),
        {
            "psi": scene.psi,
            "grid": len(study.grid),
            "lines": len(study.lines),
            "stretches": stretches,
            "samples_on_a_line": scene.samples,
            "missed": len(study.missed),
            "missed_off_grid": blind,
            "polygons": len(chart.plane),
            "regions": len(chart.decided),
            "hidden": [{"advisory": h.advisory, "square_feet": h.area, "middle": list(h.middle)} for h in hidden],
        },
    )


def hidden_regions(study: Study, chart: AdvisoryMap) -> list[Hidden]:
    """The regions of the map that hold no sample of the grid, the largest first; not those cut straight behind."""
    grid = study.grid.numpy()
    polar = np.stack([np.hypot(*grid.T), np.arctan2(grid[:, 1], grid[:, 0])], 1)
    areas = np.bincount(chart.decided.cells.regions.numpy(), cell_areas(chart.decided.cells)[1], len(chart.decided))
    box = np.array(study.scene.box)
    found: list[Hidden] = []
    for region, area in zip(chart.decided, areas.tolist(), strict=True):
        rings = [ring.numpy() for ring in region.rings]
        if float(np.abs(rings[0][:, 1]).max()) < pi - 1e-9 and not inside(polar, rings).any():
            one = Hidden(region.label, area, rings[0])
            x, y = one.middle
            if box[0] < x < box[1] and box[2] < y < box[3]:  # beyond the box nobody sampled
                found.append(one)
    return sorted(found, key=lambda h: -h.area)


def inside(
    points: Floats,  # (points, 2)
    rings: list[Floats],  # (corners, 2) each
) -> NDArray[np.bool_]:
    """Which points lie within rings: those from which a ray crosses an odd number of sides.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> inside(np.array([[0.5, 0.5], [1.5, 0.5]]), [square]).tolist()
    [True, False]
    """
    x, y = points[:, :1], points[:, 1:]
    odd = np.zeros(len(points), dtype=bool)
    for ring in rings:
        a, b = ring, np.roll(ring, -1, 0)
        spans = (a[:, 1] > y) != (b[:, 1] > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
        odd ^= (spans & (x < crossing)).sum(1) % 2 == 1
    return odd


def _said(hidden: list[Hidden]) -> str:
    if not hidden:
        return "Every region of the exact map holds one of them: on this scene the grid was fine enough."
    first, (x, y) = hidden[0], hidden[0].middle
    count = "a region" if len(hidden) == 1 else count_noun(len(hidden), "region")
    return (
        f"The exact map has {count} that none of the samples falls into. {'It' if len(hidden) == 1 else 'The largest'} "
        f"says “{first.advisory}” on {first.area:,.0f} square feet, {abs(x):,.0f} ft "
        f"{'ahead' if x > 0 else 'behind'} and {abs(y):,.0f} ft to the {'left' if y > 0 else 'right'}."
    )


def _regions(chart: AdvisoryMap, hidden: list[Hidden]) -> Table:
    rows = [
        (name, f"{count:,}", f"{area / 1e6:,.3f}", str(sum(h.advisory == name for h in hidden)))
        for name, (count, _, area) in chart.totals.items()
    ]
    head = ("advice", "regions", "million square feet", "without a sample")
    return Table(f"The exact map, up to {chart.reach:,.0f} ft away", head, tuple(rows))


def _missed(study: Study) -> Table:
    order = sorted(study.missed, key=lambda m: (not m.off_grid, -_feet(m)))[:ROWS]
    rows = tuple(
        (
            m.stretch.advisory,
            f"{m.before or 'the end'} and {m.after or 'the end'}",
            _where(m),
            number(_feet(m), 3),
            "no" if m.off_grid else "yes",
        )
        for m in order
    )
    head = ("advice", "between", "where", "feet", "shown by the grid")
    return Table(f"{len(rows)} of the {len(study.missed):,} stretches between samples", head, rows, words=3)


def _where(m: Missed) -> str:
    track = m.line.track
    ends = [track.position(a) for a in (m.stretch.start, m.stretch.stop)]
    if track.varies == "rho":
        return f"{ends[0]:,.0f} to {ends[1]:,.0f} ft away, bearing {track.fixed:.1f}°"
    return f"bearing {ends[0]:.2f}° to {ends[1]:.2f}°, {track.fixed:,.0f} ft away"


def _feet(m: Missed) -> float:
    return m.line.track.length * m.stretch.width


def _look() -> dict[str, Any]:
    return {"order": "min", "labels": [a.name for a in ADVISORIES]}


def _page(chart: AdvisoryMap, path: Path) -> None:
    colours = [a.colour for a in ADVISORIES]
    title = "advice by distance (ft) and bearing (radians)"
    chart.plane.to_html(path, style="decisions", decided=chart.decided, colors=colours, title=title, **_look())


def _line(study: Study, path: Path) -> None:
    """The line of the longest stretch that neither its samples nor the grid show."""
    from ..api import restrict

    track = max(study.missed, key=lambda m: (m.off_grid, _feet(m))).line.track
    start, stop = study.scene.encounters([track.start, track.stop])
    names = [f"{name} ({unit})" for name, unit in zip(INPUTS, UNITS, strict=True)]
    line = restrict(study.advisor.network, start, stop)
    line.to_html(path, features=names, title=f"advice where {track.varies} varies", **_look())


def _csv(study: Study, path: Path) -> None:
    from ..files import write_atomically

    write_atomically(path, missed_csv(study).encode())
