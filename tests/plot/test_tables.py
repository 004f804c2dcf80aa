"""Tables of results and networks: well-formed, escaped, self-contained, with the library's numbers."""

import re
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.plot.tables import MAX_LAYERS, MAX_ROWS, origins_table
from exactline.zoo import loan_line, loan_network, tent_network

HOSTILE = "<script>alert('x')</script>&\"'"


@pytest.fixture(scope="module")
def tent():
    return as_network(tent_network(12), [torch.zeros(1)])


def read(shown):
    """All tables as rows of cells, and all text; what is not well-formed does not parse."""
    tree = ElementTree.fromstring(f"<all>{shown}</all>")
    tables = [[["".join(cell.itertext()) for cell in row] for row in table.iter("tr")] for table in tree.iter("table")]
    return tables, " ".join(tree.itertext())


def test_a_line_shows_its_summary_and_the_origins_of_its_breaks(tent):
    line = xl.restrict(tent, [0.0], [1.0])
    tables, text = read(line._repr_html_())
    assert str(line) in text
    origins = Counter(origin.node for origin in line.origins if origin is not None).most_common()
    assert len(origins) == MAX_ROWS + 2
    rest = sum(count for _, count in origins[MAX_ROWS:])
    rows = [[name, f"{count:,}"] for name, count in origins[:MAX_ROWS]] + [["2 more nodes", f"{rest:,}"]]
    assert tables == [[["node", "breaks"], *rows]]


def test_the_strip_has_a_stroke_where_there_is_a_break():
    shown = xl.restrict(loan_network(), *loan_line())._repr_html_()
    assert re.findall(r"M([\d.]+) 0v10", shown) == ["133.5", "266.5"]  # thirds of 400
    assert "2 breaks from alpha 0 to 1" in read(shown)[1]


def test_lines_without_breaks_or_without_pieces_are_shown_too(tent):
    assert read(xl.restrict(nn.Linear(1, 1), [0.0], [1.0])._repr_html_())[0] == []
    empty = xl.restrict(tent, [0.0], [1.0], seconds=0)
    assert "0 pieces" in read(empty._repr_html_())[1]
    assert "stopped by max_breaks" in read(xl.restrict(tent, [0.0], [1.0], max_breaks=5)._repr_html_())[1]


def test_many_lines_are_counted(tent):
    ends = torch.linspace(0.1, 1, 13, dtype=torch.float64)[:, None]
    lines = xl.restrict_many(tent, torch.zeros_like(ends), ends)
    (rows,), text = read(lines._repr_html_())
    pieces = lines.pieces.tolist()
    assert rows[0] == ["line", "pieces"]
    assert rows[1:-1] == [[str(i), f"{count:,}"] for i, count in enumerate(pieces[:MAX_ROWS])]
    assert rows[-1] == ["3 more", f"{sum(pieces[MAX_ROWS:]):,}"]
    assert f"13 lines, {sum(pieces):,} pieces, {min(pieces):,} to {max(pieces):,} per line" in text
    none = xl.restrict_many(tent, ends[:0], ends[:0])
    assert "0 lines, 0 pieces" in read(none._repr_html_())[1]


def test_many_lines_say_where_they_were_stopped(tent):
    lines = xl.restrict_many(tent, [[0.0], [0.0]], [[1.0], [1e-9]], max_breaks=100)
    (rows,), _ = read(lines._repr_html_())
    assert rows[0] == ["line", "pieces", "stopped at alpha"]
    reached = [line.reached for line in lines]
    assert [row[2] for row in rows[1:]] == ["" if end == 1 else f"{end:.6g}" for end in reached]
    assert any(end != 1 for end in reached)


def test_a_plane_shows_its_sizes_and_its_edges():
    plane = xl.restrict_plane(nn.ReLU(), [[-1.0, -1.0], [3.0, -1.0], [3.0, 1.0], [-1.0, 1.0]])
    (sizes, origins), text = read(plane._repr_html_())
    assert str(plane) in text
    assert [row[1] for row in sizes] == ["8", "0.375", "0.125"]
    assert origins == [["node", "edges"], ["relu", "4"]]


def test_a_network_shows_its_layers(tent):
    (rows,), text = read(tent._repr_html_())
    assert rows[0] == ["layer", "operator", "kind", "output", "units"]
    assert rows[1:4] == [
        ["input", "input", "input", "1", ""],
        [tent.nodes[1].name, "linear", "affine", "2", ""],
        [tent.nodes[2].name, "relu", "breaking", "2", "2"],
    ]
    assert "1 to 1, 24 relu units" in text
    deep = as_network(tent_network(24), [torch.zeros(1)])
    assert read(deep._repr_html_())[0][0][-1][0] == f"{len(deep.nodes) - MAX_LAYERS} more"


def test_names_are_escaped_and_nothing_is_fetched(tent):
    nodes = tuple(replace(node, name=HOSTILE) for node in tent.nodes)
    network = replace(tent, nodes=nodes, notes=(HOSTILE,), device_copies={})
    line = xl.restrict(network, [0.0], [1.0])
    plane = xl.restrict_plane(as_network(nn.ReLU(), [torch.zeros(2)]), [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]])
    for one in (line, network, replace(plane, names=(HOSTILE,) * len(plane.names))):
        shown = one._repr_html_()
        assert HOSTILE in read(shown)[1]
        assert "<script" not in shown
        assert not re.search(r"(src|href|url\()", shown)


@pytest.mark.parametrize(
    ("max_rows", "rows"),
    [(None, [["relu", "2"], ["hardtanh", "1"]]), (1, [["relu", "2"], ["1 more node", "1"]])],
)
def test_the_terminal_table_counts_breaks_by_node(max_rows, rows):
    model = nn.Sequential(nn.ReLU(), nn.Hardtanh(-0.5, 0.5))  # breaks at 1/3 and 12/13, and at 1/2
    line = xl.restrict(model, [-1.0, -3.0], [2.0, 0.25])
    console = Console(width=120)
    with console.capture() as captured:
        console.print(origins_table(line, max_rows=max_rows))
    shown = [row.split("│")[1:3] for row in captured.get().splitlines() if row.startswith("│")]
    assert [[cell.strip() for cell in row] for row in shown] == rows
