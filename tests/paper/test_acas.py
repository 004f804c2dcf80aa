"""The ACAS Xu study finds what a network solved by hand holds, and what the paper found in the published ones."""

from __future__ import annotations

import csv
import io
import time
from functools import cache
from itertools import pairwise
from math import cos, hypot, radians, sin
from pathlib import Path

import pytest
import torch

import exactline as xl
from exactline.paper import acas
from exactline.paper.acas_report import clipped, lines_csv, missed_csv, report, save
from exactline.paper.encounter import ADVISORIES
from exactline.paper.geometry import Scene
from tests.paper.hand import Rings, Tied

NAMES = [advisory.name for advisory in ADVISORIES]
COC, WL, WR, SL, SR = range(5)


@pytest.fixture(scope="module")
def rings() -> acas.Study:
    return acas.run(Rings().eval())


@pytest.fixture(scope="module")
def ours() -> acas.Study:
    return acas.run()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_single_distance_line_is_as_by_hand(rings: acas.Study):
    line, across = rings.of("single distance", "single theta")
    assert [s.label for s in line.stretches] == [WL, SL, WL, COC]
    ends = [line.track.position(s.stop) for s in line.stretches]
    assert ends == pytest.approx([2995, 3005, 5000, 12000], rel=1e-14)
    # the largest leads: over the ring at 0, of the ring in its middle, halfway from ring to clear, at the end
    assert [s.margin for s in line.stretches] == pytest.approx([2995, 5, 997.5, 7000])
    assert [(s.start, s.stop, s.label) for s in across.stretches] == [(0.0, 1.0, WL)]
    assert across.breaks == 2


def test_breaks_of_the_hand_made_network(rings: acas.Study):
    # one break where the ring turns, besides both ends
    assert rings.breaks("distance") == (3.0, 3, 3)
    assert rings.breaks("single distance") == (3.0, 3, 3)


def test_what_sampling_missed_is_as_by_hand(rings: acas.Study):
    expected = []
    for line in rings.of("single distance", "distance"):
        edge = line.track.stop[0]
        sampled = [k * edge / 14 for k in range(15)]
        if not any(2995 <= rho <= 3005 for rho in sampled):
            expected.append((line.track.kind, line.track.number, SL))
        # the region between ring and clear is 1995 ft wide: never narrower than the spacing
        assert edge / 14 < 1995
    assert len(expected) > 90
    assert [(m.line.track.kind, m.line.track.number, m.stretch.label) for m in rings.missed] == expected
    assert all((m.before, m.after, m.unseen) == ("weak left", "weak left", True) for m in rings.missed)


def test_regions_that_the_grid_does_not_show_are_as_by_hand(rings: acas.Study):
    ring = [(x, y) for x, y in rings.grid.tolist() if abs(hypot(x, y) - 3000) <= 5]
    assert ring == [(x, y) for (x, y), label in zip(rings.grid.tolist(), rings.grid_labels, strict=True) if label == SL]
    wide, high = 16000 / 24, 12000 / 24
    for m in rings.missed:
        x, y = m.line.track.place((m.stretch.start + m.stretch.stop) / 2)
        assert m.off_grid == (not any(abs(x - a) < wide and abs(y - b) < high for a, b in ring))
    assert {m.off_grid for m in rings.missed} == {True, False}


def test_a_region_with_a_sample_in_it_is_not_missed():
    found = acas.run(Rings().eval(), Scene(samples=5, rays_count=2, circles_count=1))  # 0, 3000, 6000, 9000, 12000
    # the ring holds the second sample; from 3005 to 5000 ft there is none, and the spacing is 3000 ft
    assert [m.stretch.label for m in found.missed if m.line.track.kind == "single distance"] == [WL]


