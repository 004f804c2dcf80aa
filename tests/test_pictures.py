"""plot_regions: every linear region in the colour of its class, the exact boundary, and the data."""

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from torch import nn

import exactline as xl
from exactline.plot.figure import save_picture
from exactline.plot.palette import CLASS_COLOURS, DARK_CLASS_COLOURS, DARK_PAPER, fill_colour
from tests.plot.test_plane import Diamond, pixels

BOX = ((-2, 2), (-2, 2))
POINTS = np.array([[0.1, 0.2], [1.5, 1.5], [-1.0, 1.2]])


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


def network(width=12, outputs=3, ending=()):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, outputs), *ending).double()


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def scattered(ax):
    """The points and their colours."""
    dots = ax.collections[-1]
    return dots.get_offsets(), dots.get_facecolors()[:, :3]


@pytest.mark.parametrize(
    ("theme", "colours", "is_dark"), [("light", CLASS_COLOURS, False), ("dark", DARK_CLASS_COLOURS, True)]
)
def test_places_have_shades_of_their_class_and_points_its_colour(theme, colours, is_dark):
    ax = xl.plot_regions(Diamond(), (POINTS, [1, 0, 0]), BOX, theme=theme)
    places = np.random.default_rng(0).uniform(-1.95, 1.95, (2000, 2))
    size = np.abs(places).sum(1)
    far = np.abs(places[:, None] - POINTS).max(2).min(1) > 0.15
    clear = (np.abs(size - 1) > 0.12) & (np.abs(places).min(1) > 0.05) & far
    fills = np.array([to_rgb(fill_colour(colour, dark=is_dark)) for colour in colours[:2]])
    distance = np.abs(pixels(ax, places)[clear, None] - fills).max(2)
    np.testing.assert_array_equal(distance.argmin(1), (size < 1)[clear].astype(int))
    assert distance.min(1).max() < 0.12  # shades of the fill
    at, drawn = scattered(ax)
    np.testing.assert_array_equal(at, POINTS)
    np.testing.assert_allclose(drawn, [to_rgb(colours[i]) for i in (1, 0, 0)])
    assert (ax.get_facecolor()[:3] == to_rgb(DARK_PAPER)) == is_dark


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_hundred_thousand_regions_are_drawn_in_seconds(theme, tmp_path, capsys):
    lines = 320  # parallel to each axis
    torch.manual_seed(0)
    hidden, last = nn.Linear(2, 2 * lines).double(), nn.Linear(2 * lines, 2).double()
    with torch.no_grad():
        hidden.weight.copy_(torch.eye(2, dtype=torch.float64).repeat_interleave(lines, 0))
        hidden.bias.copy_(torch.linspace(-1.9, 1.9, lines, dtype=torch.float64).repeat(2))
    began = process_time()
    ax = xl.plot_regions(nn.Sequential(hidden, nn.ReLU(), last), (POINTS, [1, 0, 0]), BOX, theme=theme)
    save_picture(ax, tmp_path / "regions.png")
    seconds = process_time() - began
    assert ax.get_title("left").startswith(f"{(lines + 1) ** 2:,} linear regions")
    with capsys.disabled():
        print(f"\n{(lines + 1) ** 2:,} regions, {theme}: {seconds:.1f} s of processor time")
    assert seconds < 60


def test_defaults_come_from_the_data():
    points = torch.tensor([[0.0, 10.0], [2.0, 30.0], [1.0, 20.0]], dtype=torch.float64)
    ax = xl.plot_regions(network(), (points, torch.tensor([0, 1, 2])))
    assert ax.get_xlim() == pytest.approx((-0.24, 2.24))
    assert ax.get_ylim() == pytest.approx((7.6, 32.4))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0]", "x[1]")
    plane = xl.grid(network(), [0.0, 0.0], box=((-0.24, 2.24), (7.6, 32.4)))
    assert ax.get_title(loc="left").startswith(f"{len(plane):,} linear region")
    assert "(" not in "".join(legend_texts(ax))


