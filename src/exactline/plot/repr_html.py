"""How answers and networks show themselves in a notebook: small tables that fit light and dark pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from ..humanize import count_noun
from ..network.listing import layers, shaped, weights

if TYPE_CHECKING:
    from torch import Tensor

    from ..network.graph import Network
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

ROWS = 10  # of a table; the rest is counted
LAYERS = 40
COLUMNS = 400  # of the strip of breaks

# Nothing but the page's own colour and shades of grey that show on white and on black.
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
    """A line: what it says of itself, where its breaks lie, which nodes bore them."""
    return _framed("Restriction", str(line), _strip(line.alphas), _births("breaks", line.origin_table, line.names))


def lines_html(lines: Restrictions) -> str:
    """Many lines: their sum, and the first of them."""
    pieces = lines.pieces.tolist()
    reached = [float(lines.alphas[b - 1]) if b > a else 0.0 for a, b in pairwise(lines.offsets.tolist())]
    rows = [
        (f"{i:,}", f"{count:,}", "" if end == 1.0 else f"{end:.6g}")
        for i, (count, end) in enumerate(zip(pieces[:ROWS], reached, strict=False))
    ]
    if rest := pieces[ROWS:]:
        rows.append((f"{len(rest):,} more", f"{sum(rest):,}", ""))
    stopped = any(end != 1.0 for end in reached)
    head = ("line", "pieces", "stopped at alpha") if stopped else ("line", "pieces")
    said = f"{len(lines):,} lines, {sum(pieces):,} pieces"
    if pieces:
        said += f", {min(pieces):,} to {max(pieces):,} of a line"
    return _framed("Restrictions", said, _table("", head, [row[: len(head)] for row in rows], right=(0, 1, 2)))


def plane_html(plane: PlaneRestriction) -> str:
    """A plane: what it says of itself, the sizes of its polygons, which nodes bore its edges."""
    shares = plane.shares
    sizes = [
        ("area of the whole", f"{plane.area:.6g}"),
        ("largest polygon, share", f"{float(shares.max()):.4g}"),
        ("smallest polygon, share", f"{float(shares.min()):.4g}"),
    ]
    born = _births("edges", plane.origin_table, plane.names)
    return _framed("PlaneRestriction", str(plane), _table("", ("", ""), sizes, right=(1,)), born)


def network_html(network: Network) -> str:
    """A network: its shapes and its layers."""
    held = weights(network)
    units = " and ".join(f"{count:,} {name}" for name, count in network.units.items()) or "no"
    said = f"{shaped(network.input_shape)} to {shaped(network.output_shape)}, {units} units, {held:,} weights"
    every = layers(network)
    rows = [(n.name, n.operator, n.kind, shaped(n.shape), f"{n.units:,}" if n.units else "") for n in every[:LAYERS]]
    if rest := every[LAYERS:]:
        rows.append((f"{len(rest):,} more", "", "", "", f"{sum(n.units for n in rest):,}"))
    table = _table("", ("layer", "operator", "kind", "output", "units"), rows, right=(4,))
    return _framed("Network", said, table, *(f"<div>{escape(note)}</div>" for note in network.notes))


def _framed(kind: str, said: str, *parts: str) -> str:
    return f'{STYLE}<div class="exactline"><div><b>{kind}</b> {escape(said)}</div>{"".join(parts)}</div>'


def _births(what: str, births: Tensor, names: tuple[str, ...]) -> str:  # (n, 3) node or -1, unit, count
    """How many of them each node bore, the most fertile first."""
    counts = Counter(node for node in births[:, 0].tolist() if node >= 0).most_common()
    rows = [(names[node], f"{count:,}") for node, count in counts[:ROWS]]
    if rest := counts[ROWS:]:
        rows.append((count_noun(len(rest), "more node"), f"{sum(count for _, count in rest):,}"))
    return _table(f"{what} by node", ("node", what), rows, right=(1,))


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> str:
    def cells(kind: str, row: Sequence[str]) -> str:
        marks = (f'<{kind} class="n">' if i in right else f"<{kind}>" for i in range(len(row)))
        return "".join(f"{mark}{escape(text)}</{kind}>" for mark, text in zip(marks, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    if not body:
        return ""
    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"


def _strip(alphas: Tensor) -> str:  # (breaks,)
    """Where breaks lie, one stroke for each column that has any, darker where there are more."""
    inner = alphas[1:-1]
    if not len(inner):
        return ""
    columns = Counter((inner * COLUMNS).long().clamp(max=COLUMNS - 1).tolist())
    most = max(columns.values())
    strokes: dict[int, list[int]] = {}  # by shade, so that each shade is one path
    for column, count in sorted(columns.items()):
        strokes.setdefault(max(1, round(4 * count / most)), []).append(column)
    paths = "".join(
        f'<path stroke="currentColor" stroke-opacity="{0.2 + 0.2 * shade:.1f}"'
        f' d="{"".join(f"M{c}.5 0v10" for c in places)}"/>'
        for shade, places in strokes.items()
    )
    label = f"{len(inner):,} breaks from alpha 0 to {float(alphas[-1]):.6g}"
    box = f'viewBox="0 0 {COLUMNS} 10" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{label}"><title>{label}</title>{paths}</svg>'
