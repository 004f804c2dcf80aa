"""Advisory maps hold what networks solved by hand hold, agree with the network everywhere, and their areas add up."""

from __future__ import annotations

import csv
import io
import time
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import hypot, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exactline.decide.regions import Tiles
from exactline.errors import ArgumentError
from exactline.paper import acas_plane
from exactline.paper.acas_plane import REACH, AdvisoryMap, Maps
from exactline.paper.acas_plane_report import areas_csv, clipped, regions_csv, report, save
from exactline.paper.encounter import ADVISORIES
from exactline.paper.geometry import Scene
from exactline.paper.regions import cell_areas
from tests.paper.hand import Rings, Tied

COC, WL, WR, SL, SR = range(5)


class Wedges(nn.Module):
    """Strong right beyond 3 radians to the left; beyond 3 radians to the right strong right too, or strong left."""

    def __init__(self, other: int) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: Tensor) -> Tensor:  # (n, 5) -> (n, 5)
        theta = x[:, 1:2]
        far = theta * 0 + 9
        costs = [theta * 0, far, far, 3 + theta if self.other == SL else far, 3 - theta]
        if self.other == SR:
            costs[SR] = 3 - theta.relu() - (-theta).relu()
        return torch.cat(costs, 1)


class Same(nn.Module):
    """The same costs everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 + torch.tensor([3.0, 2.0, 1.0, 4.0, 5.0])


def one(model: nn.Module, scene: Scene | None = None, reach: float = REACH) -> AdvisoryMap:
    (found,) = acas_plane.run(model.eval(), [scene or Scene()], reach=reach).maps
    return found


@pytest.fixture(scope="module")
def ours() -> Maps:
    return acas_plane.run()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rings_have_the_areas_of_rings():
    found = one(Rings())
    expected = [(COC, 5000, REACH), (WL, 3005, 5000), (WL, 0, 2995), (SL, 2995, 3005)]
    assert [(z.label, z.behind) for z in found.zones] == [(label, True) for label, _, _ in expected]
    for zone, (_, low, high) in zip(found.zones, expected, strict=True):
        assert zone.area == pytest.approx(pi * (high - low) * (high + low), rel=1e-11)  # 10 ft of 11,662 keep 13 digits
        assert zone.polar_area == pytest.approx(2 * pi * (high - low), rel=1e-11)
        assert (zone.nearest, zone.farthest) == pytest.approx((low, high), rel=1e-13)
        assert low < zone.rho < high
    assert found.smallest is found.zones[3]
    assert found.totals["weak left"][0] == 2
    assert found.totals["weak right"] == (0, 0, 0)
    assert found.behind.shape == (0, 2)


def test_a_region_on_both_sides_of_the_seam_is_one():
    found = one(Wedges(SR))
    assert len(found.decided) == 3  # the polar map cuts it
    assert [(z.label, z.behind) for z in found.zones] == [(COC, False), (SR, True)]
    assert found.zones[1].area == pytest.approx((pi - 3) * REACH**2, rel=1e-13)
    assert found.behind.shape == (0, 2)


def test_different_advice_on_both_sides_of_the_seam_stays_apart():
    found = one(Wedges(SL))
    assert sorted((z.label, z.behind) for z in found.zones) == [(COC, False), (SL, False), (SR, False)]
    assert found.behind.numpy().min() == pytest.approx(0, abs=1e-9)
    assert found.behind.numpy().max() == pytest.approx(REACH)
    assert float((found.behind[:, 1] - found.behind[:, 0]).sum()) == pytest.approx(REACH)


def test_one_advice_everywhere_is_one_region():
    found = one(Same(), reach=1000)
    assert [(z.label, z.behind) for z in found.zones] == [(WR, True)]
    assert found.zones[0].area == pytest.approx(pi * 1e6, rel=1e-14)
    assert found.zones[0].polar_area == pytest.approx(2000 * pi, rel=1e-14)


def test_ties_are_named_and_have_their_own_area():
    found = one(Tied())
    (zone,) = found.zones
    assert (zone.tied, zone.advisory) == ((WL, WR), "weak left = weak right")
    assert found.totals["weak left"] == (0, 0, 0)
    assert found.totals["weak left = weak right"][2] == pytest.approx(pi * REACH**2, rel=1e-13)


def moments(polygon: np.ndarray) -> tuple[Fraction, Fraction]:
    """Area and integral of the first coordinate, in rationals: triangles, each its area times its mean corner."""
    corners = [(Fraction(float(x)), Fraction(float(y))) for x, y in polygon]
    area = moment = Fraction(0)
    (ax, ay) = corners[0]
    for (bx, by), (cx, cy) in pairwise(corners[1:]):
        part = ((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)) / 2
        area, moment = area + part, moment + part * (ax + bx + cx) / 3
    return area, moment


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-8])
def test_areas_of_cells_are_right_in_rationals(size: float):
    random = np.random.default_rng(0)
    polygons = []
    for sides in (3, 4, 5, 9) * 5:  # on ellipses, so convex; far away and small
        angles = np.sort(random.uniform(0, 2 * pi, sides))
        middle = np.array([random.uniform(3000, 60000), random.uniform(-3, 3)])
        polygons.append(middle + size * np.stack([900 * np.cos(angles), 0.1 * np.sin(angles)], 1))
    counts = np.array([len(p) for p in polygons])
    corners, offsets = np.concatenate(polygons), np.concatenate([[0], counts.cumsum()])
    none = torch.zeros(len(polygons), dtype=torch.int64)
    cells = Tiles(torch.from_numpy(corners), torch.from_numpy(offsets), torch.arange(len(corners)), none, none)
    for polygon, polar, true in zip(polygons, *cell_areas(cells), strict=True):
        area, moment = moments(polygon)
        wide = float(np.ptp(polygon[:, 0]) * np.ptp(polygon[:, 1]))  # a thin one's area is less than its rounding
        assert abs(polar - area) <= 1e-14 * wide
        assert abs(true - moment) <= 1e-14 * wide * polygon[:, 0].max()


def test_areas_add_up_to_the_disc_in_every_scenario(ours: Maps):
    assert [(m.scene.psi, m.scene.v_own, m.scene.v_int) for m in ours.maps] == [
        (psi, v, v) for v in (150, 500) for psi in (-180, -90, 0, 90)
    ]
    for m in ours.maps:
        assert sum(z.area for z in m.zones) == pytest.approx(pi * REACH**2, rel=1e-13)
        assert sum(z.polar_area for z in m.zones) == pytest.approx(2 * pi * REACH, rel=1e-13)
        assert sum(z.polar_area for z in m.zones) == pytest.approx(sum(r.area for r in m.decided), rel=1e-13)
        assert [z.area for z in m.zones] == sorted((z.area for z in m.zones), reverse=True)


def test_areas_agree_with_a_fine_numeric_integral(ours: Maps):
    m, count = ours.maps[2], 700
    rho = (np.arange(count) + 0.5) / count * REACH
    theta = ((np.arange(count) + 0.5) / count - 0.5) * 2 * pi
    polar = np.stack(np.meshgrid(rho, theta, indexing="ij"), -1).reshape(-1, 2)
    labels = ours.advisor.advice(m.scene.encounters(torch.from_numpy(polar))).numpy().reshape(count, count)
    weight = np.repeat(rho[:, None], count, 1) * (REACH / count) * (2 * pi / count)
    # only samples beside a boundary stand for another advice than theirs
    edge = np.zeros_like(labels, dtype=bool)
    for axis in (0, 1):
        for step in (-1, 1):
            edge |= np.roll(labels, step, axis) != labels
    for label, advisory in enumerate(ADVISORIES):
        rough = weight[labels == label].sum()
        assert abs(m.totals[advisory.name][2] - rough) <= weight[edge].sum() / 10  # errors of both signs cancel
    assert weight[edge].sum() < 0.03 * pi * REACH**2


def test_every_region_has_its_advice_where_it_says(ours: Maps):
    for m in ours.maps:
        places = torch.tensor([(z.rho, z.theta) for z in m.zones], dtype=torch.float64)
        assert ours.advisor.advice(m.scene.encounters(places)).tolist() == [z.label for z in m.zones]
        for zone in m.zones:
            assert zone.nearest < zone.rho < zone.farthest
            assert hypot(*zone.place) == pytest.approx(zone.rho)


def held(m: AdvisoryMap, points: np.ndarray) -> np.ndarray:
    """The label of the region around each point (n, 2), found by counting the sides of regions to its right."""
    order = np.argsort(points[:, 1])
    rho, theta = points[order].T
    inside = np.zeros((len(ADVISORIES), len(points)), dtype=bool)
    for region in m.decided:
        for ring in region.rings:
            a, b = ring.numpy(), np.roll(ring.numpy(), -1, 0)
            low, high = np.minimum(a[:, 1], b[:, 1]), np.maximum(a[:, 1], b[:, 1])
            first, last = np.searchsorted(theta, low), np.searchsorted(theta, high)
            for k in np.flatnonzero(last > first).tolist():
                some = slice(first[k], last[k])
                at = a[k, 0] + (theta[some] - a[k, 1]) / (b[k, 1] - a[k, 1]) * (b[k, 0] - a[k, 0])
                inside[region.label, some] ^= rho[some] < at
    assert (inside.sum(0) == 1).mean() > 1 - 1e-4  # a point on a side may be in none or two
    labels = np.empty(len(points), dtype=np.int64)
    labels[order] = inside.argmax(0)
    return labels


def to_boundary(m: AdvisoryMap, point: np.ndarray) -> float:
    """How far it is to the nearest boundary, as a share of the map's width and height."""
    scale = np.array([m.reach, 2 * pi])
    a, b = (m.decided.boundaries.numpy() / scale).swapaxes(0, 1)
    along = ((point / scale - a) * (b - a)).sum(1) / np.maximum(((b - a) ** 2).sum(1), 1e-300)
    return float(np.hypot(*(a + along.clip(0, 1)[:, None] * (b - a) - point / scale).T).min())


