"""Advisory maps as tables: areas.csv, regions.csv and report.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import degrees, pi
from pathlib import Path

import torch

from ..text_files import format_csv, format_markdown_table, write_texts
from .advisor import ADVISORIES
from .maps import AdvisoryMap, AdvisoryMaps, AdvisoryTotal
from .regions import AdviceRegion

SCENARIO_COLUMNS = ("psi_degrees", "v_own", "v_int")
AREA_COLUMNS = (*SCENARIO_COLUMNS, "advisory", "regions", "polar_area_ft_rad", "polar_share", "area_sq_ft", "share")
PLACE_COLUMNS = ("inside_rho", "inside_theta_degrees", "inside_x", "inside_y", "nearest_rho", "farthest_rho")
REGION_COLUMNS = (
    *(*SCENARIO_COLUMNS, "region", "advisory", "polar_area_ft_rad", "area_sq_ft", "share"),
    *(*PLACE_COLUMNS, "crosses_180_degrees"),
)
NO_REGIONS = AdvisoryTotal(0, 0.0, 0.0)


def format_areas_csv(study: AdvisoryMaps) -> str:
    """Format the regions and areas of each encounter and advisory, in feet times radians and in square feet."""
    polar_disc, disc = 2 * pi * study.reach, pi * study.reach**2
    rows = (
        (
            *_scenario_cells(m),
            name,
            total.regions,
            *map(repr, (total.polar_area, total.polar_area / polar_disc, total.area, total.area / disc)),
        )
        for m in study.maps
        for name, total in m.totals.items()
    )
    return format_csv(AREA_COLUMNS, rows)


def format_regions_csv(study: AdvisoryMaps) -> str:
    """Format every region of constant advice, the largest of each encounter first."""
    disc = pi * study.reach**2
    rows = ((*_scenario_cells(m), k, *_region_cells(r, disc)) for m in study.maps for k, r in enumerate(m.regions))
    return format_csv(REGION_COLUMNS, rows)


def format_report(study: AdvisoryMaps) -> str:
    """Format the maps as Markdown."""
    names = list(dict.fromkeys(name for m in study.maps for name in m.totals))
    smallest_head = ("scenario", "advisory", "square feet", "rho (ft)", "theta (degrees)", "x", "y")
    parts = [
        "# Advisory maps around the ownship",
        _describe_settings(study),
        "## Definitions",
        _list_definitions(study),
        "## Size and time",
        format_markdown_table(
            ("scenario", "polygons", "corners", "polygons after decisions", "regions", "seconds to cut", "to decide"),
            map(_size_cells, study.maps),
        ),
        "## Share of the disc, in square feet",
        format_markdown_table(("scenario", *names), (_share_cells(study, m, names) for m in study.maps)),
        "## Share of the polar map, in feet times radians",
        format_markdown_table(("scenario", *names), (_share_cells(study, m, names, polar=True) for m in study.maps)),
        "## The smallest region of each scenario",
        format_markdown_table(smallest_head, _smallest_region_rows(study)),
    ]
    return "\n\n".join(parts) + "\n"


def save_report(study: AdvisoryMaps, folder: Path) -> list[Path]:
    """Write areas.csv, regions.csv and report.md into a folder, each atomically."""
    texts = {
        "areas.csv": format_areas_csv(study),
        "regions.csv": format_regions_csv(study),
        "report.md": format_report(study),
    }
    return write_texts(folder, texts)


def describe_clipping(study: AdvisoryMaps) -> list[str]:
    """Describe which inputs leave their ranges on the maps and were clipped."""
    corners = [m.geometry.to_inputs([(0.0, -pi), (study.reach, pi)]) for m in study.maps]
    return study.advisor.describe_clipping(torch.cat(corners)) if corners else []


def format_percent(share: float) -> str:
    """Format a share as a percentage with three decimals; small shares are never rounded to 0."""
    return "0" if share == 0 else f"{100 * share:.3f} %" if share >= 5e-6 else f"{100 * share:.1e} %"


def _scenario_cells(m: AdvisoryMap) -> tuple[str, str, str]:
    return f"{m.geometry.psi:g}", f"{m.geometry.v_own:g}", f"{m.geometry.v_int:g}"


def _region_cells(region: AdviceRegion, disc: float) -> Sequence[str]:
    place = (region.rho, degrees(region.theta), *region.xy, region.min_rho, region.max_rho)
    areas = (region.polar_area, region.area, region.area / disc)
    return region.advisory, *map(repr, areas), *map(repr, place), "yes" if region.crosses_rear else "no"


def _describe_settings(study: AdvisoryMaps) -> str:
    lines = [
        f"* Network: {study.advisor.describe()}",
        f"* Map: rho from 0 to {study.reach:.10g} ft, theta from -180 to 180 degrees, heading and speeds fixed.",
        f"* {study.advisor.describe_ranges()}",
        *(f"* **{text}**" for text in describe_clipping(study)),
    ]
    ambiguous = sum(m.plane.ambiguous for m in study.maps)
    if ambiguous:
        lines.append(f"* {ambiguous:,} pairs of a polygon and a unit are ambiguous: rounding hides the unit's sign.")
    return "\n".join(lines)


def _list_definitions(study: AdvisoryMaps) -> str:
    return "\n".join(
        (
            "* The network computes costs; the advice is the cheapest of "
            + ", ".join(a.name for a in ADVISORIES)
            + ".",
            "* Polygons: the convex parts of the map, in rho and theta, on which the network is affine. Nothing is "
            "sampled. A polygon in which two costs become equal is cut once more.",
            "* Regions: connected parts of the disc with constant advice, also across theta = 180 degrees, where the "
            "polar map ends; parts that touch only in single points are separate regions.",
            "* Areas: exact up to rounding. In feet times radians on the polar map; in square feet on the disc, as the "
            f"integral of rho over the polygons. They sum to {2 * pi * study.reach:.10g} ft rad and "
            f"{pi * study.reach**2:.10g} square feet.",
            "* The smallest region is the one of the smallest area in square feet; the given point lies inside it.",
            "* x = rho cos(theta) is ahead of the ownship, y = rho sin(theta) to its left. Straight edges of the polar "
            "map are curves there; pictures draw them in straight strokes of half a degree, tables are not affected.",
        )
    )


def _size_cells(m: AdvisoryMap) -> Sequence[object]:
    counts = (len(m.plane), len(m.plane.weights), len(m.decisions.polygons.labels), len(m.regions))
    return m.title, *(f"{c:,}" for c in counts), *(f"{s:.2f}" for s in m.seconds.values())


def _share_cells(study: AdvisoryMaps, m: AdvisoryMap, names: Sequence[str], *, polar: bool = False) -> Sequence[object]:
    totals = [m.totals.get(name, NO_REGIONS) for name in names]
    if polar:
        return m.title, *(format_percent(total.polar_area / (2 * pi * study.reach)) for total in totals)
    return m.title, *(format_percent(total.area / (pi * study.reach**2)) for total in totals)


def _smallest_region_rows(study: AdvisoryMaps) -> Iterable[Sequence[object]]:
    for m in study.maps:
        region = m.smallest_region
        x, y = region.xy
        place = (f"{region.rho:.2f}", f"{degrees(region.theta):.4f}", f"{x:.1f}", f"{y:.1f}")
        yield m.title, region.advisory, f"{region.area:.6g}", *place
