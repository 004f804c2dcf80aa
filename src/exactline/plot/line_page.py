"""A line as one self-contained web page: a slider along alpha, class bands, breaks, outputs, zoom to single pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError, MissingError
from .band import checked_names
from .line import COLOURS
from .page import bearers, packed, write_page
from .page_input import inputs_of
from .plane_style import percent

if TYPE_CHECKING:
    from ..decide.intervals import Decisions
    from ..results.restriction import Restriction


PARTS = (
    "report_line",
    "report_line_draw",
    "report_line_band",
    "report_line_input",
    "report_line_tell",
    "report_line_ask",
)
MOST = 64  # curves on a page
NUMBERS = 1_200_000  # values at breaks on a page, unless the outputs that lead need more
LISTED = 500  # intervals in the table of the page
HATCHES = 8  # patterns a page knows
LIGHTS = ("#56A9E8", "#FF8A47", "#2CC295", "#E59CC8", "#F0B429", "#9AD8FF", "#F2F2F2")  # COLOURS on a dark page


def write_report(
    line: Restriction,
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    title: str | None = None,
    image: bool | tuple[int, ...] | None = None,
    order: str = "max",
    output: int = 0,
) -> Path:
    """Write the page, whole or not at all; see `Restriction.to_html`."""
    if len(line) == 0:
        raise MissingError(
            "The line has no pieces: its sweep was stopped at once.", where="line.to_html", hint="Sweep further."
        )
    if order not in ("max", "min"):
        raise ArgumentError(f"order is {order!r}.", where="argument order", hint='Give "max" or "min".')
    heading = "line" if title is None else str(title)
    shown = _shown(line, labels, order, output)
    data = {
        "title": heading,
        "facts": str(line),
        "notes": [*shown.notes, *_notes(line)],
        "alphas": packed(line.alphas.numpy()),
        "births": packed(line.origin_table.numpy().T),
        "doubts": packed(line.ambiguous_per_piece.numpy()),
        "nodes": bearers(line.origin_table[:, 0].numpy(), line.names),
        "curves": shown.curves,
        "outputs": shown.count,
        "sure": shown.sure,
        "decisions": shown.classes,
        "inputs": inputs_of(line.lines, features, image),
    }
    return write_page(path, data, heading, PARTS)


@dataclass(frozen=True)
class Shown:
    """What a page tells of the outputs."""

    count: int  # of all outputs
    curves: list[dict[str, Any]]
    classes: dict[str, Any] | None
    sure: bool  # whether all outputs that are second somewhere have a curve, so that margins are known
    notes: list[str]


def _notes(line: Restriction) -> list[str]:
    found = [] if line.complete else [f"The sweep was stopped by {line.stopped} at alpha {line.reached!r}."]
    if line.is_minimal:
        found.append("These are the fewest pieces on which the outputs are straight; one may hold several maps.")
    if line.network is not None and any(tail is not None for tail in line.network.tails):
        found.append("Values are those before the smooth function at the network's end.")
    return found


def _shown(line: Restriction, labels: Sequence[str] | None, order: str, output: int) -> Shown:
    if line.stored_values is None and line.network is None:
        if labels is not None:
            raise MissingError(
                "The values were not kept, so there is nothing to name.",
                where="argument labels",
                hint="Call restrict with values=True, or give the model when loading.",
            )
        return Shown(0, [], None, True, ["The values were not kept: the page shows breaks and inputs."])
    decided = line.decisions(order, output=output) if _finite(line) else None
    values = decided.values if decided is not None else _raw(line, output)
    names = [str(name) for name in checked_names(labels, values.shape[1])]
    chosen, sure = _chosen(line, decided, values)
    notes = [] if decided is not None else ["Some outputs are not finite: the page shows no classes."]
    if len(chosen) < values.shape[1]:
        which = "those that lead or come second somewhere first" if decided is not None else "the largest"
        notes.append(f"{len(chosen)} of {values.shape[1]:,} outputs have a curve, {which}.")
    if line.several_outputs:
        notes.append(
            f"Output {output} of the network's {len(line.stored_values or line.require_network('line').outputs)}."
        )
    looks = {number: _look(place) for place, number in enumerate(chosen)}
    places = {number: place for place, number in enumerate(sorted(chosen))}
    leads = set(_leaders(decided)) if decided is not None else set[int]()
    curves = [
        {
            "output": number,
            "name": names[number],
            "leads": number in leads,
            "values": packed(values[:, number]),
            **looks[number],
        }
        for number in places
    ]
    classes = None if decided is None or values.shape[1] < 2 else _classes(decided, names, places)
    if decided is not None and not leads <= set(places):
        notes.append(f"More than {MOST} outputs lead somewhere: the page shows no classes.")
    return Shown(values.shape[1], curves, classes, sure, notes)


def _finite(line: Restriction) -> bool:
    return line.stored_values is None or all(bool(v.isfinite().all()) for v in line.stored_values)


def _raw(line: Restriction, output: int) -> Floats:
    from ..decide.values import outputs_of_line

    return outputs_of_line(line, output, "line.to_html")


def _leaders(decided: Decisions) -> list[int]:
    """Outputs that lead somewhere, alone or tied: those with most of the line first."""
    table, widths = decided.table, np.zeros(decided.table.tied.shape[1])
    share = table.stops - table.starts
    np.add.at(widths, table.labels[:, 0], share)
    found = np.union1d(table.labels[:, 0], np.flatnonzero(table.tied.any(0)))
    return found[np.argsort(-widths[found], kind="stable")].tolist()


def _chosen(line: Restriction, decided: Decisions | None, values: Floats) -> tuple[list[int], bool]:
    """Which outputs get a curve, those that need a colour most first, and whether every margin is known from them."""
    count = values.shape[1]
    room = int(np.clip(NUMBERS // max(len(values), 1), 1, MOST))
    leaders = [] if decided is None else _leaders(decided)[:MOST]
    if count <= max(room, len(leaders)):
        first = leaders if count > len(COLOURS) else []
        return [*sorted(first), *(i for i in range(count) if i not in set(first))], True
    with np.errstate(invalid="ignore"):
        high = np.argsort(-np.nan_to_num(values, nan=-np.inf).max(0), kind="stable").tolist()
    seconds: list[int] = []
    if decided is not None and count > 1:
        pairs = line.decisions(decided.order, 2, output=decided.output).table
        near = np.unique(np.concatenate([pairs.labels.ravel(), np.flatnonzero(pairs.tied.any(0))])).tolist()
        seconds = [i for i in near if i not in set(leaders)]
    wanted = list(dict.fromkeys([*leaders, *seconds, *high]))[: max(room, len(leaders))]
    return wanted, decided is not None and set(seconds) <= set(wanted) and len(leaders) < MOST


def _look(place: int) -> dict[str, Any]:
    """Colour, dash and pattern of the curve and class at a place; no two of the first 56 agree in all."""
    turn, colour = divmod(place, len(COLOURS))
    return {"light": COLOURS[colour], "dark": LIGHTS[colour], "dash": turn % 3, "hatch": place % HATCHES}


def _classes(decided: Decisions, names: Sequence[str], places: dict[int, int]) -> dict[str, Any] | None:
    """Intervals as arrays, and each class or tie that occurs; None where leaders had to be left out."""
    table = decided.table
    if not set(_leaders(decided)) <= set(places):
        return None
    kinds: dict[tuple[int, ...], int] = {}
    for label, tied in zip(table.labels[:, 0].tolist(), table.tied, strict=True):
        ties = np.flatnonzero(tied).tolist()
        kinds.setdefault((label, *ties), len(kinds))
    of = [
        kinds[label, *np.flatnonzero(tied).tolist()]
        for label, tied in zip(table.labels[:, 0].tolist(), table.tied, strict=True)
    ]
    widths = np.bincount(of, weights=table.stops - table.starts, minlength=len(kinds))
    tally = np.bincount(of, minlength=len(kinds))
    whole = float(table.stops[-1] - table.starts[0]) or 1.0
    return {
        "order": decided.order,
        "starts": packed(table.starts),
        "of": packed(np.array(of, dtype=np.int64)),
        "margins": packed(table.margins[:LISTED]),
        "classes": [
            {
                "curve": places[label],
                "name": " = ".join(names[i] for i in ties) if ties else names[label],
                "tie": bool(ties),
                "share": percent(min(float(widths[at]) / whole, 1.0)),
                "intervals": int(tally[at]),
            }
            for (label, *ties), at in kinds.items()
        ],
    }
