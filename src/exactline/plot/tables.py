"""Tables of results and networks: HTML for notebooks, which fits light and dark pages, and tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from ..humanize import count_noun
from ..network.listing import count_weights, format_shape, list_layers

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..network.graph import Network
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

MAX_ROWS = 10  # of a table in a notebook; the others are summed up
MAX_LAYERS = 40
STRIP_COLUMNS = 400  # of the picture of breaks

# The page's own text colour, and greys that are visible on white and on black.
STYLE = """<style>
.exactline {color: inherit; font-size: 13px; line-height: 1.4; max-width: 100%; overflow-x: auto}
.exactline table {border-collapse: collapse; margin: .4em 0; color: inherit; background: none}
.exactline caption {text-align: left; opacity: .75; padding: .2em 0}
.exactline th, .exactline td {text-align: left; padding: .15em .8em .15em 0; border: 0; background: none;
 border-bottom: 1px solid rgba(128, 128, 128, .35); font-variant-numeric: tabular-nums}
.exactline td.n, .exactline th.n {text-align: right}
.exactline svg {display: block; width: 100%; max-width: 40em; height: 14px; margin: .4em 0; color: inherit;
 border: 1px solid rgba(128, 128, 128, .5)}
</style>"""


def line_html(line: Restriction) -> str:
    """A line: its summary, a picture of its breaks, and the nodes that caused them."""
    origins = _origins_html("breaks", line.origin_table, line.names)
    return _wrap("Restriction", str(line), _breaks_svg(line.alphas), origins)


def lines_html(lines: Restrictions) -> str:
    """Many lines: their totals, and the first of them."""
    pieces = lines.pieces.tolist()
    reached = [float(lines.alphas[b - 1]) if b > a else 0.0 for a, b in pairwise(lines.offsets.tolist())]
    rows = [
        (f"{i:,}", f"{count:,}", "" if alpha == 1.0 else f"{alpha:.6g}")
        for i, (count, alpha) in enumerate(zip(pieces[:MAX_ROWS], reached, strict=False))
    ]
    if rest := pieces[MAX_ROWS:]:
        rows.append((f"{len(rest):,} more", f"{sum(rest):,}", ""))
    is_stopped = any(alpha != 1.0 for alpha in reached)
    head = ("line", "pieces", "stopped at alpha") if is_stopped else ("line", "pieces")
    text = f"{len(lines):,} lines, {sum(pieces):,} pieces"
    if pieces:
        text += f", {min(pieces):,} to {max(pieces):,} per line"
    return _wrap("Restrictions", text, _table_html("", head, [row[: len(head)] for row in rows], right=(0, 1, 2)))


def plane_html(plane: PlaneRestriction) -> str:
    """A plane: its summary, the sizes of its polygons, and the nodes that caused its edges."""
    shares = plane.shares
    sizes = [
        ("total area", f"{plane.area:.6g}"),
        ("largest polygon, share", f"{float(shares.max()):.4g}"),
        ("smallest polygon, share", f"{float(shares.min()):.4g}"),
    ]
    origins = _origins_html("edges", plane.origin_table, plane.names)
    return _wrap("PlaneRestriction", str(plane), _table_html("", ("", ""), sizes, right=(1,)), origins)


def network_html(network: Network) -> str:
    """A network: its shapes and its layers."""
    units = " and ".join(f"{count:,} {name}" for name, count in network.units.items()) or "no"
    shapes = f"{format_shape(network.input_shape)} to {format_shape(network.output_shape)}"
    layers = list_layers(network)
    rows = [
        (layer.name, layer.operator, layer.kind, format_shape(layer.shape), f"{layer.units:,}" if layer.units else "")
        for layer in layers[:MAX_LAYERS]
    ]
    if rest := layers[MAX_LAYERS:]:
        rows.append((f"{len(rest):,} more", "", "", "", f"{sum(layer.units for layer in rest):,}"))
    table = _table_html("", ("layer", "operator", "kind", "output", "units"), rows, right=(4,))
    notes = (f"<div>{escape(note)}</div>" for note in network.notes)
    return _wrap("Network", f"{shapes}, {units} units, {count_weights(network):,} weights", table, *notes)


def origins_table(line: Restriction, *, max_rows: int | None = None) -> Table:
    """A table for the terminal: how many breaks each node caused, most first.

    Args:
        line: the line.
        max_rows: at most so many nodes; the others are summed up in one more row.
    """
    from rich.table import Table
    from rich.text import Text  # names in files may hold brackets, which are markup elsewhere

    table = Table(title="breaks by node", title_justify="left")
    table.add_column("node")
    table.add_column("breaks", justify="right")
    for node, count in _count_by_node(line.origin_table, line.names, max_rows):
        table.add_row(Text(node), count)
    return table


def _count_by_node(
    origins: Tensor,  # (n, 3) node or -1, unit, count
    names: tuple[str, ...],
    max_rows: int | None,
) -> list[tuple[str, str]]:
    """How many breaks or edges each node caused, most first; the nodes that are left out are summed up."""
    counts = Counter(names[node] for node in origins[:, 0].tolist() if node >= 0).most_common()
    rows = [(name, f"{count:,}") for name, count in counts[:max_rows]]
    if rest := counts[len(rows) :]:
        rows.append((count_noun(len(rest), "more node"), f"{sum(count for _, count in rest):,}"))
    return rows


def _wrap(kind: str, text: str, *parts: str) -> str:
    return f'{STYLE}<div class="exactline"><div><b>{kind}</b> {escape(text)}</div>{"".join(parts)}</div>'


def _origins_html(what: str, origins: Tensor, names: tuple[str, ...]) -> str:  # (n, 3) node or -1, unit, count
    return _table_html(f"{what} by node", ("node", what), _count_by_node(origins, names, MAX_ROWS), right=(1,))


def _table_html(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> str:
    def cells(kind: str, row: Sequence[str]) -> str:
        tags = (f'<{kind} class="n">' if i in right else f"<{kind}>" for i in range(len(row)))
        return "".join(f"{tag}{escape(text)}</{kind}>" for tag, text in zip(tags, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    if not body:
        return ""
    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"


def _breaks_svg(alphas: Tensor) -> str:  # (breaks,)
    """A strip with a stroke for each column that holds breaks, darker where there are more."""
    inner = alphas[1:-1]
    if not len(inner):
        return ""
    columns = Counter((inner * STRIP_COLUMNS).long().clamp(max=STRIP_COLUMNS - 1).tolist())
    most = max(columns.values())
    strokes: dict[int, list[int]] = {}  # by shade, so that each shade is one path
    for column, count in sorted(columns.items()):
        strokes.setdefault(max(1, round(4 * count / most)), []).append(column)
    paths = "".join(
        f'<path stroke="currentColor" stroke-opacity="{0.2 + 0.2 * shade:.1f}"'
        f' d="{"".join(f"M{c}.5 0v10" for c in at)}"/>'
        for shade, at in strokes.items()
    )
    label = f"{len(inner):,} breaks from alpha 0 to {float(alphas[-1]):.6g}"
    box = f'viewBox="0 0 {STRIP_COLUMNS} 10" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{label}"><title>{label}</title>{paths}</svg>'
