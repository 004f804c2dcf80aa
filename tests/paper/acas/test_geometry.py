"""The lines and arcs of the ACAS Xu study lie where the paper puts them."""

from itertools import pairwise
from math import atan2, cos, degrees, hypot, pi, sin

import pytest

from exactline.errors import ArgumentError
from exactline.paper.acas.geometry import EncounterGeometry, Track


def test_rays_run_from_the_ownship_to_the_edge_of_the_box():
    rays = EncounterGeometry().rays()
    assert len(rays) == 100
    assert degrees(rays[0].start[1]) == -180
    assert degrees(rays[-1].start[1]) == 180
    for ray in rays:
        assert ray.xy(0.0) == (0.0, 0.0)
        x, y = ray.xy(1.0)
        # one coordinate is on its edge, the other not beyond: to the rounding of a cosine
        assert max(x / 10000, x / -6000, abs(y) / 6000) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("box", [(-6000.0, 10000.0, -6000.0, 6000.0), (-1.0, 5.0, -3.0, 2.0)])
def test_a_bearing_is_on_an_arc_exactly_where_its_circle_is_inside_the_box(box):
    geometry = EncounterGeometry(box=box)
    arcs = geometry.arcs()
    far = max(hypot(x, y) for x in box[:2] for y in box[2:])
    for circle in range(geometry.circle_count):
        rho = (circle + 1) / 25 * far
        own = [arc for arc in arcs if arc.number == circle]
        assert all(arc.start[0] == arc.end[0] == pytest.approx(rho) for arc in own)
        for k in range(997):
            angle = -pi + (k + 0.5) * 2 * pi / 997
            x, y = rho * cos(angle), rho * sin(angle)
            inside = box[0] <= x <= box[1] and box[2] <= y <= box[3]
            assert inside == any(arc.start[1] <= angle <= arc.end[1] for arc in own), (circle, angle)


def test_arcs_of_a_circle_do_not_overlap_and_whole_circles_are_one_arc():
    arcs = EncounterGeometry().arcs()
    inner = [arc for arc in arcs if arc.start[0] < 6000]
    assert [(arc.start[1], arc.end[1]) for arc in inner] == [(-pi, pi)] * 12
    for before, after in pairwise(arcs):
        assert before.number < after.number or before.end[1] < after.start[1]


def test_a_track_converts_alphas_to_positions():
    ray = Track("distance", 0, (0.0, pi / 2), (100.0, pi / 2))
    assert (ray.varies, ray.fixed_input, ray.length_feet, ray.varying_input(0.25)) == ("rho", 90.0, 100.0, 25.0)
    assert ray.xy(0.25) == pytest.approx((0.0, 25.0))
    arc = Track("circle", 0, (100.0, 0.0), (100.0, pi))
    assert (arc.varies, arc.fixed_input, arc.length_feet, arc.varying_input(0.5)) == ("theta", 100.0, 100 * pi, 90.0)
    assert arc.xy(0.5) == pytest.approx((0.0, 100.0))


def test_inputs_contain_the_fixed_heading_and_speeds():
    geometry = EncounterGeometry(psi=90, v_own=200, v_int=300)
    (row,) = geometry.to_inputs(geometry.grid()[:1])
    assert row.tolist() == pytest.approx([-6000, -6000, pi / 2, 200, 300])


def test_the_grid_covers_the_box():
    grid = EncounterGeometry(grid_side=3).grid().tolist()
    assert grid[0] == [-6000, -6000]
    assert grid[4] == [2000, 0]
    assert grid[-1] == [10000, 6000]
    assert atan2(grid[4][1], grid[4][0]) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"psi": float("nan")},
        {"psi": 181},
        {"psi": "north"},
        {"psi": True},
        {"v_own": float("inf")},
        {"v_int": -1},
        {"single_theta": -200},
        {"reach": -5},
        {"box": (0.0, 1.0, -1.0, 1.0)},
        {"box": (-1.0, 1.0, -1.0)},
        {"box": (-1.0, float("nan"), -1.0, 1.0)},
        {"samples": 1},
        {"samples": 2.5},
        {"ray_count": 10**6},
        {"grid_side": True},
    ],
    ids=str,
)
def test_invalid_geometries_are_refused(bad):
    with pytest.raises(ArgumentError, match=next(iter(bad))):
        EncounterGeometry(**bad)
