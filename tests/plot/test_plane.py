"""A picture of a plane shows every polygon and every class where it is; the page holds the library's answer."""

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_rgb
from torch import nn

import exactline as xl
from exactline.errors import ArgumentError, FileError, MissingError, PlaneError
from exactline.plot import plane as module
from exactline.plot.figure import save_picture
from exactline.plot.palette import CLASS_COLOURS, fill_colour
from exactline.plot.plane import plot_plane
from exactline.plot.plane_page import write_plane_page
from exactline.plot.style import format_share

SQUARE = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]


class Diamond(nn.Module):
    """Output 1 is the largest where |x| + |y| < 1: a diamond, which is a hole in the region of output 0."""

    def forward(self, x):
        size = x.abs().sum(1, keepdim=True)
        return torch.cat([size, torch.ones_like(size)], 1)


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


@cache
def diamond():
    return xl.grid(Diamond(), [0.0, 0.0], box=((-2, 2), (-2, 2)))


@cache
def deep():
    """Two layers and three outputs, on a triangle in five dimensions."""
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    return layers, xl.restrict_plane(layers, 3 * torch.randn(3, 5, dtype=torch.float64))


def fills(ax):
    return [c for c in ax.collections if isinstance(c, PolyCollection)]


def strokes(ax):
    return [c for c in ax.collections if isinstance(c, LineCollection)]


def legend_texts(ax):
    return [text.get_text().strip("\u200b") for text in ax.get_legend().get_texts()]


def pixels(ax, places):
    """Colours (n, 3) of a drawn figure at places (n, 2) of the plane."""
    ax.figure.canvas.draw()
    image = np.asarray(ax.figure.canvas.buffer_rgba())
    x, y = ax.transData.transform(places).T
    return image[image.shape[0] - 1 - y.astype(int), x.astype(int), :3] / 255


def test_every_polygon_is_drawn_once_with_its_corners():
    _, plane = deep()
    shapes = [path.vertices[:-1] for c in fills(plot_plane(plane)) for path in c.get_paths()]
    expected = np.split(plane.corners[plane.rings].numpy(), plane.offsets[1:-1].tolist())
    assert sorted(s.tolist() for s in shapes) == sorted(e.tolist() for e in expected)
    assert len(shapes) == len(plane) > 20


def test_edges_have_the_colour_of_their_node_and_later_ones_are_thinner():
    _, plane = deep()
    ax = plot_plane(plane)
    nodes = sorted(set(plane.origin_table[:, 0].tolist()) - {-1})
    lines = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert len(lines) == len(nodes) == 2
    assert len({tuple(c.get_edgecolor()[0]) for c in lines}) == 2
    for node, line in zip(nodes, lines, strict=True):
        mine = plane.corners[plane.edges[plane.origin_table[:, 0] == node]]
        drawn = np.concatenate([path.vertices for path in line.get_paths()])
        np.testing.assert_array_equal(drawn.reshape(-1, 2, 2), mine)
    assert lines[0].get_linewidth()[0] > lines[1].get_linewidth()[0]
    tally = [int((plane.origin_table[:, 0] == node).sum()) for node in nodes]
    assert legend_texts(ax) == [f"{plane.names[node]} ({count:,})" for node, count in zip(nodes, tally, strict=True)]


def test_a_plane_without_breaks_is_one_polygon_without_a_legend():
    plane = xl.restrict_plane(nn.Identity(), SQUARE)
    ax = plot_plane(plane)
    assert [len(c.get_paths()) for c in fills(ax)] == [1]
    assert (strokes(ax), ax.get_legend()) == ([], None)
    assert ax.get_title() == "1 polygon"
    plot_plane(xl.restrict_plane(nn.Linear(2, 1), SQUARE), style="decisions", threshold=0.0)


def test_a_class_inside_another_leaves_a_hole_and_areas_are_those_of_a_diamond():
    ax = plot_plane(diamond(), style="decisions", labels=["out", "in"])
    assert legend_texts(ax) == ["out  87.5 %", "in  12.5 %"]  # the diamond has 2 of 16
    places = np.random.default_rng(0).uniform(-1.95, 1.95, (3000, 2))
    size = np.abs(places).sum(1)
    clear = np.abs(size - 1) > 0.06
    expected = np.array([to_rgb(fill_colour(CLASS_COLOURS[int(s < 1)])) for s in size])
    np.testing.assert_allclose(pixels(ax, places)[clear], expected[clear], atol=0.01)


