"""Pictures of advisory maps show the advice everywhere."""

from __future__ import annotations

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

from exactline.paper.acas import maps
from exactline.paper.acas.advisor import ADVISORIES
from exactline.paper.acas.geometry import EncounterGeometry
from exactline.paper.acas.line_plot import ACAS_STYLE
from exactline.paper.acas.map_plot import (
    EDGE_STEP_RADIANS,
    bend_edges,
    draw_all_maps,
    draw_figures,
    draw_map,
    paint_cartesian,
    paint_polar,
    to_cartesian,
)
from exactline.paper.acas.maps import DEFAULT_REACH_FEET, AdvisoryMaps
from tests.paper.acas.solved_by_hand import Rings, Tied

COLOURS = np.array([to_rgb(a.colour) for a in ADVISORIES])


@pytest.fixture(scope="module")
def ours() -> AdvisoryMaps:
    return maps.run(geometries=[EncounterGeometry(psi=0.0), EncounterGeometry(psi=-90.0, v_own=500.0, v_int=500.0)])


def pixels(figure: Figure, ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Colours (rows, columns, 3) of the pixels inside an axes, and positions (rows, columns, 2) of their centres."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[::-1, :, :3] / 255
    (x0, y0), (x1, y1) = (np.rint(corner).astype(int) for corner in ax.bbox.get_points())
    middles = np.stack(np.meshgrid(np.arange(x0, x1) + 0.5, np.arange(y0, y1) + 0.5), -1)
    return image[y0:y1, x0:x1], ax.transData.inverted().transform(middles.reshape(-1, 2)).reshape(middles.shape)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.slow
def test_every_pixel_has_the_colour_of_its_advice(ours: AdvisoryMaps, which: int, side: int):
    m = ours.maps[which]
    with rc_context(ACAS_STYLE):
        figure = draw_map(ours, m)
        seen, places = pixels(figure, figure.axes[side])
    x, y = places[..., 0], places[..., 1]
    polar = np.stack([x, y * pi / 180] if side == 0 else [np.hypot(x, y), np.arctan2(y, x)], -1)
    advice = ours.advisor.advise(m.geometry.to_inputs(torch.from_numpy(polar.reshape(-1, 2)))).numpy().reshape(x.shape)
    # a pixel has the colour of its advice if all pixels within two have that advice: boundaries are drawn dark
    around = [advice[2 + i : -2 + i or None, 2 + j : -2 + j or None] for i in range(-2, 3) for j in range(-2, 3)]
    uniform = np.all(np.stack(around) == advice[2:-2, 2:-2], 0)
    if side == 1:
        uniform &= np.hypot(x, y)[2:-2, 2:-2] > 600  # the ownship covers the rest
    assert uniform.mean() > 0.9
    right = np.abs(seen - COLOURS[advice]).max(2)[2:-2, 2:-2] < 0.01
    assert right[uniform].all()
    assert not right[~uniform].all()


def test_bent_edges_have_short_steps_and_keep_their_corners():
    ring = np.array([[1000.0, 0.0], [5000.0, 0.0], [5000.0, 2.0], [1000.0, -1.0]])
    drawn = bend_edges(ring)
    after = np.roll(drawn, -1, 0)
    assert np.abs(after[:, 1] - drawn[:, 1]).max() <= EDGE_STEP_RADIANS * (1 + 1e-9)
    assert all((np.abs(drawn - corner).max(1) == 0).any() for corner in ring)
    assert len(drawn) == 1 + 230 + 344 + 115  # 2, 3 and 1 radians in steps of half a degree
    path = bend_edges(ring[1:3], closed=False)
    assert (path[0].tolist(), path[-1].tolist()) == (ring[1].tolist(), ring[2].tolist())
    assert np.hypot(*to_cartesian(path).T) == pytest.approx(5000)
    # the strokes of an arc of 12,000 ft are never more than 0.12 ft off
    assert 12000 * (1 - np.cos(EDGE_STEP_RADIANS / 2)) < 0.12


def test_the_box_grows_with_the_reach():
    study = maps.run(Rings().eval(), [EncounterGeometry()], reach=2 * DEFAULT_REACH_FEET)
    axes = draw_map(study, study.maps[0]).axes
    assert axes[0].get_xlim() == (0, 2 * DEFAULT_REACH_FEET)
    assert (*axes[1].get_xlim(), *axes[1].get_ylim()) == pytest.approx((-12000, 20000, -12000, 12000))


def test_the_legend_names_ties(ours: AdvisoryMaps):
    study = maps.run(Tied().eval(), [EncounterGeometry()])
    names = [a.name for a in ADVISORIES]
    for each, expected in ((ours, names), (study, [*names, "weak left = weak right"])):
        (legend,) = draw_map(each, each.maps[0]).legends
        assert [text.get_text() for text in legend.get_texts()] == expected


@pytest.mark.parametrize("paint", [paint_polar, paint_cartesian])
@pytest.mark.every(2)
def test_one_picture_shows_all_maps(ours: AdvisoryMaps, paint):
    axes = draw_all_maps(ours, paint).axes
    assert [ax.get_title(loc="left") for ax in axes] == [m.title for m in ours.maps]
    five = AdvisoryMaps(ours.advisor, ours.reach, ours.maps * 2 + ours.maps[:1])
    assert sum(ax.axison for ax in draw_all_maps(five, paint).axes) == 5


@pytest.mark.slow
def test_pictures_are_reproducible(ours: AdvisoryMaps, tmp_path: Path):
    one = AdvisoryMaps(ours.advisor, ours.reach, ours.maps[1:])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        written = draw_figures(one, tmp_path / folder)
        assert [p.name for p in written] == ["psi-90_own500_int500.png", "psi-90_own500_int500.svg"]
    for name in (p.name for p in written):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
