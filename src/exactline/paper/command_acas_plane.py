"""``exactline study acas --plane``: exact advisory maps, as pictures and tables in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console.output import remark, say_json, say_rich
from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from .acas_plane import Maps
    from .geometry import Scene


def maps(
    network: Path | None,
    scenes: list[Scene] | None,
    rho: float | None,
    normalize: bool | None,
    folder: Path,
    report: Callable[[float, str], None],
    *,
    pictures: bool,
    as_json: bool = False,
) -> Callable[[], None]:
    """Map, draw and write; the answer says it all to standard output once the bar is gone."""
    from . import acas_plane
    from .acas_plane_report import clipped, save

    reach = acas_plane.REACH if rho is None else rho
    half = 0.4 if pictures else 1.0
    found = acas_plane.run(
        network, scenes, reach=reach, normalize=normalize, progress=lambda share, what: report(half * share, what)
    )
    written = save(found, folder)
    if pictures:
        from .plot_acas_plane import draw

        written += draw(found, folder, lambda share, what: report(half + (1 - half) * share, what))

    def told() -> None:
        for text in clipped(found):
            remark(text)
        if as_json:
            say_json(_document(found, reach, written))
            return
        say_rich(f"{found.advisor.name}; {found.advisor.note}; rho to {reach:.10g} ft", _table(found))
        say_rich(f"{count_noun(len(written), 'file')} in {folder}: {', '.join(p.name for p in written)}")

    return told


def _table(found: Maps) -> Table:
    from rich.table import Table

    from .acas_plane_report import percent

    names = list(dict.fromkeys(name for m in found.maps for name in m.totals))
    table = Table(title="pieces, and the share of the disc in square feet", title_justify="left")
    table.add_column("scenario")
    for name in ("polygons", "regions", "seconds", *names):
        table.add_column(name, justify="right")
    for m in found.maps:
        whole = sum(area for _, _, area in m.totals.values())
        shares = (percent(m.totals.get(name, (0, 0.0, 0.0))[2] / whole) for name in names)
        table.add_row(m.title, f"{len(m.plane):,}", f"{len(m.zones):,}", f"{sum(m.seconds.values()):.2f}", *shares)
    return table


def _document(found: Maps, reach: float, written: list[Path]) -> dict[str, Any]:
    scenarios = [
        {
            "psi": m.scene.psi,
            "v_own": m.scene.v_own,
            "v_int": m.scene.v_int,
            "polygons": len(m.plane),
            "regions": len(m.zones),
            "seconds": sum(m.seconds.values()),
            "square_feet": {name: area for name, (_, _, area) in m.totals.items()},
        }
        for m in found.maps
    ]
    return {
        "network": found.advisor.name,
        "note": found.advisor.note,
        "rho": reach,
        "scenarios": scenarios,
        "files": [str(path) for path in written],
    }