def check_points(study: Maps, m: AdvisoryMap, count: int) -> None:
    places = np.random.default_rng(1).uniform((0, -pi), (m.reach, pi), (count, 2))
    advice = study.advisor.advice(m.scene.encounters(torch.from_numpy(places))).numpy()
    wrong = np.flatnonzero(held(m, places) != advice)
    assert all(to_boundary(m, places[i]) < 1e-9 for i in wrong)


@pytest.mark.parametrize("which", [0, 6])
def test_the_map_agrees_with_the_network_at_random_points(ours: Maps, which: int):
    check_points(ours, ours.maps[which], 100_000)


def test_the_tables_say_the_same_as_the_maps(ours: Maps, tmp_path: Path):
    assert [p.name for p in save(ours, tmp_path)] == ["areas.csv", "regions.csv", "report.md"]
    areas, regions = rows((tmp_path / "areas.csv").read_text()), rows((tmp_path / "regions.csv").read_text())
    assert (areas, regions) == (rows(areas_csv(ours)), rows(regions_csv(ours)))
    assert len(areas) == 8 * 5
    assert len(regions) == sum(len(m.zones) for m in ours.maps)
    zones = [(m, z) for m in ours.maps for z in m.zones]
    for row, (m, z) in zip(regions, zones, strict=True):
        assert (float(row["psi_degrees"]), row["advisory"], float(row["area_sq_ft"])) == (
            m.scene.psi,
            z.advisory,
            z.area,
        )
        assert hypot(float(row["inside_x"]), float(row["inside_y"])) == pytest.approx(z.rho)
        assert (row["crosses_180_degrees"] == "yes") == z.behind
    for start in range(0, 40, 5):
        for column in ("share", "polar_share"):
            assert sum(float(row[column]) for row in areas[start : start + 5]) == pytest.approx(1, rel=1e-13)
    text = report(ours)
    for words in ("not ACAS Xu", "rho from 0 to 11661.90379 ft", f"| {len(ours.maps[0].plane):,} |", "psi 90°"):
        assert words in text
    assert clipped(ours) == []


