"""Both engines and all memory budgets give one answer: equal breaks, origins, counts and ambiguous units."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr.path_integrals import path_integral
from exactline.lines import Lines
from exactline.network import as_network
from exactline.ops.base import Breaking
from tests.numerics.mixed_graphs import TIED_WEIGHTS, make_mixed_graph

CASES = int(os.environ.get("EXACTLINE_NUMERICS_CASES", "400"))  # in the slow tests
SMALL_MEMORY = 1 << 17
# Graphs of which rounding moves units off their knots at other points in each engine: zeros that are exact at some
# points, windows of zeros, and units behind ReLUs that are off on the piece and on their knot at one of its ends.
AMBIGUOUS_SEEDS = (65, 147, 160, 471)


def origins(line: xl.Restriction) -> list[tuple[str, int, int] | None]:
    return [b and (b.node, b.unit, b.count) for b in line.origins]


def assert_one_answer(model: nn.Module, start: Tensor, end: Tensor) -> None:
    """Compare both engines with much and little memory, a stream, and one line of many."""
    dense = xl.restrict(model, start, end, engine="dense")
    exact = xl.exact.restrict(model, start, end)
    if len(exact.alphas) == len(dense.alphas):  # exact breaks that float64 does not resolve have origins of their own
        assert origins(dense) == [b and (b.node, b.unit, b.count) for b in exact.origins]
    for engine in ("dense", "patches"):
        lines = [xl.restrict(model, start, end, engine=engine, memory=memory) for memory in (None, SMALL_MEMORY)]
        lines.append(xl.restrict_many(model, torch.stack([end, start]), torch.stack([start, end]), engine=engine)[1])
        for line in lines:
            assert len(line) == len(dense)
            assert float((line.alphas - dense.alphas).abs().max()) < 1e-9
            assert origins(line) == origins(dense)
            assert line.ambiguous_per_piece.tolist() == dense.ambiguous_per_piece.tolist()
        parts = list(xl.sweep(model, start, end, engine=engine, memory=SMALL_MEMORY))
        assert torch.cat([p.ambiguous_per_piece for p in parts]).tolist() == dense.ambiguous_per_piece.tolist()


def check(seeds: Iterable[int]) -> None:
    for seed in seeds:
        assert_one_answer(*make_mixed_graph(torch.Generator().manual_seed(seed), TIED_WEIGHTS))


def test_a_few_tied_graphs():
    check([0, *AMBIGUOUS_SEEDS[:2]])


def test_crossings_without_a_kink_share_their_break():
    check([257])  # a PReLU of slope 1, whose 16 units cross at 1/3


@pytest.mark.slow
def test_many_tied_graphs():
    check([*range(CASES), *AMBIGUOUS_SEEDS])


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_units_that_cancel_are_ambiguous_whichever_way_they_are_rounded(engine):
    model = nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[[[1.0, 2.0], [-1.0, -2.0]]]]))
        model[0].bias.zero_()
    end = torch.rand(1, 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(1, 3, 3).clone()
    line = xl.restrict(model, torch.zeros(1, 3, 3), end, engine=engine)  # all rows are equal
    assert line.ambiguous_per_piece.tolist() == [4]  # although all values are exactly 0


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_units_that_read_nothing_but_zeros_are_not_ambiguous(engine):
    first, second = nn.Conv2d(1, 2, 2), nn.Conv2d(2, 3, 1, bias=False)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[[[1.0, 1.0], [1.0, 1.0]]], [[[2.0, 1.0], [1.0, 2.0]]]]))
        first.bias.copy_(torch.tensor([-1.0, -3.0]))
    line = xl.restrict(model, torch.zeros(1, 3, 3), torch.ones(1, 3, 3), engine=engine)
    assert len(line) == 3  # the units of each channel of the first layer cross together
    assert line.ambiguous == 0  # those of the second one are 0 until then


def test_leaders_of_windows_of_inputs_change_at_one_alpha():
    model = nn.Sequential(nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(64, 2)).double()
    for seed in range(4):
        x = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for engine in ("dense", "patches"):  # at 1/3 all inputs are 0; the computed positions are an ulp apart
            assert len(xl.restrict(model, -x, 2 * x, engine=engine)) == 2


def test_sums_that_drift_do_not_break_beside_the_break_that_turns_a_unit_off():
    random = torch.Generator().manual_seed(301)
    model = nn.Sequential(
        *(nn.Conv2d(4, 3, 1), nn.Hardtanh()),
        *(nn.Conv2d(3, 6, (3, 2), padding=(0, 1), groups=3, bias=False, padding_mode="circular"), nn.ReLU()),
        *(nn.Conv2d(6, 2, 1), nn.ReLU()),
        nn.Conv2d(2, 4, (1, 2), (3, 1), padding=1, dilation=(2, 1), groups=2, bias=False, padding_mode="reflect"),
        *(nn.ReLU(), nn.Conv2d(4, 2, (1, 2), (1, 2), dilation=(1, 2), groups=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(12, 1)),
    ).double()
    for parameter in model.parameters():  # steep: values reach 1e3 between sample points at which they are 0
        parameter.data = 30 * torch.randn(parameter.shape, generator=random, dtype=torch.float64)
        torch.randint(-2, 3, parameter.shape, generator=random)
    end = torch.randn(2, 4, 6, 6, generator=random, dtype=torch.float64)[1].round()
    assert_one_answer(model, torch.full_like(end, 0.5), end)


def test_windows_whose_leader_changes_several_times_at_a_break_count_once():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten()).double()
    x = torch.randn(1, 4, 4, dtype=torch.float64)
    exact = xl.exact.restrict(model, -x, 2 * x)  # at 1/3 all members of each window equal the bias
    assert 1 < max(b.count for b in exact.origins if b) <= 8
    assert_one_answer(model, -x, 2 * x)


def test_a_window_with_several_leaders_where_two_parts_meet_counts_as_in_one_part():
    class Stages(nn.Module):
        """Maxima of four units that are often on the upper bound together."""

        def forward(self, x: Tensor) -> Tensor:
            levels = torch.arange(1, 9, dtype=x.dtype, device=x.device) / 10
            steps = ((x - levels) * 20).clamp(0, 1)
            waves = steps + (x * 7 - 3).abs()
            return torch.cat(
                [steps[:, :4].amax(1, True), steps.roll(1, 1)[:, :4].amax(1, True), waves.amax(1, True)], 1
            )

    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    whole = xl.restrict(Stages(), zero, one, engine="dense")
    for memory in (1, 1 << 12):
        assert origins(xl.restrict(Stages(), zero, one, engine="dense", memory=memory)) == origins(whole)


@pytest.mark.slow
def test_lines_that_are_swept_in_parts_of_a_point_or_two():
    random = torch.Generator().manual_seed(24)
    model, start, end = make_mixed_graph(random, ("integers",))
    network = as_network(model, [start])
    starts, ends = torch.stack([start, end, start]), torch.stack([end, start, (start + end) / 2])
    lines, targets = Lines((starts,), (ends,)), torch.zeros(3, dtype=torch.int64)
    whole = path_integral(network, lines, targets, engine="dense")
    parts = path_integral(network, lines, targets, engine="dense", memory=1 << 18)
    torch.testing.assert_close(parts.gradients, whole.gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [nn.MaxPool1d(2), nn.ReLU(), nn.Hardtanh()], ids=["max", "relu", "hardtanh"])
def test_parts_of_one_point_have_patterns_without_pieces(kind):
    network = as_network(kind, [torch.zeros(1, 4)])
    (node,) = (network.nodes[i] for i in network.breaking_nodes)
    none = torch.zeros(0, *network.nodes[node.inputs[0]].shape, dtype=torch.float64)
    assert isinstance(node.op, Breaking)
    pattern = node.op.activation_pattern(none, none)
    assert len(pattern) == 0
    assert node.op.other_side(none, none) is None
    assert len(node.op.apply_affine(pattern, none)) == 0
