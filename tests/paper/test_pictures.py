"""Pictures of the ACAS Xu study show what the study holds: colours where it says, nothing where it says nothing."""

from __future__ import annotations

from math import atan2, hypot
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

from exactline.paper import acas
from exactline.paper.encounter import ADVISORIES
from exactline.paper.geometry import Scene
from exactline.paper.plot_acas import PANELS, PAPER, draw, panel, whole
from tests.paper.hand import Rings
from tests.test_package import run_bare

COLOURS = [advisory.colour.lower() for advisory in ADVISORIES]
COC, WL, SL = COLOURS[0], COLOURS[1], COLOURS[3]


@pytest.fixture(scope="module")
def rings() -> acas.Study:
    return acas.run(Rings().eval(), Scene(rays_count=7, circles_count=5, grid_side=7))


def expected(rho: float) -> str:
    return SL if abs(rho - 3000) < 5 else WL if rho < 5000 else COC


def strokes(study: acas.Study, name: str) -> list[tuple[np.ndarray, str]]:
    axes = panel(study, name).axes[0]
    (drawn,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    return [(np.asarray(s), to_hex(c)) for s, c in zip(drawn.get_segments(), drawn.get_colors(), strict=True)]


def dots(study: acas.Study, name: str) -> list[tuple[np.ndarray, str]]:
    axes = panel(study, name).axes[0]
    (drawn,) = [c for c in axes.collections if isinstance(c, PathCollection)]
    return list(zip(np.asarray(drawn.get_offsets()), map(to_hex, drawn.get_facecolors()), strict=True))


@pytest.mark.parametrize("name", ["a_single_distance", "c_single_theta", "e_overlay"])
def test_exact_panels_are_coloured_as_by_hand(rings: acas.Study, name: str):
    for path, colour in strokes(rings, name):
        middle = (np.hypot(*path[0]) + np.hypot(*path[-1])) / 2
        assert colour == expected(middle)
        # arcs are drawn in strokes of a degree at most: they leave their circle by a thousandth at most
        if name == "c_single_theta":
            assert np.hypot(*path.T) == pytest.approx(3100)
            turns = np.diff(np.unwrap(np.arctan2(path[:, 1], path[:, 0])))
            assert np.abs(turns).max() <= np.radians(1) + 1e-12


def test_the_narrow_ring_shows_in_the_exact_panel_and_not_among_the_samples(rings: acas.Study):
    assert [colour for _, colour in strokes(rings, "a_single_distance")] == [WL, SL, WL, COC]
    assert SL not in [colour for _, colour in dots(rings, "b_single_distance_samples")]


@pytest.mark.parametrize(
    ("name", "count"), [("b_single_distance_samples", 15), ("d_single_theta_samples", 15), ("f_grid_samples", 49)]
)
def test_samples_are_coloured_as_by_hand(rings: acas.Study, name: str, count: int):
    found = dots(rings, name)
    assert len(found) == count
    assert all(colour == expected(hypot(*place)) for place, colour in found)


def test_the_ownship_points_ahead_and_the_legend_names_all(rings: acas.Study):
    figure = panel(rings, "e_overlay")
    (ship,) = figure.axes[0].patches
    outline = ship.get_xy()
    nose = outline[np.argmax(outline[:, 0])]
    assert abs(atan2(nose[1], nose[0])) < 1e-12
    assert np.allclose(np.sort(outline[:, 1]), np.sort(-outline[:, 1]))  # left and right are alike
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [advisory.name for advisory in ADVISORIES]


def test_the_whole_figure_has_exact_panels_above_their_samples(rings: acas.Study):
    with rc_context(PAPER):
        titles = [axes.get_title(loc="left")[:3] for axes in whole(rings).axes]
    assert titles == ["(a)", "(c)", "(e)", "(b)", "(d)", "(f)"]


def test_pictures_are_the_same_every_time(rings: acas.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exactline.plot.figures.FORMATS", ("svg",))
    shares: list[float] = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        written = draw(rings, tmp_path / folder, lambda share, what: shares.append(share))
        assert sorted(p.name for p in written) == sorted(p.name for p in (tmp_path / folder).iterdir())
        assert len(written) == 1 + len(PANELS)
    assert shares[:7] == sorted(shares[:7])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_the_study_says_what_is_missing():
    done = run_bare("""
from exactline.errors import MissingError
from exactline.paper import acas
from exactline.paper.plot_acas import draw
for needy in (acas.run, lambda: draw(None, None)):
    try:
        needy()
    except MissingError as error:
        print(error.hint)
""")
    assert done.stdout == 'pip install safetensors\npip install "exactline[plot]"\n', done.stderr