def test_what_is_clipped_is_said():
    class Far(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rho = x[:, :1]
            return torch.cat([70000 - rho, 9300 + rho * 0, rho * 0 + 1e6, rho * 0 + 1e6, rho * 0 + 1e6], 1)

    study = acas_plane.run(Far().eval(), [Scene(v_own=50)], reach=80000)
    # beyond 60,760 ft clear of conflict costs 9,240 for ever: without clipping it would be cheaper still
    assert [(z.label, round(z.nearest)) for z in study.maps[0].zones] == [(WL, 0), (COC, 60700)]
    assert len(study.maps[0].plane) == 2
    expected = [
        "rho leaves its range (0 to 80000) and was clipped.",
        "v_own leaves its range (50 to 50) and was clipped.",
    ]
    assert clipped(study) == expected
    assert all(text in report(study) for text in expected)


@pytest.mark.parametrize("reach", [0, -1.0, float("nan"), float("inf"), 1e10, True, "far"])
def test_a_reach_that_is_none_is_refused(reach):
    with pytest.raises(ArgumentError, match="feet"):
        acas_plane.run(reach=reach)


def test_progress_goes_from_nothing_to_all():
    seen: list[float] = []
    acas_plane.run(Tied().eval(), [Scene(), Scene(psi=0)], progress=lambda share, what: seen.append(share))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


@cache
def published(data: Path, reach: float) -> tuple[Maps, float]:
    """Maps of ACAS Xu 1_1, and the processor seconds they took: others may use the machine too."""
    began = time.process_time()
    scenes = None if reach == REACH else [Scene()]
    file = data / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet"
    return acas_plane.run(file, scenes, reach=reach), time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize(("reach", "pieces"), [(REACH, 33200), (60760.0, 39126)])
def test_acas_xu_on_the_whole_polar_map(data: Path, reach: float, pieces: int):
    study, seconds = published(data, reach)
    m = study.maps[0]
    print(f"\nACAS Xu 1_1, rho to {reach:.0f} ft: {seconds:.1f} processor seconds for {len(study.maps)} maps")
    print(f"  {sum(len(each.plane) for each in study.maps):,} polygons in all")
    for each in study.maps:
        least = each.smallest
        smallest = (
            f"smallest {least.advisory}, {least.area:.3g} sq ft at {least.rho:.0f} ft, {np.degrees(least.theta):.0f}°"
        )
        print(f"  {each.title}: {len(each.plane):,} polygons, {len(each.zones)} regions, {smallest}")
    assert len(m.plane) == pytest.approx(pieces, rel=0.001)
    assert seconds < 5 * len(study.maps)
    for each in study.maps:
        assert sum(z.area for z in each.zones) == pytest.approx(pi * reach**2, rel=1e-13)
        places = torch.tensor([(z.rho, z.theta) for z in each.zones], dtype=torch.float64)
        assert study.advisor.advice(each.scene.encounters(places)).tolist() == [z.label for z in each.zones]
    check_points(study, m, 100_000)
    # the strong left inside weak left that samples of a line miss
    inner = [z for z in m.zones if z.label == SL and abs(z.rho - 2800) < 250 and abs(np.degrees(z.theta) + 68) < 3]
    assert len(inner) == 1
    assert inner[0].nearest < 2590 < 3021 < inner[0].farthest
