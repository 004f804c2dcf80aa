"""The band shows every interval in its colour, marks the narrow ones, and stacks ties."""

import matplotlib.pyplot as plt
import pytest
from torch import nn

import exactline as xl
from exactline.plot import decisions as module
from exactline.plot.decisions import HATCHES, MAX_LEGEND_ROWS, plot_decisions
from exactline.plot.figure import save_picture
from exactline.plot.style import COLOURS, check_labels
from tests.decide.test_decisions import affine


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


def bars(ax):
    """Start, end and height of each bar of the band, with its colour."""
    found = []
    for bar in ax.collections:
        if bar.get_facecolor().size and bar.get_paths()[0].vertices.shape[0] == 5:
            colour = tuple(bar.get_facecolor()[0][:3])
            boxes = [path.get_extents() for path in bar.get_paths()]
            found += [(colour, round(b.x0, 9), round(b.x1, 9), round(b.height, 9)) for b in boxes]
    return found


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_interval_has_its_bar_and_the_legend_names_the_labels():
    decisions = xl.restrict(affine((0.0, 1.0), (0.5, 0.0), (-9.0, 0.0)), [0.0], [1.0]).decisions()
    ax = decisions.plot(labels=["up", "flat", "low"])
    assert sorted((x0, x1) for _, x0, x1, _ in bars(ax)) == [(0.0, 0.5), (0.5, 1.0)]
    assert texts(ax) == ["up", "flat", "never"]
    assert "2 intervals" in ax.get_xlabel()


def test_ties_share_the_height():
    ax = xl.restrict(affine((0.0, 1.0), (0.0, 1.0)), [0.0], [1.0]).decisions().plot()
    assert [round(height, 6) for *_, height in bars(ax)] == [0.045, 0.045]
    assert len({colour for colour, *_ in bars(ax)}) == 2


def test_a_narrow_interval_is_marked():
    width = 1e-6
    decisions = xl.restrict(affine((0.0, 1.0), (0.5 + width, 0.0), (1.0, -1.0)), [0.0], [1.0]).decisions()
    assert decisions.labels == [2, 1, 0]
    ax = decisions.plot()
    (marker,) = [line for line in ax.lines if line.get_marker() == "v"]
    assert marker.get_xdata()[0] == pytest.approx(0.5)
    assert "under 0.4 %" in texts(ax)


def test_many_labels_differ_by_hatches_and_the_legend_is_limited(tmp_path):
    rows = [(-((i / 20) ** 2), 2 * i / 20) for i in range(21)]  # tangents of a parabola: each leads somewhere
    decisions = xl.restrict(affine(*rows), [0.0], [1.0]).decisions()
    assert len(decisions) == 21
    ax = decisions.plot()
    assert {bar.get_hatch() for bar in ax.collections} >= set(HATCHES[1:3])
    assert len(texts(ax)) == MAX_LEGEND_ROWS
    assert len(COLOURS) * len(HATCHES) >= 21
    assert save_picture(ax, tmp_path / "a.svg").stat().st_size > 0


def test_given_axes_tuples_of_labels_and_stopped_lines():
    line = xl.restrict(nn.Sequential(affine((-0.5, 1.0), (0.25, 0.0)), nn.ReLU()), [0.0], [1.0], max_breaks=1)
    _, ax = plt.subplots()
    assert line.decisions(top=2).plot(ax) is ax
    whole = xl.restrict(affine((0.0, 1.0), (0.5, 0.0)), [0.0], [1.0]).decisions(top=2)
    assert texts(whole.plot()) == ["0 > 1", "1 > 0"]
    thousands = xl.restrict(nn.Sequential(nn.Linear(1, 9000), nn.ReLU(), nn.Linear(9000, 2)), [-9.0], [9.0])
    assert len(thousands) > 4000
    assert thousands.decisions().plot() is not None


def test_dense_parts_become_pixels_in_vector_formats_and_text_stays(tmp_path, monkeypatch):
    decisions = xl.restrict(affine((0.0, 1.0), (0.5, 0.0)), [0.0], [1.0]).decisions()
    for limit in (2000, 1):
        monkeypatch.setattr(module, "MAX_VECTOR_BREAKS", limit)
        monkeypatch.setattr(module, "MAX_VECTOR_INTERVALS", limit)
        text = save_picture(plot_decisions(decisions, labels=["left", "right"]), tmp_path / "a.svg").read_text()
        assert (text.count("<image") > 0) == (limit == 1)
        assert ">right</text>" in text


def test_names_must_fit():
    assert check_labels(None, 2) == ["0", "1"]
    with pytest.raises(xl.ArgumentError, match="3 names for 2"):
        check_labels(["a", "b", "c"], 2)


def test_a_threshold_is_drawn_beside_the_output():
    line = xl.restrict(affine((-1.0, 2.0)), [0.0], [1.0])
    ax = plot_decisions(line.decisions(threshold=0.5), labels=["low", "high"])
    assert [round(stop, 9) for _, _, stop, _ in bars(ax)] == [0.75, 1.0]
    assert [curve.get_ydata().tolist() for curve in ax.lines[:2]] == [[0.5, 0.5], [-1.0, 1.0]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["low", "high"]
