"""One line split into segments that are swept apart: joined, they are the answer for the whole line."""

from functools import partial

import pytest
import torch

import exactline as xl
from exactline.engines.ambiguity import count_ambiguous
from exactline.engines.assemble import Assembler
from exactline.engines.dense.sweep import SweepLimits
from exactline.lines import as_lines
from exactline.network import as_network
from exactline.results.restriction import Restriction
from exactline.results.restrictions import Restrictions
from exactline.scale.split_line import SEGMENT_POINTS, SegmentOptions, pickle_state, split_line, sweep_segment
from exactline.scale.transport import pack_for_workers
from exactline.zoo import tent_network
from tests.oracle.families import FAMILIES, seeded, small_integers


def split_here(
    model, start, end, wanted: int, *, max_points: int = 1 << 20, split_points: int = SEGMENT_POINTS
) -> tuple[Restriction, int]:
    """Sweep the segments of a line as workers do, states pickled on the way, without Ray itself."""
    lines = as_lines(start, end, ("start", "end"), many=False)
    network = as_network(model, [t[0] for t in lines.starts])
    packed = pack_for_workers(network, None)
    segments = split_line(network, lines, wanted, split_points)
    needs = SegmentOptions(max_points, True, None)
    parts = [part for state in segments for part in sweep_segment(packed, pickle_state(state), needs)[0]]
    shapes = [network.nodes[i].shape for i in network.outputs]
    count = partial(count_ambiguous, network, lines, limits=SweepLimits(1))
    breaks = Assembler(1, shapes, None, SweepLimits(1), count=count).collect(iter(parts))
    return Restrictions(breaks, lines, network)[0], len(segments)


def assert_equal(split: Restriction, whole: Restriction) -> None:
    assert len(split) == len(whole)
    assert torch.allclose(split.alphas, whole.alphas, rtol=0, atol=1e-12)
    assert torch.equal(split.origin_table, whole.origin_table)
    for a, b in zip(split.stored_values, whole.stored_values, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("max_points", [1 << 20, 40])
@pytest.mark.slow
def test_a_tent_is_bit_for_bit_the_same(max_points):
    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    split, count = split_here(tent_network(12), start, end, 16, max_points=max_points)
    assert count >= 16
    assert split.alphas.tolist() == [k / 4096 for k in range(4097)]
    assert_equal(split, xl.restrict(tent_network(12), start, end, engine="dense"))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seeds", [range(7), pytest.param(range(7, 140), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_networks_of_every_kind_are_the_same_split_after_two_points(ties, seeds):
    split_lines = 0
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        model, shape = list(FAMILIES.values())[seed % len(FAMILIES)](generator)
        (small_integers if ties else seeded)(*((generator, model) if ties else (model, generator)))
        if ties:
            start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
        else:
            start, end = 2 * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        split, count = split_here(model, start, end, 8, split_points=2)
        whole = xl.restrict(model, start, end, engine="dense")
        assert_equal(split, whole)
        assert split.ambiguous_per_piece.tolist() == whole.ambiguous_per_piece.tolist()
        split_lines += count > 1
    assert split_lines > len(seeds) // 3


def test_a_wide_network_is_the_same():
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 200), torch.nn.ReLU(), torch.nn.Linear(200, 200), torch.nn.ReLU(), torch.nn.Linear(200, 4)
    ).double()
    start, end = 3 * torch.randn(2, 8, dtype=torch.float64)
    split, count = split_here(model.eval(), start, end, 16)
    assert count >= 4
    whole = xl.restrict(model, start, end, engine="dense")
    assert_equal(split, whole)
    assert torch.equal(split.ambiguous_per_piece, whole.ambiguous_per_piece)