def test_ties_along_whole_lines_are_told():
    found = acas.run(Tied().eval(), Scene(rays_count=2, circles_count=1))
    assert all([s.tied for s in line.stretches] == [(WL, WR)] for line in found.lines)
    assert {row["tied"] for row in rows(lines_csv(found))} == {"weak left = weak right"}
    assert "weak left = weak right" in report(found)


def test_stretches_cover_each_line_and_agree_with_the_network(ours: acas.Study):
    for line in ours.lines:
        stops = [s.stop for s in line.stretches]
        assert [s.start for s in line.stretches] == [0.0, *stops[:-1]]
        assert stops[-1] == 1.0
        middles = [line.track.polar((s.start + s.stop) / 2) for s in line.stretches]
        advice = ours.advisor.advice(ours.scene.encounters(middles)).tolist()
        assert advice == [s.label for s in line.stretches]
        for alpha, label in line.samples:
            assert label in {s.label for s in line.stretches if s.start <= alpha <= s.stop}


def test_every_boundary_of_our_network_is_a_tie_of_costs(ours: acas.Study):
    for line in ours.lines:
        for before, after in pairwise(line.stretches):
            costs = ours.advisor.network(ours.scene.encounters([line.track.polar(before.stop)]))[0].tolist()
            # costs of size 1 that change by some tens along the line, at an alpha rounded to 1e-16
            assert abs(costs[before.label] - costs[after.label]) < 1e-13
            assert costs[before.label] - min(costs) < 1e-13


def test_our_network_sends_the_ownship_away_from_the_intruder(ours: acas.Study):
    corners = [line for line in ours.of("distance") if abs(line.track.fixed) > 150]
    assert all(line.stretches[-1].label == COC for line in corners)  # far behind
    left, right = ours.advisor.advice(ours.scene.encounters([(4000.0, 0.4), (4000.0, -0.4)])).tolist()
    assert left in (WR, SR)
    assert right in (WL, SL)
    assert {s.label for line in ours.lines for s in line.stretches} == {COC, WL, WR, SL, SR}


def test_inputs_outside_their_ranges_are_clipped_and_it_is_said():
    slow, slowest = (acas.run(scene=Scene(v_own=v, rays_count=5, circles_count=1)) for v in (30, 100))
    assert [line.stretches for line in slow.lines] == [line.stretches for line in slowest.lines]
    assert clipped(slow) == ["v_own leaves its range (30 to 30) and was clipped."]
    assert clipped(slowest) == []
    assert "v_own leaves its range" in report(slow)


def test_a_line_that_leaves_the_range_is_constant_outside():
    class Far(torch.nn.Module):
        def forward(self, x):
            rho = x[:, :1]
            return torch.cat([70000 - rho, 9300 + rho * 0, rho * 0 + 1e6, rho * 0 + 1e6, rho * 0 + 1e6], 1)

    # beyond 60,760 ft clear of conflict costs 9,240 for ever: without clipping it would be cheaper still
    line = acas.run(Far().eval(), Scene(reach=80000, rays_count=2, circles_count=1)).of("single distance")[0]
    assert line.breaks == 3
    assert [line.track.position(s.stop) for s in line.stretches] == pytest.approx([60700, 80000])
    assert line.stretches[1].margin == pytest.approx(60)


def test_the_tables_say_the_same_as_the_study(rings: acas.Study):
    table = rows(lines_csv(rings))
    stretches = [(line, s) for line in rings.lines for s in line.stretches]
    assert len(table) == len(stretches)
    for row, (line, s) in zip(table, stretches, strict=True):
        assert (float(row["start_alpha"]), float(row["stop_alpha"])) == (s.start, s.stop)
        assert (row["kind"], row["advisory"], float(row["margin"])) == (line.track.kind, NAMES[s.label], s.margin)
        rho, theta = float(row["stop"]), float(row["fixed"])
        if row["varies"] == "theta":
            rho, theta = theta, rho
        place = (rho * cos(radians(theta)), rho * sin(radians(theta)))
        assert (float(row["stop_x"]), float(row["stop_y"])) == pytest.approx(place, abs=1e-8)
    missed = rows(missed_csv(rings))
    assert len(missed) == len(rings.missed)
    assert all(float(row["length_ft"]) == pytest.approx(10) for row in missed)
    assert {(row["unseen_on_line"], row["advisory"]) for row in missed} == {("yes", "strong left")}


