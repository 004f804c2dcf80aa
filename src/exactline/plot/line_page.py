"""A line as one self-contained web page: a slider along alpha, class bands, breaks, outputs, zoom to single pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..decide.values import outputs_of_line
from ..errors import ArgumentError, MissingError
from .page import encode_array, list_nodes, write_page
from .page_input import encode_inputs
from .palette import CLASS_COLOURS, DASH_COUNT, HATCH_COUNT, class_colour, class_turn, dark_variant
from .plane_style import check_colors
from .style import check_labels, format_share

if TYPE_CHECKING:
    from ..decide.intervals import Decisions
    from ..results.restriction import Restriction

SCRIPTS = ("line", "line_chart", "line_band", "line_input", "line_info", "line_controls")
MAX_CURVES = 64
MAX_VALUES = 1_200_000  # at breaks on a page, unless the outputs that lead need more
MAX_LISTED_INTERVALS = 500  # in the table of the page


def write_line_page(
    line: Restriction,
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    title: str | None = None,
    image: bool | tuple[int, ...] | None = None,
    order: str = "max",
    output: int = 0,
    classes: bool = True,
    colors: Sequence[str] | None = None,
) -> Path:
    """Write the page, whole or not at all; see `Restriction.to_html`."""
    if len(line) == 0:
        raise MissingError(
            "The line has no pieces: its sweep was stopped at once.", where="line.to_html", hint="Sweep further."
        )
    if order not in ("max", "min"):
        raise ArgumentError(f"order is {order!r}.", where="argument order", hint='Give "max" or "min".')
    heading = "line" if title is None else str(title)
    outputs = _encode_outputs(line, labels, colors, order, output, classes)
    data = {
        "title": heading,
        "facts": str(line),
        "notes": [*outputs.notes, *_list_notes(line)],
        "alphas": encode_array(line.alphas.numpy()),
        "origins": encode_array(line.origin_table.numpy().T),
        "ambiguous": encode_array(line.ambiguous_per_piece.numpy()),
        "nodes": list_nodes(line.origin_table[:, 0].numpy(), line.names),
        "curves": outputs.curves,
        "has_all_margins": outputs.has_all_margins,
        "decisions": outputs.decisions,
        "inputs": encode_inputs(line.lines, features, image),
    }
    return write_page(path, data, heading, SCRIPTS)


@dataclass(frozen=True)
class PageOutputs:
    """What a page shows of the outputs."""

    curves: list[dict[str, Any]]
    decisions: dict[str, Any] | None
    has_all_margins: bool  # whether all outputs that come second somewhere have a curve, so that margins are exact
    notes: list[str]


def _list_notes(line: Restriction) -> list[str]:
    notes = [] if line.complete else [f"The sweep was stopped by {line.stopped} at alpha {line.reached!r}."]
    if line.is_minimal:
        notes.append("These are the fewest pieces on which the outputs are linear; one may cover several affine maps.")
    if line.network is not None and any(tail is not None for tail in line.network.tails):
        notes.append("Values are those before the smooth function at the network's end.")
    return notes


def _encode_outputs(
    line: Restriction,
    labels: Sequence[str] | None,
    colors: Sequence[str] | None,
    order: str,
    output: int,
    classes: bool,
) -> PageOutputs:
    if line.stored_values is None and line.network is None:
        if labels is not None:
            raise MissingError(
                "The values were not kept, so there is nothing to name.",
                where="argument labels",
                hint="Call restrict with values=True, or give the model when loading.",
            )
        return PageOutputs([], None, True, ["The values were not kept: the page shows breaks and inputs."])
    values, is_finite = outputs_of_line(line, output, "line.to_html"), _is_finite(line)
    has_classes = classes and is_finite and values.shape[1] != 1  # one output has no rival
    decisions = line.decisions(order, output=output) if has_classes else None
    names = [str(name) for name in check_labels(labels, values.shape[1])]
    chosen, has_all_margins = _choose_outputs(line, decisions, values)
    notes = [] if is_finite else ["Some outputs are not finite: the page shows no classes."]
    if len(chosen) < values.shape[1]:
        which = "the largest" if decisions is None else "those that lead or come second somewhere first"
        notes.append(f"{len(chosen)} of {values.shape[1]:,} outputs have a curve, {which}.")
    if line.several_outputs:
        count = len(line.stored_values or line.require_network("line").outputs)
        notes.append(f"Output {output} of the network's {count}.")
    own = check_colors(colors, values.shape[1])
    styles = {number: _curve_style(number, own) for number in chosen}
    curve_of = {number: position for position, number in enumerate(sorted(chosen))}
    leaders = set[int]() if decisions is None else set(_find_leaders(decisions))
    curves = [
        {
            "output": number,
            "name": names[number],
            "leads": number in leaders,
            "values": encode_array(values[:, number]),
            **styles[number],
        }
        for number in curve_of
    ]
    has_curves = leaders <= set(curve_of)
    if not has_curves:
        notes.append(f"More than {MAX_CURVES} outputs lead somewhere: the page shows no classes.")
    encoded = None
    if decisions is not None and has_curves:
        encoded = _encode_decisions(decisions, names, curve_of)
    return PageOutputs(curves, encoded, has_all_margins, notes)


def _is_finite(line: Restriction) -> bool:
    return line.stored_values is None or all(bool(v.isfinite().all()) for v in line.stored_values)


def _find_leaders(decisions: Decisions) -> list[int]:
    """Outputs that lead somewhere, alone or tied: those with the largest share of the line first."""
    table = decisions.table
    widths = np.zeros(table.tied.shape[1])
    np.add.at(widths, table.labels[:, 0], table.stops - table.starts)
    leaders = np.union1d(table.labels[:, 0], np.flatnonzero(table.tied.any(0)))
    return leaders[np.argsort(-widths[leaders], kind="stable")].tolist()


def _choose_outputs(
    line: Restriction,
    decisions: Decisions | None,
    values: Floats,  # (breaks, outputs)
) -> tuple[list[int], bool]:
    """The outputs that get a curve, those that need a colour most first, and whether all margins follow from them."""
    count = values.shape[1]
    room = int(np.clip(MAX_VALUES // max(len(values), 1), 1, MAX_CURVES))
    leaders = [] if decisions is None else _find_leaders(decisions)[:MAX_CURVES]
    if count <= max(room, len(leaders)):
        first = leaders if count > len(CLASS_COLOURS) else []
        return [*sorted(first), *(i for i in range(count) if i not in set(first))], True
    with np.errstate(invalid="ignore"):
        largest = np.argsort(-np.nan_to_num(values, nan=-np.inf).max(0), kind="stable").tolist()
    seconds: list[int] = []
    if decisions is not None and count > 1:
        pairs = line.decisions(decisions.order, 2, output=decisions.output).table
        near = np.unique(np.concatenate([pairs.labels.ravel(), np.flatnonzero(pairs.tied.any(0))])).tolist()
        seconds = [i for i in near if i not in set(leaders)]
    chosen = list(dict.fromkeys([*leaders, *seconds, *largest]))[: max(room, len(leaders))]
    return chosen, decisions is not None and set(seconds) <= set(chosen) and len(leaders) < MAX_CURVES


def _curve_style(number: int, colors: Sequence[str] | None) -> dict[str, Any]:
    """Colours, dash and pattern of a curve and its class; no two of the first 120 agree in all."""
    colour = class_colour(number) if colors is None else colors[number]
    turn = class_turn(number) if colors is None else 0
    return {"light": colour, "dark": dark_variant(colour), "dash": turn % DASH_COUNT, "hatch": number % HATCH_COUNT}


def _encode_decisions(decisions: Decisions, names: Sequence[str], curve_of: dict[int, int]) -> dict[str, Any]:
    """Intervals as arrays, and each class or tie that occurs."""
    table = decisions.table
    keys = [
        (label, *np.flatnonzero(tied).tolist())
        for label, tied in zip(table.labels[:, 0].tolist(), table.tied, strict=True)
    ]
    classes = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    class_of = np.array([classes[key] for key in keys], dtype=np.int64)
    widths = np.bincount(class_of, weights=table.stops - table.starts, minlength=len(classes))
    whole = float(table.stops[-1] - table.starts[0]) or 1.0
    return {
        "order": decisions.order,
        "starts": encode_array(table.starts),
        "class_of": encode_array(class_of),
        "margins": encode_array(table.margins[:MAX_LISTED_INTERVALS]),
        "classes": [
            {
                "curve": curve_of[label],
                "name": " = ".join(names[i] for i in ties) if ties else names[label],
                "tie": bool(ties),
                "share": format_share(min(float(widths[number]) / whole, 1.0)),
            }
            for (label, *ties), number in classes.items()
        ],
    }