def test_names_titles_axes_and_files(tmp_path):
    _, given = plt.subplots()
    ax = xl.plot_regions(
        network(),
        (POINTS, np.array(["low", "high", "high"])),
        BOX,
        ax=given,
        features=["speed (m/s)", "height (m)"],
        labels=["low", "middle", "high"],
        title="a flight",
        path=tmp_path / "a.svg",
    )
    assert ax is given
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("speed (m/s)", "height (m)", "a flight")
    assert {text.split("  ")[0] for text in legend_texts(ax)} <= {"low", "middle", "high"}
    assert ">speed (m/s)</text>" in (tmp_path / "a.svg").read_text()
    np.testing.assert_allclose(scattered(ax)[1], [to_rgb(CLASS_COLOURS[i]) for i in (0, 2, 2)])


@pytest.mark.parametrize("box", [BOX, ((-2, 2), (-0.8, 0.8)), ((-1, 1), (-1.2, 1.2))], ids=["square", "flat", "tall"])
def test_nothing_is_cut_off_and_no_space_is_left(box):
    names = ["a class with a long name", "b", "c"]
    ax = xl.plot_regions(network(), None, box, labels=names, features=["speed (m/s)", "height (m)"])
    figure = ax.get_figure()
    figure.canvas.draw()
    outer, drawn = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert outer.x0 <= drawn.x0
    assert drawn.x1 <= outer.x1
    assert drawn.height > 0.9 * outer.height


def test_a_classifier_of_scikit_learn_brings_its_names():
    neural, pandas = pytest.importorskip("sklearn.neural_network"), pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["width", "height"])
    sides = np.where(frame["width"] > 0, "right", "left")
    model = neural.MLPClassifier((8,), random_state=0, learning_rate_init=0.05)
    for _ in range(30):
        model.partial_fit(frame, sides, classes=["left", "right"])
    ax = xl.plot_regions(model, (frame, sides))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "height")
    assert [text.split("  ")[0] for text in legend_texts(ax)] == ["left", "right"]


def test_a_regressor_is_coloured_by_its_values():
    model = network(outputs=1)
    ax = xl.plot_regions(model, (POINTS, [0.5, 0.2, 0.1]), BOX)
    assert ax.get_legend() is None
    low, high = ax.collections[0].get_clim()
    values = xl.grid(model, [0.0, 0.0], box=BOX).values
    assert (low, high) == pytest.approx((float(values.min()), float(values.max())))
    assert len(legend_texts(xl.plot_regions(model, bounds=BOX, threshold=float(values.mean())))) == 2
    assert (
        xl.plot_regions(network(outputs=1, ending=[nn.Sigmoid()]), bounds=((-9, 9), (-9, 9))).get_legend() is not None
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "neither data nor bounds"),
        ({"data": np.zeros((4, 3))}, r"shape \(4, 3\)"),
        ({"data": [["a", "b"]]}, "not numbers"),
        ({"data": [[0.0, np.nan]]}, "NaN"),
        ({"data": (POINTS, [0, 1])}, "3 points, and classes of shape"),
        ({"data": (POINTS, [0, 1, 7])}, "not those of the model, which has 3"),
        ({"data": (POINTS, ["a", "b", "c"])}, "not those of the model"),
        ({"bounds": BOX, "theme": "blue"}, "no theme 'blue'"),
        ({"bounds": BOX, "features": ["a"]}, "1 name for 2 features"),
        ({"bounds": BOX, "labels": ["a"]}, "1 name for 3 outputs"),
        ({"bounds": BOX, "colors": ["red"]}, "1 colours for 3"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, problem):
    with pytest.raises(xl.ArgumentError, match=problem):
        xl.plot_regions(network(), **arguments)


def test_bounds_that_are_none_are_refused():
    for bounds in ((0, 1), ((1, 0), (0, 1))):
        with pytest.raises(xl.PlaneError) as refused:
            xl.plot_regions(network(), bounds=bounds)
        assert refused.value.where == "argument bounds"
