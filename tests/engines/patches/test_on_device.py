"""The patch engine takes other paths on a GPU: they give what those of a CPU give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.patches import adjoint_switches, error_oracle, segmentation, timeline
from exactline.engines.patches.adjoint_sweep import AdjointSweep
from exactline.engines.patches.error_oracle import ErrorOracle
from exactline.engines.patches.plan import patch_plan
from exactline.engines.patches.segment import Segment
from exactline.lines import as_lines
from exactline.ops import masks
from tests.engines.dense.device_reads import count_reads
from tests.engines.patches.random_graphs import random_graph
from tests.engines.patches.test_adjoint import KINDS, TIED_KINDS, PatchRuns, assert_close, integrate, small_case
from tests.engines.patches.test_sweep import assert_same
from tests.engines.pretend_gpu import FREE_BYTES, pretend_gpu


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], object]:
    """Runs a function as on a GPU."""

    def run(function):
        with pretend_gpu(monkeypatch):
            return function()

    return run


def assert_same_lines(found: xl.Restriction, expected: xl.Restriction) -> None:
    assert torch.equal(found.origin_table, expected.origin_table)
    torch.testing.assert_close(found.alphas, expected.alphas, rtol=0, atol=1e-11)
    for one, other in zip(found.stored_values, expected.stored_values, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=max(found.error, expected.error) * 16 + 1e-13)


@pytest.mark.parametrize("kind", [*KINDS, *TIED_KINDS])
@pytest.mark.every(2)
def test_restrictions(kind, on_device):
    model, _, start, end = small_case(kind)
    on_device(lambda: assert_same(model, start, end))


@pytest.mark.parametrize("kind", [*KINDS, *TIED_KINDS])
def test_gradients(kind, on_device, monkeypatch):
    _, network, start, end = small_case(kind)
    expected = integrate(network, start, end, "patches")
    _, network, start, end = small_case(kind)  # nothing is cached for it
    runs = PatchRuns(monkeypatch)
    found = on_device(lambda: integrate(network, start, end, "patches"))
    assert runs.count == 1 or kind in TIED_KINDS
    assert found.pieces == expected.pieces
    assert_close(found.gradients[0], expected.gradients[0])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.every(10)
def test_random_graphs(seed, on_device):
    model, start, end = random_graph(seed)
    on_device(lambda: assert_same(model, start, end))


@pytest.mark.parametrize("kind", ["concatenation", "groups"])
def test_many_segments(kind, on_device, monkeypatch):
    """With a deadline, a limit of breaks and little memory: other constants divide the line."""
    model, _, start, end = small_case(kind)
    expected = xl.restrict(model, start, end, engine="dense")
    monkeypatch.setitem(segmentation.MAX_SEGMENT_BREAKS, "cuda", 40)
    monkeypatch.setitem(segmentation.DEADLINE_BREAKS, "cuda", 20)
    for options in ({}, {"seconds": 1000.0}, {"memory": 1 << 20}):
        found = on_device(lambda options=options: xl.restrict(model, start, end, engine="patches", **options))
        assert_same_lines(found, expected)
    some = on_device(lambda: xl.restrict(model, start, end, engine="patches", max_breaks=30))
    assert len(some.alphas) >= 30
    torch.testing.assert_close(some.alphas, expected.alphas[: len(some.alphas)], rtol=0, atol=1e-11)


@pytest.mark.parametrize("limit", [1 << 28, 0])  # pairs that are counted together
@pytest.mark.parametrize("compared", [1 << 22, 300])  # pairs that are compared at a time
@pytest.mark.parametrize("kind", ["overlapping pool", "residual", "depthwise with a stride"])
def test_switches_are_found_in_the_patches_that_hold_them(kind, compared, limit, on_device, monkeypatch):
    """Counted in one synchronization or block by block, each (switch, patch) once, in every group in order."""
    pairs, find_pairs = list[tuple[Tensor, ...]](), adjoint_switches._find_pairs

    def recording_find(node, switches):
        for blocks in find_pairs(node, switches):
            found = list(blocks)
            pairs.append(tuple(torch.cat(column) for column in zip(*found, strict=True)) if found else ())
            yield iter(found)

    monkeypatch.setattr(adjoint_switches, "_find_pairs", recording_find)
    _, network, start, end = small_case(kind)
    expected_gradients = integrate(network, start, end, "patches").gradients[0]
    expected, pairs = pairs, list[tuple[Tensor, ...]]()
    monkeypatch.setattr(adjoint_switches, "MAX_PAIRS", compared)
    monkeypatch.setattr(adjoint_switches, "MAX_COUNTED_PAIRS", limit)
    found_gradients = on_device(lambda: integrate(network, start, end, "patches")).gradients[0]
    assert_close(found_gradients, expected_gradients)
    assert sum(len(p[0]) for p in pairs if p) > 100
    for one, other in zip(pairs, expected, strict=True):
        for column, other_column in zip(one, other, strict=True):
            assert torch.equal(column, other_column)


def test_counted_indices_need_no_synchronization(on_device, monkeypatch):
    mask = torch.rand(5, 6, 7) > 0.6
    for some in (mask, mask & False, mask[:0]):
        for has_static in (True, False):
            monkeypatch.setattr(timeline, "HAS_STATIC_NONZERO", has_static)
            with count_reads(monkeypatch) as reads:
                found = on_device(lambda some=some: timeline.nonzero(some, len(some.nonzero())))
            assert reads.count == 1 + (not has_static and bool(some.any()))  # `nonzero` in this test is the first
            for column, expected in zip(found, some.nonzero(as_tuple=True), strict=True):
                assert torch.equal(column, expected)


def test_margins_of_all_nodes_are_kept(on_device, monkeypatch):
    """On a CPU, tables by pixel may take a part of the memory only."""
    monkeypatch.setattr(error_oracle, "PIXEL_TABLES_DIVISOR", 1 << 60)
    monkeypatch.setattr(error_oracle, "block_bytes", lambda *_: 0)
    kept = []
    run = Segment.run
    monkeypatch.setattr(Segment, "run", lambda self: (run(self), kept.append(len(self.errors.pixel_tables)))[0])
    model, _, start, end = small_case("residual")
    xl.restrict(model, start, end, engine="patches")
    assert set(kept) == {0}
    kept.clear()
    on_device(lambda: xl.restrict(small_case("residual")[0], start, end, engine="patches"))
    assert min(kept) > 0


class Overfull:
    """Makes a function run out of memory where it gets more than some points."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.refused = capacity, 0

    def require(self, points: int) -> None:
        if points > self.capacity:
            self.refused += 1
            raise torch.cuda.OutOfMemoryError("no room")


