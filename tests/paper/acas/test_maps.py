"""Advisory maps match networks solved by hand, agree with the network everywhere, and their areas add up."""

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

from exactline.decide.regions import LabeledPolygons
from exactline.errors import ArgumentError
from exactline.paper.acas import maps
from exactline.paper.acas.advisor import ADVISORIES
from exactline.paper.acas.geometry import EncounterGeometry
from exactline.paper.acas.map_report import (
    describe_clipping,
    format_areas_csv,
    format_regions_csv,
    format_report,
    save_report,
)
from exactline.paper.acas.maps import DEFAULT_REACH_FEET, AdvisoryMap, AdvisoryMaps
from exactline.paper.acas.regions import compute_polygon_areas
from tests.paper.acas.solved_by_hand import Rings, Tied

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


class Constant(nn.Module):
    """Constant costs."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0 + torch.tensor([3.0, 2.0, 1.0, 4.0, 5.0])


def map_one(
    model: nn.Module, geometry: EncounterGeometry | None = None, reach: float = DEFAULT_REACH_FEET
) -> AdvisoryMap:
    (found,) = maps.run(model.eval(), [geometry or EncounterGeometry()], reach=reach).maps
    return found


@pytest.fixture(scope="module")
def ours() -> AdvisoryMaps:
    return maps.run()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rings_have_the_areas_of_rings():
    found = map_one(Rings())
    expected = [(COC, 5000, DEFAULT_REACH_FEET), (WL, 3005, 5000), (WL, 0, 2995), (SL, 2995, 3005)]
    assert [(z.label, z.crosses_rear) for z in found.regions] == [(label, True) for label, _, _ in expected]
    for region, (_, low, high) in zip(found.regions, expected, strict=True):
        assert region.area == pytest.approx(
            pi * (high - low) * (high + low), rel=1e-11
        )  # 10 ft of 11,662 keep 13 digits
        assert region.polar_area == pytest.approx(2 * pi * (high - low), rel=1e-11)
        assert (region.min_rho, region.max_rho) == pytest.approx((low, high), rel=1e-13)
        assert low < region.rho < high
    assert found.smallest_region is found.regions[3]
    assert found.totals["weak left"][0] == 2
    assert found.totals["weak right"] == (0, 0, 0)
    assert found.rear_boundaries.shape == (0, 2)


def test_a_region_on_both_sides_of_the_rear_is_one():
    found = map_one(Wedges(SR))
    assert len(found.decisions) == 3  # the polar map cuts it
    assert [(z.label, z.crosses_rear) for z in found.regions] == [(COC, False), (SR, True)]
    assert found.regions[1].area == pytest.approx((pi - 3) * DEFAULT_REACH_FEET**2, rel=1e-13)
    assert found.rear_boundaries.shape == (0, 2)


def test_different_advice_on_both_sides_of_the_rear_gives_two_regions():
    found = map_one(Wedges(SL))
    assert sorted((z.label, z.crosses_rear) for z in found.regions) == [(COC, False), (SL, False), (SR, False)]
    assert found.rear_boundaries.numpy().min() == pytest.approx(0, abs=1e-9)
    assert found.rear_boundaries.numpy().max() == pytest.approx(DEFAULT_REACH_FEET)
    assert float((found.rear_boundaries[:, 1] - found.rear_boundaries[:, 0]).sum()) == pytest.approx(DEFAULT_REACH_FEET)


def test_one_advice_everywhere_is_one_region():
    found = map_one(Constant(), reach=1000)
    assert [(z.label, z.crosses_rear) for z in found.regions] == [(WR, True)]
    assert found.regions[0].area == pytest.approx(pi * 1e6, rel=1e-14)
    assert found.regions[0].polar_area == pytest.approx(2000 * pi, rel=1e-14)


def test_ties_are_named_and_have_their_own_area():
    found = map_one(Tied())
    (region,) = found.regions
    assert (region.tied, region.advisory) == ((WL, WR), "weak left = weak right")
    assert found.totals["weak left"] == (0, 0, 0)
    assert found.totals["weak left = weak right"].area == pytest.approx(pi * DEFAULT_REACH_FEET**2, rel=1e-13)


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
def test_polygon_areas_agree_with_rationals(size: float):
    random = np.random.default_rng(0)
    polygons = []
    for sides in (3, 4, 5, 9) * 5:  # on ellipses, so convex; far away and small
        angles = np.sort(random.uniform(0, 2 * pi, sides))
        middle = np.array([random.uniform(3000, 60000), random.uniform(-3, 3)])
        polygons.append(middle + size * np.stack([900 * np.cos(angles), 0.1 * np.sin(angles)], 1))
    counts = np.array([len(p) for p in polygons])
    corners, offsets = np.concatenate(polygons), np.concatenate([[0], counts.cumsum()])
    none = torch.zeros(len(polygons), dtype=torch.int64)
    cells = LabeledPolygons(
        torch.from_numpy(corners), torch.from_numpy(offsets), torch.arange(len(corners)), none, none
    )
    for polygon, polar, true in zip(polygons, *compute_polygon_areas(cells), strict=True):
        area, moment = moments(polygon)
        wide = float(np.ptp(polygon[:, 0]) * np.ptp(polygon[:, 1]))  # a thin one's area is less than its rounding
        assert abs(polar - area) <= 1e-14 * wide
        assert abs(true - moment) <= 1e-14 * wide * polygon[:, 0].max()


@pytest.mark.slow
def test_areas_add_up_to_the_disc_in_every_scenario(ours: AdvisoryMaps):
    assert [(m.geometry.psi, m.geometry.v_own, m.geometry.v_int) for m in ours.maps] == [
        (psi, v, v) for v in (150, 500) for psi in (-180, -90, 0, 90)
    ]
    for m in ours.maps:
        assert sum(z.area for z in m.regions) == pytest.approx(pi * DEFAULT_REACH_FEET**2, rel=1e-13)
        assert sum(z.polar_area for z in m.regions) == pytest.approx(2 * pi * DEFAULT_REACH_FEET, rel=1e-13)
        assert sum(z.polar_area for z in m.regions) == pytest.approx(sum(r.area for r in m.decisions), rel=1e-13)
        assert [z.area for z in m.regions] == sorted((z.area for z in m.regions), reverse=True)


@pytest.mark.slow
def test_areas_agree_with_a_fine_numeric_integral(ours: AdvisoryMaps):
    m, count = ours.maps[2], 700
    rho = (np.arange(count) + 0.5) / count * DEFAULT_REACH_FEET
    theta = ((np.arange(count) + 0.5) / count - 0.5) * 2 * pi
    polar = np.stack(np.meshgrid(rho, theta, indexing="ij"), -1).reshape(-1, 2)
    labels = ours.advisor.advise(m.geometry.to_inputs(torch.from_numpy(polar))).numpy().reshape(count, count)
    weight = np.repeat(rho[:, None], count, 1) * (DEFAULT_REACH_FEET / count) * (2 * pi / count)
    # only samples beside a boundary stand for another advice than theirs
    edge = np.zeros_like(labels, dtype=bool)
    for axis in (0, 1):
        for step in (-1, 1):
            edge |= np.roll(labels, step, axis) != labels
    for label, advisory in enumerate(ADVISORIES):
        rough = weight[labels == label].sum()
        assert abs(m.totals[advisory.name].area - rough) <= weight[edge].sum() / 10  # errors of both signs cancel
    assert weight[edge].sum() < 0.03 * pi * DEFAULT_REACH_FEET**2


@pytest.mark.slow
def test_every_region_has_its_advice_at_its_inner_point(ours: AdvisoryMaps):
    for m in ours.maps:
        places = torch.tensor([(z.rho, z.theta) for z in m.regions], dtype=torch.float64)
        assert ours.advisor.advise(m.geometry.to_inputs(places)).tolist() == [z.label for z in m.regions]
        for region in m.regions:
            assert region.min_rho < region.rho < region.max_rho
            assert hypot(*region.xy) == pytest.approx(region.rho)


def advice_at(m: AdvisoryMap, points: np.ndarray) -> np.ndarray:
    """The label of the region around each point (n, 2), found by counting the sides of regions to its right."""
    order = np.argsort(points[:, 1])
    rho, theta = points[order].T
    inside = np.zeros((len(ADVISORIES), len(points)), dtype=bool)
    for region in m.decisions:
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


def distance_to_boundary(m: AdvisoryMap, point: np.ndarray) -> float:
    """How far it is to the nearest boundary, as a share of the map's width and height."""
    scale = np.array([m.reach, 2 * pi])
    a, b = (m.decisions.boundaries.numpy() / scale).swapaxes(0, 1)
    along = ((point / scale - a) * (b - a)).sum(1) / np.maximum(((b - a) ** 2).sum(1), 1e-300)
    return float(np.hypot(*(a + along.clip(0, 1)[:, None] * (b - a) - point / scale).T).min())


