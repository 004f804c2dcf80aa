"""The line study finds the known intervals of networks solved by hand, and the paper's in the published networks."""

from __future__ import annotations

import csv
import io
import re
import time
from functools import cache
from itertools import pairwise
from math import cos, hypot, radians, sin
from pathlib import Path

import pytest
import torch

import exactline as xl
from exactline.paper.acas import lines
from exactline.paper.acas.advisor import ADVISORIES
from exactline.paper.acas.geometry import EncounterGeometry
from exactline.paper.acas.line_report import (
    describe_clipping,
    format_lines_csv,
    format_missed_csv,
    format_report,
    save_report,
)
from tests.paper.acas.solved_by_hand import Rings, Tied

NAMES = [advisory.name for advisory in ADVISORIES]
COC, WL, WR, SL, SR = range(5)


@pytest.fixture(scope="module")
def rings() -> lines.LineStudy:
    return lines.run(Rings().eval())


@pytest.fixture(scope="module")
def ours() -> lines.LineStudy:
    return lines.run()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_single_distance_line_matches_the_solution_by_hand(rings: lines.LineStudy):
    line, across = rings.lines_of("single distance", "single theta")
    assert [s.label for s in line.intervals] == [WL, SL, WL, COC]
    ends = [line.track.varying_input(s.stop) for s in line.intervals]
    assert ends == pytest.approx([2995, 3005, 5000, 12000], rel=1e-14)
    # the largest margins: at 0, in the middle of the ring, halfway from the ring to clear, at the end
    assert [s.margin for s in line.intervals] == pytest.approx([2995, 5, 997.5, 7000])
    assert [(s.start, s.stop, s.label) for s in across.intervals] == [(0.0, 1.0, WL)]
    assert across.breaks == 2


def test_breaks_of_the_hand_made_network(rings: lines.LineStudy):
    # one break in the middle of the ring, and both ends
    assert rings.break_statistics("distance") == (3.0, 3, 3)
    assert rings.break_statistics("single distance") == (3.0, 3, 3)


def test_missed_intervals_match_the_solution_by_hand(rings: lines.LineStudy):
    expected = []
    for line in rings.lines_of("single distance", "distance"):
        edge = line.track.end[0]
        sampled = [k * edge / 14 for k in range(15)]
        if not any(2995 <= rho <= 3005 for rho in sampled):
            expected.append((line.track.kind, line.track.number, SL))
        # the region between ring and clear is 1995 ft wide: never narrower than the spacing
        assert edge / 14 < 1995
    assert len(expected) > 90
    assert [(m.line.track.kind, m.line.track.number, m.interval.label) for m in rings.missed] == expected
    assert all((m.before, m.after, m.unseen) == ("weak left", "weak left", True) for m in rings.missed)


def test_intervals_unseen_on_the_grid_match_the_solution_by_hand(rings: lines.LineStudy):
    ring = [(x, y) for x, y in rings.grid.tolist() if abs(hypot(x, y) - 3000) <= 5]
    assert ring == [(x, y) for (x, y), label in zip(rings.grid.tolist(), rings.grid_labels, strict=True) if label == SL]
    wide, high = 16000 / 24, 12000 / 24
    for m in rings.missed:
        x, y = m.line.track.xy((m.interval.start + m.interval.stop) / 2)
        assert m.off_grid == (not any(abs(x - a) < wide and abs(y - b) < high for a, b in ring))
    assert {m.off_grid for m in rings.missed} == {True, False}


def test_an_interval_that_contains_a_sample_is_not_missed():
    found = lines.run(
        Rings().eval(), EncounterGeometry(samples=5, ray_count=2, circle_count=1)
    )  # 0, 3000, 6000, 9000, 12000
    # the ring contains the second sample; from 3005 to 5000 ft there is none, and the spacing is 3000 ft
    assert [m.interval.label for m in found.missed if m.line.track.kind == "single distance"] == [WL]