def test_a_forecast_that_runs_out_of_memory(on_device, monkeypatch):
    _, network, start, end = small_case("residual")
    lines = as_lines(start, end, ("start", "end"), many=False)
    expected, overfull = segmentation.forecast_segments(network, lines, 0, 30), Overfull(5)
    compare = segmentation._compare_patterns

    def limited_compare(network, lines, line, alphas):
        overfull.require(len(alphas))
        return compare(network, lines, line, alphas)

    monkeypatch.setattr(segmentation, "_compare_patterns", limited_compare)
    found = on_device(lambda: segmentation.forecast_segments(network, lines, 0, 30))
    assert overfull.refused
    assert [span.start for span in found] == pytest.approx([span.start for span in expected], abs=1e-12)


def test_a_segment_that_runs_out_of_memory(on_device, monkeypatch):
    model, _, start, end = small_case("residual")
    expected, overfull = xl.restrict(model, start, end, engine="dense"), Overfull(30)
    run = Segment.run

    def limited_run(self):
        breaks = run(self)
        overfull.require(len(breaks.alphas))
        return breaks

    monkeypatch.setattr(Segment, "run", limited_run)
    assert_same_lines(on_device(lambda: xl.restrict(model, start, end, engine="patches")), expected)
    assert overfull.refused


def test_a_refinement_that_runs_out_of_memory(on_device, monkeypatch):
    _, network, start, end = small_case("residual")
    lines = as_lines(start, end, ("start", "end"), many=False)
    oracle = ErrorOracle.sample(network, lines, 0, patch_plan(network).first_dense_node)
    node = next(iter(oracle.margins))
    alphas = torch.linspace(0.1, 0.9, 30, dtype=torch.float64)
    nodes, elements = torch.full((30,), node), torch.arange(30)
    arguments = nodes, alphas, elements, torch.full((30,), -1)
    expected, overfull = oracle.refine(*arguments), Overfull(4)
    evaluate = ErrorOracle._evaluate

    def limited_evaluate(self, nodes, *columns):
        overfull.require(len(nodes))
        return evaluate(self, nodes, *columns)

    monkeypatch.setattr(ErrorOracle, "_evaluate", limited_evaluate)
    found = on_device(lambda: oracle.refine(*arguments))
    assert overfull.refused
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-15)


def test_free_memory_limits_refinement(on_device):
    _, network, start, end = small_case("residual")
    lines = as_lines(start, end, ("start", "end"), many=False)
    oracle = ErrorOracle.sample(network, lines, 0, patch_plan(network).first_dense_node)
    points = on_device(lambda: oracle._points_per_batch(6))
    assert points * error_oracle.bytes_per_estimate(network, 6) <= FREE_BYTES / 4


def test_whole_maps_are_multiplied_a_few_at_a_time(on_device, monkeypatch):
    monkeypatch.setattr("exactline.engines.patches.linear.MAX_GPU_WHOLE_MAP_NUMBERS", 1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).double()
    start, end = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    on_device(lambda: assert_same(model, start, end))


def test_the_pretended_device_is_one(on_device):
    x = torch.zeros(1)
    assert masks.is_on_host(x)
    assert not on_device(lambda: masks.is_on_host(x))


def _count_reads(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, run: Callable[[], object]) -> list[int]:
    """The synchronizations of every call of a method."""
    counts: list[int] = []
    method = getattr(owner, name)
    with monkeypatch.context() as patch, pretend_gpu(monkeypatch), count_reads(monkeypatch) as reads:

        def counting_method(self, *arguments):
            before = reads.count
            result = method(self, *arguments)
            counts.append(reads.count - before)
            return result

        patch.setattr(owner, name, counting_method)
        run()
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_affine_nodes_do_not_wait_for_a_device(kind, monkeypatch):
    """Except where branches of different breaks meet, whose common patches depend on their positions."""
    _, network, start, end = small_case(kind)

    def run() -> object:
        return integrate(network, start, end, "patches")

    with pretend_gpu(monkeypatch):
        run()  # tables of pixels are cached
    meeting = {"residual": 1, "concatenation": 1, "split": 2, "units seen again": 1, "units seen again by clamps": 2}
    branches = meeting.get(kind, 0)
    assert sum(_count_reads(monkeypatch, Segment, "_apply_affine", run)) <= branches
    assert sum(_count_reads(monkeypatch, AdjointSweep, "_pass_affine", run)) <= branches
    assert max(_count_reads(monkeypatch, AdjointSweep, "_pass_activation", run)) <= 2  # switches, and lost leads