def check_points(study: AdvisoryMaps, m: AdvisoryMap, count: int) -> None:
    places = np.random.default_rng(1).uniform((0, -pi), (m.reach, pi), (count, 2))
    advice = study.advisor.advise(m.geometry.to_inputs(torch.from_numpy(places))).numpy()
    wrong = np.flatnonzero(advice_at(m, places) != advice)
    assert all(distance_to_boundary(m, places[i]) < 1e-9 for i in wrong)


@pytest.mark.parametrize("which", [0, 6])
@pytest.mark.every(2)
def test_the_map_agrees_with_the_network_at_random_points(ours: AdvisoryMaps, which: int):
    check_points(ours, ours.maps[which], 100_000)


@pytest.mark.slow
def test_the_tables_agree_with_the_maps(ours: AdvisoryMaps, tmp_path: Path):
    assert [p.name for p in save_report(ours, tmp_path)] == ["areas.csv", "regions.csv", "report.md"]
    areas, regions = rows((tmp_path / "areas.csv").read_text()), rows((tmp_path / "regions.csv").read_text())
    assert (areas, regions) == (rows(format_areas_csv(ours)), rows(format_regions_csv(ours)))
    assert len(areas) == 8 * 5
    assert len(regions) == sum(len(m.regions) for m in ours.maps)
    expected = [(m, z) for m in ours.maps for z in m.regions]
    for row, (m, z) in zip(regions, expected, strict=True):
        assert (float(row["psi_degrees"]), row["advisory"], float(row["area_sq_ft"])) == (
            m.geometry.psi,
            z.advisory,
            z.area,
        )
        assert hypot(float(row["inside_x"]), float(row["inside_y"])) == pytest.approx(z.rho)
        assert (row["crosses_180_degrees"] == "yes") == z.crosses_rear
    for start in range(0, 40, 5):
        for column in ("share", "polar_share"):
            assert sum(float(row[column]) for row in areas[start : start + 5]) == pytest.approx(1, rel=1e-13)
    text = format_report(ours)
    for words in ("not ACAS Xu", "rho from 0 to 11661.90379 ft", f"| {len(ours.maps[0].plane):,} |", "psi 90°"):
        assert words in text
    assert describe_clipping(ours) == []