def test_ties_along_whole_lines_are_reported():
    found = lines.run(Tied().eval(), EncounterGeometry(ray_count=2, circle_count=1))
    assert all([s.tied for s in line.intervals] == [(WL, WR)] for line in found.lines)
    assert {row["tied"] for row in rows(format_lines_csv(found))} == {"weak left = weak right"}
    assert "weak left = weak right" in format_report(found)


def test_intervals_cover_each_line_and_agree_with_the_network(ours: lines.LineStudy):
    for line in ours.lines:
        stops = [s.stop for s in line.intervals]
        assert [s.start for s in line.intervals] == [0.0, *stops[:-1]]
        assert stops[-1] == 1.0
        middles = [line.track.polar((s.start + s.stop) / 2) for s in line.intervals]
        advice = ours.advisor.advise(ours.geometry.to_inputs(middles)).tolist()
        assert advice == [s.label for s in line.intervals]
        for alpha, label in line.samples:
            assert label in {s.label for s in line.intervals if s.start <= alpha <= s.stop}


def test_every_boundary_of_our_network_is_a_tie_of_costs(ours: lines.LineStudy):
    for line in ours.lines:
        for before, after in pairwise(line.intervals):
            costs = ours.advisor.network(ours.geometry.to_inputs([line.track.polar(before.stop)]))[0].tolist()
            # costs of size 1 that change by some tens along the line, at an alpha rounded to 1e-16
            assert abs(costs[before.label] - costs[after.label]) < 1e-13
            assert costs[before.label] - min(costs) < 1e-13


def test_our_network_sends_the_ownship_away_from_the_intruder(ours: lines.LineStudy):
    corners = [line for line in ours.lines_of("distance") if abs(line.track.fixed_input) > 150]
    assert all(line.intervals[-1].label == COC for line in corners)  # far behind
    left, right = ours.advisor.advise(ours.geometry.to_inputs([(4000.0, 0.4), (4000.0, -0.4)])).tolist()
    assert left in (WR, SR)
    assert right in (WL, SL)
    assert {s.label for line in ours.lines for s in line.intervals} == {COC, WL, WR, SL, SR}


def test_inputs_outside_their_ranges_are_clipped_and_reported():
    slow, slowest = (lines.run(geometry=EncounterGeometry(v_own=v, ray_count=5, circle_count=1)) for v in (30, 100))
    assert [line.intervals for line in slow.lines] == [line.intervals for line in slowest.lines]
    assert describe_clipping(slow) == ["v_own leaves its range (30 to 30) and was clipped."]
    assert describe_clipping(slowest) == []
    assert "v_own leaves its range" in format_report(slow)


def test_a_line_that_leaves_the_range_is_constant_outside():
    class Far(torch.nn.Module):
        def forward(self, x):
            rho = x[:, :1]
            return torch.cat([70000 - rho, 9300 + rho * 0, rho * 0 + 1e6, rho * 0 + 1e6, rho * 0 + 1e6], 1)

    # beyond 60,760 ft clear of conflict costs 9,240 for ever: without clipping it would be cheaper still
    line = lines.run(Far().eval(), EncounterGeometry(reach=80000, ray_count=2, circle_count=1)).lines_of(
        "single distance"
    )[0]
    assert line.breaks == 3
    assert [line.track.varying_input(s.stop) for s in line.intervals] == pytest.approx([60700, 80000])
    assert line.intervals[1].margin == pytest.approx(60)


def test_the_tables_agree_with_the_study(rings: lines.LineStudy):
    table = rows(format_lines_csv(rings))
    intervals = [(line, s) for line in rings.lines for s in line.intervals]
    assert len(table) == len(intervals)
    for row, (line, s) in zip(table, intervals, strict=True):
        assert (float(row["start_alpha"]), float(row["stop_alpha"])) == (s.start, s.stop)
        assert (row["kind"], row["advisory"], float(row["margin"])) == (line.track.kind, NAMES[s.label], s.margin)
        rho, theta = float(row["stop"]), float(row["fixed"])
        if row["varies"] == "theta":
            rho, theta = theta, rho
        place = (rho * cos(radians(theta)), rho * sin(radians(theta)))
        assert (float(row["stop_x"]), float(row["stop_y"])) == pytest.approx(place, abs=1e-8)
    missed = rows(format_missed_csv(rings))
    assert len(missed) == len(rings.missed)
    assert all(float(row["length_ft"]) == pytest.approx(10) for row in missed)
    assert {(row["unseen_on_line"], row["advisory"]) for row in missed} == {("yes", "strong left")}


