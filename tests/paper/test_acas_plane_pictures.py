"""Pictures of advisory maps have the colour of the advice at every place, and the command writes them all."""

from __future__ import annotations

import sys
from math import pi
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from exactline.paper import acas_plane
from exactline.paper.acas_plane import REACH, Maps
from exactline.paper.encounter import ADVISORIES
from exactline.paper.geometry import Scene
from exactline.paper.plot_acas import PAPER
from exactline.paper.plot_acas_plane import STEP, alone, bent, draw, paint_cartesian, paint_polar, placed, together
from tests.cli.running import run as run  # pytest finds the fixture by its name
from tests.paper.hand import Rings, Tied

COLOURS = np.array([to_rgb(a.colour) for a in ADVISORIES])
TABLES = ["areas.csv", "regions.csv", "report.md"]


@pytest.fixture(scope="module")
def ours() -> Maps:
    return acas_plane.run(scenes=[Scene(psi=0.0), Scene(psi=-90.0, v_own=500.0, v_int=500.0)])


def pixels(figure: Figure, ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """The colours (rows, columns, 3) of a drawn axes' inside, and the places (rows, columns, 2) of their middles."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[::-1, :, :3] / 255
    (x0, y0), (x1, y1) = (np.rint(corner).astype(int) for corner in ax.bbox.get_points())
    middles = np.stack(np.meshgrid(np.arange(x0, x1) + 0.5, np.arange(y0, y1) + 0.5), -1)
    return image[y0:y1, x0:x1], ax.transData.inverted().transform(middles.reshape(-1, 2)).reshape(middles.shape)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("side", [0, 1])
def test_every_pixel_has_the_colour_of_its_advice(ours: Maps, which: int, side: int):
    m = ours.maps[which]
    with rc_context(PAPER):
        figure = alone(ours, m)
        seen, places = pixels(figure, figure.axes[side])
    x, y = places[..., 0], places[..., 1]
    polar = np.stack([x, y * pi / 180] if side == 0 else [np.hypot(x, y), np.arctan2(y, x)], -1)
    advice = ours.advisor.advice(m.scene.encounters(torch.from_numpy(polar.reshape(-1, 2)))).numpy().reshape(x.shape)
    # a pixel shows its advice if all within two pixels have the same: boundaries are dark and edges smoothed
    around = [advice[2 + i : -2 + i or None, 2 + j : -2 + j or None] for i in range(-2, 3) for j in range(-2, 3)]
    plain = np.all(np.stack(around) == advice[2:-2, 2:-2], 0)
    if side == 1:
        plain &= np.hypot(x, y)[2:-2, 2:-2] > 600  # the ownship hides the rest
    assert plain.mean() > 0.9
    right = np.abs(seen - COLOURS[advice]).max(2)[2:-2, 2:-2] < 0.01
    assert right[plain].all()
    assert not right[~plain].all()


def test_edges_are_bent_in_steps_and_stay_where_they_are():
    ring = np.array([[1000.0, 0.0], [5000.0, 0.0], [5000.0, 2.0], [1000.0, -1.0]])
    drawn = bent(ring)
    after = np.roll(drawn, -1, 0)
    assert np.abs(after[:, 1] - drawn[:, 1]).max() <= STEP * (1 + 1e-9)
    assert all((np.abs(drawn - corner).max(1) == 0).any() for corner in ring)
    assert len(drawn) == 1 + 230 + 344 + 115  # 2, 3 and 1 radians in steps of half a degree
    path = bent(ring[1:3], closed=False)
    assert (path[0].tolist(), path[-1].tolist()) == (ring[1].tolist(), ring[2].tolist())
    assert np.hypot(*placed(path).T) == pytest.approx(5000)
    # the strokes of an arc of 12,000 ft are never more than 0.12 ft off
    assert 12000 * (1 - np.cos(STEP / 2)) < 0.12


def test_the_box_grows_with_the_reach():
    study = acas_plane.run(Rings().eval(), [Scene()], reach=2 * REACH)
    axes = alone(study, study.maps[0]).axes
    assert axes[0].get_xlim() == (0, 2 * REACH)
    assert (*axes[1].get_xlim(), *axes[1].get_ylim()) == pytest.approx((-12000, 20000, -12000, 12000))


def test_the_legend_names_ties(ours: Maps):
    study = acas_plane.run(Tied().eval(), [Scene()])
    names = [a.name for a in ADVISORIES]
    for maps, expected in ((ours, names), (study, [*names, "weak left = weak right"])):
        (legend,) = alone(maps, maps.maps[0]).legends
        assert [text.get_text() for text in legend.get_texts()] == expected


@pytest.mark.parametrize("paint", [paint_polar, paint_cartesian])
def test_all_scenarios_share_a_picture(ours: Maps, paint):
    axes = together(ours, paint).axes
    assert [ax.get_title(loc="left") for ax in axes] == [m.title for m in ours.maps]
    five = Maps(ours.advisor, ours.reach, ours.maps * 2 + ours.maps[:1])
    assert sum(ax.axison for ax in together(five, paint).axes) == 5


def test_pictures_come_out_the_same_again(ours: Maps, tmp_path: Path):
    one = Maps(ours.advisor, ours.reach, ours.maps[1:])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        written = draw(one, tmp_path / folder)
        assert [p.name for p in written] == ["psi-90_own500_int500.png", "psi-90_own500_int500.svg"]
    for name in (p.name for p in written):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_command_maps_one_encounter(run, tmp_path: Path):
    status, out, err = run("study", "acas", "--plane", "--psi", 90, "--rho", 70000, "--out", "maps")
    assert (status, err) == (0, "rho leaves its range (0 to 70000) and was clipped.\n")
    assert "not ACAS Xu" in out
    assert "psi 90°, ownship 150 ft/s, intruder 150 ft/s" in out
    names = [f"psi90_own150_int150.{kind}" for kind in ("png", "svg")]
    assert sorted(p.name for p in (tmp_path / "maps").iterdir()) == sorted([*TABLES, *names])


def test_the_command_maps_eight_encounters(run, tmp_path: Path):
    status, out, err = run("study", "acas", "--plane", "--no-pictures", "--out", "maps")
    assert (status, err) == (0, "")
    assert out.count("ownship 150 ft/s") == out.count("ownship 500 ft/s") == 4
    assert "3 files in maps" in out
    assert sorted(p.name for p in (tmp_path / "maps").iterdir()) == TABLES


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--rho", 5000), 2, "no map to end there"),
        (("--plane", "--rho", -1), 2, "more than 0"),
        (("--plane", "--rho", "nan"), 2, "more than 0"),
        (("--plane", "--psi", 270), 2, "from -180 to 180 degrees"),
        (("--plane", "--network", "loan.nnet"), 2, "5 inputs and 5 outputs"),
        (("--plane", "--network", "absent.nnet"), 6, "absent.nnet"),
    ],
)
def test_what_cannot_be_mapped_is_refused(run, arguments, status: int, words: str):
    found, out, err = run("study", "acas", "--out", "out", *arguments)
    assert (found, out) == (status, "")
    assert words in err
    assert "try:" in err


def test_without_matplotlib_there_are_tables(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("study", "acas", "--plane", "--psi", 0, "--no-pictures", "--out", "out")[0] == 0