def test_clipping_is_reported():
    class Far(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rho = x[:, :1]
            return torch.cat([70000 - rho, 9300 + rho * 0, rho * 0 + 1e6, rho * 0 + 1e6, rho * 0 + 1e6], 1)

    study = maps.run(Far().eval(), [EncounterGeometry(v_own=50)], reach=80000)
    # beyond 60,760 ft clear of conflict costs 9,240 for ever: without clipping it would be cheaper still
    assert [(z.label, round(z.min_rho)) for z in study.maps[0].regions] == [(WL, 0), (COC, 60700)]
    assert len(study.maps[0].plane) == 2
    expected = [
        "rho leaves its range (0 to 80000) and was clipped.",
        "v_own leaves its range (50 to 50) and was clipped.",
    ]
    assert describe_clipping(study) == expected
    assert all(text in format_report(study) for text in expected)


@pytest.mark.parametrize("reach", [0, -1.0, float("nan"), float("inf"), 1e10, True, "far"])
def test_an_invalid_reach_is_refused(reach):
    with pytest.raises(ArgumentError, match="feet"):
        maps.run(reach=reach)


def test_progress_runs_from_0_to_1():
    seen: list[float] = []
    maps.run(
        Tied().eval(), [EncounterGeometry(), EncounterGeometry(psi=0)], progress=lambda share, what: seen.append(share)
    )
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


@cache
def run_published(data: Path, reach: float) -> tuple[AdvisoryMaps, float]:
    """Maps of ACAS Xu 1_1, and the processor seconds they took."""
    began = time.process_time()
    scenes = None if reach == DEFAULT_REACH_FEET else [EncounterGeometry()]
    file = data / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet"
    return maps.run(file, scenes, reach=reach), time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize(("reach", "pieces"), [(DEFAULT_REACH_FEET, 33200), (60760.0, 39126)])
def test_acas_xu_on_the_whole_polar_map(data: Path, reach: float, pieces: int):
    study, seconds = run_published(data, reach)
    m = study.maps[0]
    print(f"\nACAS Xu 1_1, rho to {reach:.0f} ft: {seconds:.1f} processor seconds for {len(study.maps)} maps")
    print(f"  {sum(len(each.plane) for each in study.maps):,} polygons in all")
    for each in study.maps:
        least = each.smallest_region
        smallest = (
            f"smallest {least.advisory}, {least.area:.3g} sq ft at {least.rho:.0f} ft, {np.degrees(least.theta):.0f}°"
        )
        print(f"  {each.title}: {len(each.plane):,} polygons, {len(each.regions)} regions, {smallest}")
    assert len(m.plane) == pytest.approx(pieces, rel=0.001)
    assert seconds < 5 * len(study.maps)
    for each in study.maps:
        assert sum(z.area for z in each.regions) == pytest.approx(pi * reach**2, rel=1e-13)
        places = torch.tensor([(z.rho, z.theta) for z in each.regions], dtype=torch.float64)
        assert study.advisor.advise(each.geometry.to_inputs(places)).tolist() == [z.label for z in each.regions]
    check_points(study, m, 100_000)
    # the strong left inside weak left that samples of a line miss
    inner = [z for z in m.regions if z.label == SL and abs(z.rho - 2800) < 250 and abs(np.degrees(z.theta) + 68) < 3]
    assert len(inner) == 1
    assert inner[0].min_rho < 2590 < 3021 < inner[0].max_rho
