"""Pictures of the line study show its intervals and samples in the right colours and places."""

from __future__ import annotations

from math import atan2, hypot
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

from exactline.paper.acas import lines
from exactline.paper.acas.advisor import ADVISORIES
from exactline.paper.acas.geometry import EncounterGeometry
from exactline.paper.acas.line_plot import ACAS_STYLE, PANELS, draw_figures, draw_overview, draw_panel
from tests.paper.acas.solved_by_hand import Rings
from tests.test_package import run_without_optional_packages

COLOURS = [advisory.colour.lower() for advisory in ADVISORIES]
COC, WL, SL = COLOURS[0], COLOURS[1], COLOURS[3]


@pytest.fixture(scope="module")
def rings() -> lines.LineStudy:
    return lines.run(Rings().eval(), EncounterGeometry(ray_count=7, circle_count=5, grid_side=7))


def colour_by_hand(rho: float) -> str:
    return SL if abs(rho - 3000) < 5 else WL if rho < 5000 else COC


def strokes(study: lines.LineStudy, name: str) -> list[tuple[np.ndarray, str]]:
    axes = draw_panel(study, name).axes[0]
    (drawn,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    return [(np.asarray(s), to_hex(c)) for s, c in zip(drawn.get_segments(), drawn.get_colors(), strict=True)]


def dots(study: lines.LineStudy, name: str) -> list[tuple[np.ndarray, str]]:
    axes = draw_panel(study, name).axes[0]
    (drawn,) = [c for c in axes.collections if isinstance(c, PathCollection)]
    return list(zip(np.asarray(drawn.get_offsets()), map(to_hex, drawn.get_facecolors()), strict=True))


@pytest.mark.parametrize("name", ["a_single_distance", "c_single_theta", "e_overlay"])
def test_exact_panels_are_coloured_as_by_hand(rings: lines.LineStudy, name: str):
    for path, colour in strokes(rings, name):
        middle = (np.hypot(*path[0]) + np.hypot(*path[-1])) / 2
        assert colour == colour_by_hand(middle)
        # arcs are drawn in strokes of at most a degree, so they leave their circle by at most a thousandth
        if name == "c_single_theta":
            assert np.hypot(*path.T) == pytest.approx(3100)
            turns = np.diff(np.unwrap(np.arctan2(path[:, 1], path[:, 0])))
            assert np.abs(turns).max() <= np.radians(1) + 1e-12


def test_the_narrow_ring_is_visible_in_the_exact_panel_but_not_among_the_samples(rings: lines.LineStudy):
    assert [colour for _, colour in strokes(rings, "a_single_distance")] == [WL, SL, WL, COC]
    assert SL not in [colour for _, colour in dots(rings, "b_single_distance_samples")]


@pytest.mark.parametrize(
    ("name", "count"), [("b_single_distance_samples", 15), ("d_single_theta_samples", 15), ("f_grid_samples", 49)]
)
def test_samples_are_coloured_as_by_hand(rings: lines.LineStudy, name: str, count: int):
    found = dots(rings, name)
    assert len(found) == count
    assert all(colour == colour_by_hand(hypot(*place)) for place, colour in found)


def test_the_ownship_points_ahead_and_the_legend_names_every_advisory(rings: lines.LineStudy):
    figure = draw_panel(rings, "e_overlay")
    (ship,) = figure.axes[0].patches
    outline = ship.get_xy()
    nose = outline[np.argmax(outline[:, 0])]
    assert abs(atan2(nose[1], nose[0])) < 1e-12
    assert np.allclose(np.sort(outline[:, 1]), np.sort(-outline[:, 1]))  # left and right are symmetric
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [advisory.name for advisory in ADVISORIES]


def test_the_overview_has_exact_panels_above_their_samples(rings: lines.LineStudy):
    with rc_context(ACAS_STYLE):
        titles = [axes.get_title(loc="left")[:3] for axes in draw_overview(rings).axes]
    assert titles == ["(a)", "(c)", "(e)", "(b)", "(d)", "(f)"]


@pytest.mark.slow
def test_pictures_are_reproducible(rings: lines.LineStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("exactline.plot.figure.FIGURE_FORMATS", ("svg",))
    shares: list[float] = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        written = draw_figures(rings, tmp_path / folder, lambda share, what: shares.append(share))
        assert sorted(p.name for p in written) == sorted(p.name for p in (tmp_path / folder).iterdir())
        assert len(written) == 1 + len(PANELS)
    assert shares[:7] == sorted(shares[:7])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.slow
def test_missing_packages_are_named():
    done = run_without_optional_packages("""
from exactline.errors import MissingError
from exactline.paper.acas import lines
from exactline.paper.acas.line_plot import draw_figures
for function in (lines.run, lambda: draw_figures(None, None)):
    try:
        function()
    except MissingError as error:
        print(error.hint)
""")
    assert done.stdout == 'pip install safetensors\npip install "exactline[plot]"\n', done.stderr