def test_the_report_is_saved(rings: lines.LineStudy, tmp_path: Path):
    written = save_report(rings, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.csv", "missed.csv", "report.md"]
    text = (tmp_path / "report.md").read_text()
    assert written[2] == tmp_path / "report.md"
    assert not re.search(r"(?<![\d.])128\b", text)  # 128 as a number of its own, not as part of a time
    assert "nothing" not in text
    for words in ("distance lines | 100 | 3.0 | 3 | 3", "2995.0000 | 3005.0000 | strong left | 0", "psi = -180"):
        assert words in text


def test_a_study_that_misses_nothing_says_so():
    class Calm(torch.nn.Module):
        def forward(self, x):
            return x * 0 + torch.arange(5.0)

    found = lines.run(Calm().eval(), EncounterGeometry(ray_count=2, circle_count=1))
    assert not found.missed
    assert "Nothing: every interval contains one" in format_report(found)


@pytest.mark.slow
def test_progress_runs_from_0_to_1():
    seen: list[float] = []
    lines.run(
        Tied().eval(), EncounterGeometry(ray_count=2, circle_count=1), progress=lambda share, what: seen.append(share)
    )
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


@cache
def run_published(data: Path, name: str) -> tuple[lines.LineStudy, float]:
    """The study of a published network, and the processor seconds it took."""
    number, kind = name.split(".")
    began = time.process_time()
    return lines.run(data / "acasxu" / kind / f"ACASXU_run2a_{number}_batch_2000.{kind}"), time.process_time() - began


@pytest.mark.parametrize(
    ("name", "mean", "least", "most"),
    [("1_1.nnet", 128.65, 95, 171), ("1_1.onnx", 128.65, 95, 171), ("2_3.nnet", 69.46, 43, 114)],
)
def test_published_networks_have_the_known_numbers_of_breaks(data: Path, name: str, mean: float, least: int, most: int):
    found, _ = run_published(data, name)
    assert found.break_statistics("distance") == (pytest.approx(mean), least, most)


@pytest.mark.slow
def test_strong_left_inside_weak_left_is_seen_exactly_and_missed_by_samples(data: Path, tmp_path: Path):
    found, seconds = run_published(data, "1_1.nnet")
    (line,) = found.lines_of("single distance")
    assert [s.label for s in line.intervals] == [SL, WL, SL, WL, COC]
    inner = line.intervals[2]
    assert [round(line.track.varying_input(a)) for a in (inner.start, inner.stop)] == [2590, 3021]
    # the samples show strong left, then weak left, then clear: the region inside has none
    labels = [label for _, label in line.samples]
    assert labels == sorted(labels, key=[SL, WL, COC].index)
    assert [m.interval for m in found.missed if m.line is line] == [inner]
    widths = [m.length_feet for m in found.missed]
    assert (len(widths), len(found.lines), round(min(widths), 1)) == (24, 141, 2.0)  # quoted in docs/acas.md
    from exactline.paper.acas.line_plot import draw_figures

    began = time.process_time()
    assert len(draw_figures(found, tmp_path)) == 14
    assert seconds + time.process_time() - began < 20


def test_the_same_network_from_both_formats_advises_the_same(data: Path):
    text, graph = (run_published(data, f"1_1.{kind}")[0] for kind in ("nnet", "onnx"))
    assert "as the file specifies" in text.advisor.note
    assert "constants of ACAS Xu" in graph.advisor.note
    for a, b in zip(text.lines, graph.lines, strict=True):
        assert [s.label for s in a.intervals] == [s.label for s in b.intervals]
        # the .onnx holds float32 weights: boundaries move a little
        assert [s.stop for s in a.intervals] == pytest.approx([s.stop for s in b.intervals], abs=1e-4)
    assert isinstance(text.advisor.network, xl.Network)
