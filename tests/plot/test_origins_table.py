"""The table of breaks says what the line says."""

import pytest
from rich.console import Console
from torch import nn

import exactline as xl
from exactline.plot.origins_table import births_table

MODEL = nn.Sequential(nn.ReLU(), nn.Hardtanh(-0.5, 0.5))  # breaks at 1/3 and 12/13, and at 1/2


@pytest.mark.parametrize(
    ("most", "rows"),
    [(None, [["relu", "2"], ["hardtanh", "1"]]), (1, [["relu", "2"], ["1 more node", "1"]])],
)
def test_breaks_are_counted_by_node(most, rows):
    line = xl.restrict(MODEL, [-1.0, -3.0], [2.0, 0.25])
    console = Console(width=120)
    with console.capture() as captured:
        console.print(births_table(line, most=most))
    shown = [row.split("│")[1:3] for row in captured.get().splitlines() if row.startswith("│")]
    assert [[cell.strip() for cell in row] for row in shown] == rows