def test_the_report_is_saved_whole(rings: acas.Study, tmp_path: Path):
    written = save(rings, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.csv", "missed.csv", "report.md"]
    text = (tmp_path / "report.md").read_text()
    assert written[2] == tmp_path / "report.md"
    for words in ("128", "nothing"):
        assert words not in text
    for words in ("distance lines | 100 | 3.0 | 3 | 3", "2995.0000 | 3005.0000 | strong left | 0", "psi = -180"):
        assert words in text


def test_nothing_missed_is_said():
    class Calm(torch.nn.Module):
        def forward(self, x):
            return x * 0 + torch.arange(5.0)

    found = acas.run(Calm().eval(), Scene(rays_count=2, circles_count=1))
    assert not found.missed
    assert "Nothing: every interval holds one" in report(found)


def test_progress_goes_from_nothing_to_all():
    seen: list[float] = []
    acas.run(Tied().eval(), Scene(rays_count=2, circles_count=1), progress=lambda share, what: seen.append(share))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


@cache
def published(data: Path, name: str) -> tuple[acas.Study, float]:
    """The study of a published network, and the processor seconds it took: others may use the machine too."""
    number, kind = name.split(".")
    began = time.process_time()
    return acas.run(data / "acasxu" / kind / f"ACASXU_run2a_{number}_batch_2000.{kind}"), time.process_time() - began


@pytest.mark.parametrize(
    ("name", "mean", "least", "most"),
    [("1_1.nnet", 128.65, 95, 171), ("1_1.onnx", 128.65, 95, 171), ("2_3.nnet", 69.46, 43, 114)],
)
def test_published_networks_break_as_often_as_is_known(data: Path, name: str, mean: float, least: int, most: int):
    found, _ = published(data, name)
    assert found.breaks("distance") == (pytest.approx(mean), least, most)


def test_strong_left_inside_weak_left_is_seen_exactly_and_missed_by_samples(data: Path, tmp_path: Path):
    found, seconds = published(data, "1_1.nnet")
    (line,) = found.of("single distance")
    assert [s.label for s in line.stretches] == [SL, WL, SL, WL, COC]
    inner = line.stretches[2]
    assert [round(line.track.position(a)) for a in (inner.start, inner.stop)] == [2590, 3021]
    # the samples show strong left, then weak left, then clear: the region inside has none
    labels = [label for _, label in line.samples]
    assert labels == sorted(labels, key=[SL, WL, COC].index)
    assert [m.stretch for m in found.missed if m.line is line] == [inner]
    widths = [m.line.track.length * m.stretch.width for m in found.missed]
    assert (len(widths), len(found.lines), round(min(widths), 1)) == (24, 141, 2.0)  # docs/acas.md says so
    from exactline.paper.plot_acas import draw

    began = time.process_time()
    assert len(draw(found, tmp_path)) == 14
    assert seconds + time.process_time() - began < 20


def test_the_same_network_from_both_formats_advises_the_same(data: Path):
    text, graph = (published(data, f"1_1.{kind}")[0] for kind in ("nnet", "onnx"))
    assert "numbers in the file" in text.advisor.note
    assert "constants of ACAS Xu" in graph.advisor.note
    for a, b in zip(text.lines, graph.lines, strict=True):
        assert [s.label for s in a.stretches] == [s.label for s in b.stretches]
        # the .onnx holds float32 weights: boundaries move a little
        assert [s.stop for s in a.stretches] == pytest.approx([s.stop for s in b.stretches], abs=1e-4)
    assert isinstance(text.advisor.network, xl.Network)
