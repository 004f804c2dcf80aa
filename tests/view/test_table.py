"""Tables say what the line says."""

from types import SimpleNamespace

import torch
from rich.console import Console

from exactline.view.table import births_table, pieces_table


def shown(table):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


class Line:
    """As much of a restriction as a table needs: |x| from -1 to 1, and twice it."""

    alphas = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    values = torch.tensor([[1.0, 2.0], [0.0, -0.0], [1.0, 2.0]])
    born = (None, SimpleNamespace(node="abs_1", unit=0, count=1), None)

    def __len__(self):
        return 2

    def piece(self, i):
        slope = torch.tensor([[1.0], [2.0]]) * (-1 if i == 0 else 1)
        return SimpleNamespace(affine=lambda: (slope, torch.zeros(2)))


def test_pieces_show_stretch_values_and_map():
    text = shown(pieces_table(Line()))
    assert "0 to 0.5" in text
    assert "[1, 2] to [0, 0]" in text
    assert "[[-1], [-2]] x + [0, 0]" in text
    assert "[[1], [2]] x + [0, 0]" in text


def test_several_outputs_are_shown_together():
    line = Line()
    line.values = (Line.values, torch.full((3, 1), 7.0))
    assert "[[1, 2], [7]] to [[0, 0], [7]]" in shown(pieces_table(line))


def test_births_are_counted_by_node():
    birth = Line.born[1]
    line = SimpleNamespace(born=[None, birth, SimpleNamespace(node="relu"), birth, None])
    rows = [row.split("│")[1:3] for row in shown(births_table(line)).splitlines() if row.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [["abs_1", "2"], ["relu", "1"]]
