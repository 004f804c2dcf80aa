"""A picture of a line shows every break in the colour of its node, and the exact values."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from exactline.errors import ArgumentError, FileError
from exactline.plot import line as module
from exactline.plot.figure import save_picture
from exactline.plot.line import MAX_CURVES, MAX_TICKS, TICK_BINS, plot_line


class FakeLine:
    """The part of a Restriction that a picture needs."""

    def __init__(self, alphas, values, nodes):
        self.alphas = torch.as_tensor(alphas, dtype=torch.float64)
        self.values = values
        self.names = ("input", "relu", *(f"relu_{i}" for i in range(30)))
        self.origins = [None, *(SimpleNamespace(node=node, unit=0, count=1) for node in nodes), None]

    def __len__(self):
        return len(self.alphas) - 1


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


@pytest.fixture
def bent():
    """Two outputs at five breaks; two nodes caused the inner three."""
    values = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0], [3.0, 2.0], [0.5, 4.0]])
    return FakeLine([0, 0.25, 0.5, 0.75, 1], values, ["relu_1", "relu", "relu_1"])


def ticks(ax):
    return [c for c in ax.collections if isinstance(c, LineCollection)]


def tick_alphas(collection):
    return [path.vertices[0, 0] for path in collection.get_paths()]


def test_curves_go_through_every_break(bent):
    ax = plot_line(bent)
    assert len(ax.lines) == 2
    for coordinate, curve in enumerate(ax.lines):
        np.testing.assert_array_equal(curve.get_xdata(), bent.alphas)
        np.testing.assert_array_equal(curve.get_ydata(), bent.values[:, coordinate])


def test_each_node_has_its_own_row_and_colour_the_first_on_top(bent):
    ax = plot_line(bent)
    assert [tick_alphas(c) for c in ticks(ax)] == [[0.5], [0.25, 0.75]]
    colours = [tuple(c.get_color()[0]) for c in ticks(ax)]
    assert len(set(colours)) == 2
    labels = {text.get_text(): text.get_color() for text in ax.texts}
    assert list(labels) == ["relu", "relu_1"]
    assert [to_rgba(c) for c in labels.values()] == colours


def test_the_picture_is_as_high_as_the_curves_it_shows():
    values = 100 + torch.rand(3, MAX_CURVES + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[:, -1] -= 1000  # the only one that is left out
    ax = plot_line(FakeLine([0, 0.5, 1], values, ["relu"]))
    low, high = ax.get_ylim()
    assert len(ax.lines) == MAX_CURVES
    assert values[:, :-1].min() - 0.2 < low < values[:, :-1].min()
    assert values.max() < high < values.max() + 0.1


def test_ticks_lie_below_all_values(bent):
    ax = plot_line(bent)
    low, high = ax.get_ylim()
    top_of_ticks = max(path.vertices[:, 1].max() for c in ticks(ax) for path in c.get_paths())
    assert low + top_of_ticks * (high - low) < bent.values.min()
    assert high > bent.values.max()


def test_given_axes_are_used_and_returned(bent):
    _, ax = plt.subplots()
    assert plot_line(bent, ax) is ax


def test_a_line_without_inner_breaks_can_be_drawn():
    ax = plot_line(FakeLine([0, 1], torch.tensor([[2.0], [2.0]]), []))
    assert ticks(ax) == []
    assert ax.get_legend() is None


def test_many_breaks_are_thinned_but_curves_are_not():
    count = MAX_TICKS + 2
    inner = np.linspace(0, 1, count + 2)
    line = FakeLine(inner, torch.linspace(0, 1, count + 2)[:, None], ["relu"] * count)
    ax = plot_line(line)
    (row,) = ticks(ax)
    shown = tick_alphas(row)
    assert TICK_BINS // 2 < len(shown) <= TICK_BINS + 1
    assert set(shown) <= set(inner.tolist())
    assert len(ax.lines[0].get_xdata()) == count + 2


def test_of_many_outputs_those_that_lead_are_drawn():
    values = torch.zeros(3, 50)
    values[0, 7] = values[1, 33] = values[2, 49] = 5.0
    ax = plot_line(FakeLine([0, 0.5, 1], values, ["relu"]))
    drawn = {curve.get_label() for curve in ax.lines}
    assert len(drawn) == MAX_CURVES
    assert drawn >= {"7", "33", "49"}
    assert "10 of 50" in ax.get_legend().get_title().get_text()


def test_one_of_several_outputs_is_chosen():
    line = FakeLine([0, 1], (torch.zeros(2, 1), torch.ones(2, 1)), [])
    assert plot_line(line, output=1).lines[0].get_ydata().tolist() == [1, 1]
    with pytest.raises(ArgumentError, match="no output 2"):
        plot_line(line, output=2)


def test_values_of_any_shape_are_drawn():
    assert len(plot_line(FakeLine([0, 1], torch.rand(2, 2, 3), [])).lines) == 6
    assert len(plot_line(FakeLine([0, 1], torch.rand(2), [])).lines) == 1


def test_many_nodes_name_the_first_and_the_last():
    nodes = [f"relu_{i}" for i in range(30)]
    ax = plot_line(FakeLine(np.linspace(0, 1, 32), torch.rand(32, 1), nodes))
    assert len(ticks(ax)) == 30
    assert [text.get_text() for text in ax.texts] == ["relu_0", "relu_29"]


def test_drawing_leaves_matplotlib_as_it_was(bent):
    before = dict(plt.rcParams)
    plot_line(bent)
    assert dict(plt.rcParams) == before


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.every(3)
def test_a_picture_is_saved(bent, tmp_path, suffix):
    path = save_picture(plot_line(bent), tmp_path / f"line.{suffix}")
    assert path.stat().st_size > 1000
    if suffix == "svg":
        assert ">relu_1</text>" in path.read_text()  # text, not outlines


def test_axes_without_a_figure_cannot_be_saved(bent, tmp_path):
    ax = plot_line(bent)
    ax.remove()
    with pytest.raises(ArgumentError, match="no figure"):
        save_picture(ax, tmp_path / "line.png")


@pytest.mark.parametrize(("name", "message"), [("missing/a.png", "cannot be written"), ("a.nonsense", ".png, .pdf or")])
def test_a_picture_that_cannot_be_saved_says_so_and_leaves_nothing(bent, tmp_path, name, message):
    with pytest.raises(FileError, match=message):
        save_picture(plot_line(bent), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
@pytest.mark.every(2)
def test_the_same_line_is_the_same_file(bent, tmp_path, suffix):
    one, two = (save_picture(plot_line(bent), tmp_path / f"{i}.{suffix}").read_bytes() for i in range(2))
    assert one == two


def test_saving_leaves_matplotlib_as_it_was(bent, tmp_path):
    before = dict(plt.rcParams)
    save_picture(plot_line(bent), tmp_path / "line.pdf")
    assert dict(plt.rcParams) == before
    assert b"/FontFile2" in (tmp_path / "line.pdf").read_bytes()  # TrueType, which editors can read


def test_dense_curves_become_pixels_in_vector_formats_and_text_stays(bent, tmp_path, monkeypatch):
    for limit in (20_000, 4):
        monkeypatch.setattr(module, "MAX_VECTOR_BREAKS", limit)
        text = save_picture(plot_line(bent), tmp_path / "line.svg").read_text()
        assert (text.count("<image") > 0) == (limit == 4)
        assert ">alpha (4 pieces)</text>" in text


def test_a_long_line_makes_a_small_vector_file(tmp_path):
    count = 100_000
    values = torch.randn(count, 10, dtype=torch.float64).cumsum(0)
    line = FakeLine(np.linspace(0, 1, count), values, ["relu"] * (count - 2))
    assert save_picture(plot_line(line), tmp_path / "line.svg").stat().st_size < 1_500_000


def test_outputs_can_have_names(bent):
    assert [curve.get_label() for curve in plot_line(bent, labels=["low", "high"]).lines] == ["low", "high"]
    with pytest.raises(ArgumentError, match="1 name for 2"):
        plot_line(bent, labels=["low"])


def test_dashes_survive_2_000_breaks():
    rng = np.random.default_rng(0)
    alphas = np.concatenate([[0.0], np.sort(rng.uniform(0, 1, 2000)), [1.0]])
    values = torch.from_numpy(rng.normal(size=(2002, 12)))
    ax = plot_line(FakeLine(alphas.tolist(), values, ["relu"]), labels=[f"output {i}" for i in range(12)])
    drawn = {curve.get_label(): curve.get_xydata() for curve in ax.lines}
    second = {"output 10", "output 11"} & set(drawn)  # at most ten outputs are drawn, those that lead first
    solid, dashed = (next(v for k, v in drawn.items() if (k in second) == is_second) for is_second in (False, True))
    assert np.isfinite(solid).all()
    gaps = np.isnan(dashed[:, 0])
    assert 50 < gaps.sum() < 60  # one for each period of 0.018
    starts, ends = dashed[:-1, 0][gaps[1:]], dashed[1:, 0][gaps[:-1]]
    assert (ends - starts[:-1] > 0.4 * 0.018 - 1e-9).all()  # wide enough to see: 2.6 pixels of 360
    number = int(next(k for k in drawn if k in second).split()[1])
    inside = dashed[~gaps]
    np.testing.assert_allclose(inside[:, 1], np.interp(inside[:, 0], alphas, values[:, number]), atol=1e-12)
    assert "--" in {row.get_linestyle() for row in ax.get_legend().get_lines()}
