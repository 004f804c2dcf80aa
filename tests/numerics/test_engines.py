"""Both engines and all memory budgets give one answer: equal breaks, origins and counts, those of the oracle."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr.path_integrals import path_integral
from exactline.lines import Lines
from exactline.network import as_network
from exactline.ops.base import Breaking
from tests.numerics.mixed_graphs import TIED_WEIGHTS, make_mixed_graph

CASES = int(os.environ.get("EXACTLINE_NUMERICS_CASES", "60"))  # in the slow tests
SMALL_MEMORY = 1 << 17
MAX_AMBIGUOUS_SHARE = 0.05  # of networks on which the engines may count ambiguous units differently


def origins(line: xl.Restriction) -> list[tuple[str, int, int] | None]:
    return [b and (b.node, b.unit, b.count) for b in line.origins]


def assert_one_answer(model: nn.Module, start: Tensor, end: Tensor) -> bool:
    """Compare both engines with much and little memory; whether they also agree on ambiguous units."""
    dense = xl.restrict(model, start, end, engine="dense")
    exact = xl.exact.restrict(model, start, end)
    if len(exact.alphas) == len(dense.alphas):  # exact breaks that float64 does not resolve have origins of their own
        assert origins(dense) == [b and (b.node, b.unit, b.count) for b in exact.origins]
    small = xl.restrict(model, start, end, engine="dense", memory=SMALL_MEMORY)
    assert torch.equal(small.ambiguous_per_piece, dense.ambiguous_per_piece)
    patches = [xl.restrict(model, start, end, engine="patches", memory=m) for m in (None, SMALL_MEMORY)]
    for line in (small, *patches):
        assert len(line) == len(dense)
        assert float((line.alphas - dense.alphas).abs().max()) < 1e-9
        assert origins(line) == origins(dense)
    return all(torch.equal(line.ambiguous_per_piece, dense.ambiguous_per_piece) for line in patches)


def check(cases: int) -> None:
    differing = 0
    for seed in range(cases):
        differing += not assert_one_answer(*make_mixed_graph(torch.Generator().manual_seed(seed), TIED_WEIGHTS))
    assert differing <= max(1, MAX_AMBIGUOUS_SHARE * cases)


def test_a_few_tied_graphs():
    check(3)


@pytest.mark.slow
def test_many_tied_graphs():
    check(CASES)


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
