"""Advisory maps as tables: areas.csv, regions.csv and report.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import degrees, pi
from pathlib import Path

from .acas_plane import AdvisoryMap, Maps
from .acas_report import as_csv, as_table, write_texts
from .encounter import ADVISORIES, INPUTS
from .regions import Zone

SCENARIO = ("psi_degrees", "v_own", "v_int")
AREAS = (*SCENARIO, "advisory", "regions", "polar_area_ft_rad", "polar_share", "area_sq_ft", "share")
PLACE = ("inside_rho", "inside_theta_degrees", "inside_x", "inside_y", "nearest_rho", "farthest_rho")
REGIONS = (*SCENARIO, "region", "advisory", "polar_area_ft_rad", "area_sq_ft", "share", *PLACE, "crosses_180_degrees")


def areas_csv(study: Maps) -> str:
    """For each scenario and advisory: regions and areas, in feet times radians and in square feet."""
    whole = pi * study.reach**2
    rows = (
        (*_head(m), name, count, repr(polar), repr(polar / (2 * pi * study.reach)), repr(area), repr(area / whole))
        for m in study.maps
        for name, (count, polar, area) in m.totals.items()
    )
    return as_csv(AREAS, rows)


def regions_csv(study: Maps) -> str:
    """Every region of constant advice, the largest of each scenario first."""
    whole = pi * study.reach**2
    rows = ((*_head(m), k, *_numbers(zone, whole)) for m in study.maps for k, zone in enumerate(m.zones))
    return as_csv(REGIONS, rows)


def report(study: Maps) -> str:
    """The maps in words and tables, as Markdown."""
    size = ("scenario", "polygons", "corners", "polygons after decisions", "regions", "seconds to cut", "to decide")
    names = list(dict.fromkeys(name for m in study.maps for name in m.totals))
    parts = [
        "# Advisory maps around the ownship",
        _settings(study),
        "## Definitions",
        _definitions(study),
        "## Size and time",
        as_table(size, map(_size, study.maps)),
        "## Share of the disc, in square feet",
        as_table(("scenario", *names), (_shares(study, m, names) for m in study.maps)),
        "## Share of the polar map, in feet times radians",
        as_table(("scenario", *names), (_shares(study, m, names, polar=True) for m in study.maps)),
        "## The smallest region of each scenario",
        as_table(("scenario", "advisory", "square feet", "rho (ft)", "theta (degrees)", "x", "y"), _smallest(study)),
    ]
    return "\n\n".join(parts) + "\n"


def save(study: Maps, folder: Path) -> list[Path]:
    """Write areas.csv, regions.csv and report.md into a folder, each whole or not at all."""
    texts = {"areas.csv": areas_csv(study), "regions.csv": regions_csv(study), "report.md": report(study)}
    return write_texts(folder, texts)


def clipped(study: Maps) -> list[str]:
    """What lies outside the ranges of the inputs and was clipped, in words."""
    asked: list[list[float]] = [[0.0, study.reach], [-pi, pi], [], [], []]
    for m in study.maps:
        for values, value in zip(asked[2:], m.scene.encounters([(0.0, 0.0)])[0, 2:].tolist(), strict=True):
            values.append(value)
    return [
        f"{name} leaves its range ({min(values):g} to {max(values):g}) and was clipped."
        for name, values, low, high in zip(INPUTS, asked, study.advisor.lowest, study.advisor.highest, strict=True)
        if values and (min(values) < low or max(values) > high)
    ]


def _head(m: AdvisoryMap) -> tuple[str, str, str]:
    return f"{m.scene.psi:g}", f"{m.scene.v_own:g}", f"{m.scene.v_int:g}"


def _numbers(zone: Zone, whole: float) -> Sequence[str]:
    place = (zone.rho, degrees(zone.theta), *zone.place, zone.nearest, zone.farthest)
    sizes = (zone.polar_area, zone.area, zone.area / whole)
    return zone.advisory, *map(repr, sizes), *map(repr, place), "yes" if zone.behind else "no"


def _settings(study: Maps) -> str:
    known = study.advisor
    ranges = ", ".join(f"{n} {a:g} to {b:g}" for n, a, b in zip(INPUTS, known.lowest, known.highest, strict=True))
    lines = [
        f"* Network: {known.name}; {known.note}; {known.network.units.get('relu', 0):,} ReLU units.",
        f"* Map: rho from 0 to {study.reach:.10g} ft, theta from -180 to 180 degrees, heading and speeds fixed.",
        f"* Inputs are clipped to their ranges first: {ranges} (feet, radians, feet per second).",
        *(f"* **{text}**" for text in clipped(study)),
    ]
    unresolved = sum(m.plane.ambiguous for m in study.maps)
    if unresolved:
        lines.append(f"* {unresolved:,} pairs of a polygon and a unit could not be told from a tie.")
    return "\n".join(lines)


def _definitions(study: Maps) -> str:
    return "\n".join(
        (
            "* The network gives costs; the advice is the smallest: " + ", ".join(a.name for a in ADVISORIES) + ".",
            "* Polygons: the convex parts of the map, in rho and theta, on which the network is affine. Nothing is "
            "sampled. Where two costs meet inside a polygon, it is cut once more.",
            "* Regions: parts of the disc that hang together and share their advice, also across theta = 180 degrees, "
            "where the polar picture ends; touching in single points does not join them.",
            "* Areas: exact up to rounding. In the polar map feet times radians; on the disc square feet, the integral "
            f"of rho over the polygons. They sum to {2 * pi * study.reach:.10g} ft rad and {pi * study.reach**2:.10g} "
            "square feet.",
            "* The smallest region is that of fewest square feet; the place named lies inside it.",
            "* x = rho cos(theta) is ahead of the ownship, y = rho sin(theta) to its left. Straight edges of the polar "
            "map are curves there; pictures draw them as strokes of half a degree, tables do not use these.",
        )
    )


def _size(m: AdvisoryMap) -> Sequence[object]:
    counts = (len(m.plane), len(m.plane.weights), len(m.decided.cells.labels), len(m.zones))
    return m.title, *(f"{c:,}" for c in counts), *(f"{s:.2f}" for s in m.seconds.values())


def _shares(study: Maps, m: AdvisoryMap, names: Sequence[str], *, polar: bool = False) -> Sequence[object]:
    whole = 2 * pi * study.reach if polar else pi * study.reach**2
    return m.title, *(percent(m.totals.get(name, (0, 0.0, 0.0))[1 if polar else 2] / whole) for name in names)


def percent(part: float) -> str:
    """A share in percent with three decimals; what is there never reads as nothing."""
    return "0" if part == 0 else f"{100 * part:.3f} %" if part >= 5e-6 else f"{100 * part:.1e} %"


def _smallest(study: Maps) -> Iterable[Sequence[object]]:
    for m in study.maps:
        zone = m.smallest
        x, y = zone.place
        spot = (f"{zone.rho:.2f}", f"{degrees(zone.theta):.4f}", f"{x:.1f}", f"{y:.1f}")
        yield m.title, zone.advisory, f"{zone.area:.6g}", *spot
