"""A line with more than 100,000 pieces: a small file, fast drawing, and every interval and peak is shown."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline import zoo

pytestmark = pytest.mark.browser


class TentMixture(nn.Module):
    """Outputs that add a tent map of 2**17 pieces to slow piecewise-linear functions."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.tent = zoo.tent_network(17)
        self.slow, self.mix = nn.Linear(1, 24, dtype=torch.float64), nn.Linear(24, 10, dtype=torch.float64)
        self.slow.weight.data = 4 * torch.randn(24, 1, generator=generator).double()
        self.slow.bias.data = -self.slow.weight.data[:, 0] * torch.rand(24, generator=generator)
        self.mix.weight.data = torch.randn(10, 24, generator=generator).double()
        self.fast = nn.Parameter(0.8 * torch.randn(1, 10, generator=generator).double().abs())

    def forward(self, x):
        return self.tent(x) @ self.fast + self.mix(torch.relu(self.slow(x)))


@cache
def long_line():
    line = xl.restrict(TentMixture().eval(), [0.0], [1.0])
    return replace(line, network=None, stored_errors=line.errors)


@cache
def long_decisions():
    return long_line().decisions()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return long_line().to_html(tmp_path_factory.mktemp("many") / "a.html")


def show_range(page, lo, width):
    page.js("exactline.show(arguments[0], arguments[1])", lo, width)
    page.wait_drawn()
    return page.state()


def test_all_intervals_are_drawn_or_counted_and_values_are_the_librarys(page, path):
    line, table = long_line(), long_decisions().table
    assert len(line) > 100_000
    assert path.stat().st_size < 15e6
    page.open(path)
    for lo, width in ((0.0, 1.0), (0.25, 0.05), (0.2, 0.001), (0.4, 0.3)):
        state = show_range(page, lo, width)
        lo, width = state["lo"], state["width"]
        inside = (table.stops >= lo) & (table.starts <= lo + width)
        narrow = (table.stops - table.starts) / width * state["box"]["wide"] < 5
        assert sum(marker["count"] for marker in state["markers"]) == (inside & narrow).sum()
    for alpha in np.random.default_rng(1).uniform(0, 1, 20).tolist():
        page.type_alpha(repr(alpha))
        cells = page.js(
            "return [...document.querySelectorAll('#curves b')].map(b => [b.dataset.output, b.textContent])"
        )
        values = line.at(alpha).numpy()
        assert [float(text) for _, text in cells] == pytest.approx([values[int(i)] for i, _ in cells], abs=1e-12)
        assert page.info()["class"] == str(long_decisions().at(alpha).label)
    times = page.js("for (let i = 0; i < 21; i++) exactline.draw(); return exactline.times.slice(-21)")
    size = path.stat().st_size / 1e6
    print(f"{len(line):,} pieces, {size:.1f} MB: drawn in {min(times):.1f} ms, median {np.median(times):.1f}")
    assert np.median(times) < 500  # a few ms on an idle machine


def test_each_column_of_pixels_reaches_from_the_least_to_the_largest_value(page, path):
    line = long_line()
    page.open(path)
    page.js("for (const box of [...document.querySelectorAll('#curves input')].slice(1)) box.click()")  # one curve
    output = int(page.js("return document.querySelector('#curves b').dataset.output"))
    state = show_range(page, 0.3, 0.4)
    box, low, most = state["box"], state["valueRange"]["low"], state["valueRange"]["most"]
    left, top, high = round(box["left"]), round(box["top"]), round(box["low"] - box["top"])
    picture = page.pixels("base", left, top, round(box["wide"]), high)
    alphas, values = line.alphas.numpy(), line.values[:, output].numpy()
    columns = round(box["wide"])
    saturated = picture.max(2) - picture.min(2) > 60  # the curve; paper, grid and boundaries are grey
    edges = state["lo"] + np.arange(columns + 1) / columns * state["width"]
    ends = np.interp(edges, alphas, values)
    for k in range(3, columns - 3, 7):
        inner = values[(alphas >= edges[k]) & (alphas <= edges[k + 1])]
        assert len(inner) > 20
        least, largest = min(inner.min(), *ends[k : k + 2]), max(inner.max(), *ends[k : k + 2])
        rows = np.flatnonzero(saturated[:, k])
        upper, lower = ((most - v) / (most - low) * high for v in (largest, least))
        assert rows.min() == pytest.approx(upper, abs=2.5)
        assert rows.max() == pytest.approx(lower, abs=2.5)


def test_a_single_piece_among_so_many(page, path):
    line = long_line()
    page.open(path)
    alpha = float(line.alphas[70_001] + line.alphas[70_002]) / 2
    page.type_alpha(repr(alpha))
    page.press("piece")
    state = page.state()
    assert state["width"] == pytest.approx(1.3 * float(line.alphas[70_002] - line.alphas[70_001]))
    assert page.info()["piece"] == f"70001 (of 0 to {len(line) - 1})"
    assert page.text("range").endswith("2 breaks")


def test_markers_and_the_table_lead_to_narrow_intervals(page, path):
    table = long_decisions().table
    page.open(path)
    state = page.state()
    marker = max(state["markers"], key=lambda m: m["count"])
    page.hover(marker["x"], state["box"]["band"] - 6)
    assert f"{marker['count']:,} narrow intervals" in page.text("tip")
    page.drag((marker["x"], state["box"]["band"] - 6), (marker["x"], state["box"]["band"] - 6))  # a click
    assert page.state()["width"] < 0.1
    page.js("document.querySelectorAll('#intervals button')[3].click()")
    page.wait_drawn()
    state = page.state()
    assert state["lo"] + 0.3 * state["width"] / 1.6 == pytest.approx(table.starts[3], rel=1e-9)
    assert state["width"] == pytest.approx(1.6 * (table.stops[3] - table.starts[3]), rel=1e-6)
    assert page.info()["class"] == str(long_decisions()[3].label)