def test_boundaries_are_exact():
    (lines,) = strokes(plot_plane(diamond(), style="decisions"))
    ends = np.array(lines.get_segments())
    np.testing.assert_allclose(np.abs(ends).sum(2), 1, atol=1e-15)
    assert np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum() == pytest.approx(4 * 2**0.5)


def test_pixels_of_a_deep_network_have_the_colour_of_the_class():
    model, plane = deep()
    ax = plot_plane(plane, style="decisions", colors=["#ff0000", "#00ff00", "#0000ff"])
    mixing = np.random.default_rng(1).dirichlet([1, 1, 1], 2000)
    places = mixing @ plane.outline.numpy()
    with torch.no_grad():
        scores = model(torch.from_numpy(mixing) @ plane.vertices[0])
    best = scores.sort(1, descending=True)
    drawn = pixels(ax, places)
    pure = (drawn.max(1) == 1) & (drawn.sum(1) == 1)
    assert pure.mean() > 0.9  # others lie under a line
    np.testing.assert_array_equal(drawn[pure].argmax(1), best.indices[:, 0].numpy()[pure])


def test_ties_differ_from_classes():
    plane = xl.restrict_plane(nn.ReLU(), SQUARE)  # both outputs are 0 in a quarter
    assert legend_texts(plot_plane(plane, style="decisions")) == ["0  37.5 %", "0 = 1  25 %", "1  37.5 %"]
    ax = plot_plane(plane, style="decisions", order="min")
    assert ax.get_legend().get_title().get_text() == "smallest output"


def test_more_classes_than_colours_get_bars_and_the_legend_names_the_largest():
    turns = torch.arange(16) * torch.pi / 8
    fan = nn.Linear(2, 16, bias=False).double()
    fan.weight = nn.Parameter(torch.stack([turns.cos(), turns.sin()], 1).double())
    plane = xl.restrict_plane(fan, SQUARE)
    ax = plot_plane(plane, style="decisions")
    hatches = [patch.get_hatch() for patch in ax.patches[:16]]
    assert [bool(h) for h in hatches] == [False] * 10 + [True] * 6
    assert len(legend_texts(ax)) == 12
    assert ax.get_legend().get_title().get_text() == "12 of 16 classes"


def test_axes_are_features_where_two_of_them_vary():
    plane = xl.grid(
        nn.Sequential(nn.Flatten(), nn.ReLU()), torch.zeros(2, 3), axes=((0, 1), (1, 2)), box=((0, 1), (0, 2))
    )
    ax = plot_plane(plane)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0, 1]", "x[1, 2]")
    names = [f"feature {i} (m)" for i in range(6)]
    ax = plot_plane(plane, features=names)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 1 (m)", "feature 5 (m)")
    with pytest.raises(xl.ArgumentError, match="2 names for 6 features"):
        plot_plane(plane, features=["a", "b"])
    assert ax.get_aspect() == 1
    assert plot_plane(deep()[1]).get_ylabel() == "plane coordinate 1 (units of the input)"


def test_a_long_plane_is_no_line():
    plane = xl.grid(Diamond(), [0.0, 0.0], box=((-2000, 2000), (-2, 2)))
    ax = plot_plane(plane, style="decisions")
    assert ax.get_aspect() == "auto"
    assert ax.get_ylim() == pytest.approx((-2.08, 2.08))


def test_points_are_marked_where_they_are_under_any_name():
    plane = diamond()
    ax = plot_plane(plane, points={"$a_b^": [0.5, -1.0], "_hidden": torch.tensor([1.0, 1.0])})
    assert [line.get_xydata()[0].tolist() for line in ax.lines] == [[0.5, -1.0], [1.0, 1.0]]
    ax.figure.canvas.draw()  # a name is no formula
    assert [text.get_text() for text in plot_plane(plane, points=[[0.0, 0.0], [1.0, 1.0]]).texts] == ["0", "1"]
    for bad in ([[0.0, 0.0, 0.0]], [[0.0, float("nan")]], "ab", 3, {"a": "b"}, {"a": [[0.0, 1.0]] * 2}, {"a": None}):
        with pytest.raises(PlaneError):
            plot_plane(plane, points=bad)


def test_special_characters_in_names_are_text():
    ax = plot_plane(diamond(), style="decisions", labels=["_under $x$", "a\\b_{"])
    ax.figure.canvas.draw()
    assert legend_texts(ax)[0].startswith("_under ")


@pytest.mark.slow
def test_many_polygons_become_pixels_in_vector_formats_and_text_stays(tmp_path, monkeypatch):
    for limit, style in ((50_000, "regions"), (3, "regions"), (50_000, "decisions"), (3, "decisions")):
        monkeypatch.setattr(module, "MAX_VECTOR_POLYGONS", limit)
        text = save_picture(plot_plane(deep()[1], style=style), tmp_path / "a.svg").read_text()
        assert text.count("<image") == (limit == 3)  # one for all
        assert ">plane coordinate 1 (units of the input)</text>" in text


@pytest.mark.slow
def test_the_same_plane_is_the_same_file(tmp_path):
    made = [save_picture(plot_plane(diamond()), tmp_path / f"{i}.svg").read_bytes() for i in range(2)]
    assert made[0] == made[1]
    assert save_picture(plot_plane(diamond()), tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert save_picture(plot_plane(diamond()), tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "cubes"}, "cubes"),
        ({"style": "decisions", "order": "most"}, "most"),
        ({"style": "decisions", "labels": ["a"]}, "1 name for 2"),
        ({"style": "decisions", "colors": ["red"]}, "1 colours for 2"),
        ({"style": "decisions", "colors": ["red", "url(x)"]}, "'url\\(x\\)' is not a colour"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message, tmp_path):
    for draw in (lambda: plot_plane(diamond(), **options), lambda: diamond().to_html(tmp_path / "a.html", **options)):
        with pytest.raises(ArgumentError, match=message):
            draw()
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_written_are_typed_errors(tmp_path):
    ax = plot_plane(diamond())
    for path in (tmp_path / "a.gif", tmp_path / "none" / "a.png"):
        with pytest.raises(FileError):
            save_picture(ax, path)
    with pytest.raises(FileError):
        diamond().to_html(tmp_path / "none" / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_plane_can_be_drawn_and_decides_only_with_its_network(tmp_path):
    diamond().save(tmp_path / "a.safetensors")
    plane = xl.PlaneRestriction.load(tmp_path / "a.safetensors")
    assert sum(len(c.get_paths()) for c in fills(plane.plot())) == len(plane)
    with pytest.raises(MissingError):
        plane.plot(style="decisions")
    assert '"decisions":null' in plane.to_html(tmp_path / "a.html").read_text()


def test_a_share_above_0_is_never_0_percent():
    shares = (0, 1e-9, 0.00099, 0.5, 0.9995, 1)
    assert [format_share(s) for s in shares] == ["0 %", "<0.1 %", "<0.1 %", "50 %", ">99.9 %", "100 %"]


# The page in a browser is tested in tests/browser.


def test_names_are_escaped_and_nothing_is_fetched(tmp_path):
    evil = "</script><script>alert(1)</script><!-- \u2028 &amp; '\""
    plane = diamond()
    renamed = plane.with_network(plane.network)
    object.__setattr__(renamed, "names", tuple(evil for _ in plane.names))
    path = write_plane_page(renamed, tmp_path / "a.html", labels=[evil, "b"], points={evil: [0.0, 0.0]}, title=evil)
    text = path.read_text()
    assert "<script>alert" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(|src=", text) == []
    assert "default-src 'none'" in text


ROOT = Path(__file__).parents[2]


def test_the_example_runs_and_writes_where_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plane.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "plane.py"))
    assert {path.name for path in tmp_path.iterdir()} == {"regions.png", "advice.png", "plane.html"}
    shares = [float(found) for found in re.findall(r"([\d.]+)% of the plane", capsys.readouterr().out)]
    assert len(shares) == 5
    assert sum(shares) == pytest.approx(100, abs=0.05)
