"""One line cut into stretches that are swept apart: joined, they are the answer without a cut."""

import pytest
import torch

import exactline as xl
from exactline.engines.assemble import Assembler
from exactline.engines.dense.sweep import SweepLimits
from exactline.lines import as_lines
from exactline.network import as_network
from exactline.results.restriction import Restriction
from exactline.results.restrictions import Restrictions
from exactline.scale.split_line import POINTS, Errand, stretches, sweep_stretch, travelling
from exactline.scale.transport import packed
from exactline.zoo import tent_network
from tests.oracle.families import FAMILIES, seeded, small_integers


def cut_here(model, start, end, wanted: int, *, points: int = 1 << 20, apart: int = POINTS) -> tuple[Restriction, int]:
    """The same path as over workers, states packed and unpacked on the way, without Ray itself."""
    lines = as_lines(start, end, ("Q", "R"), many=False)
    network = as_network(model, [t[0] for t in lines.starts])
    parcel = packed(network, None)
    states = stretches(network, lines, wanted, apart)
    limits = SweepLimits(1)
    swept = [sweep_stretch(parcel, travelling(state), Errand(points, True, None))[0] for state in states]
    found = Assembler(1, [network.nodes[i].shape for i in network.outputs], None, limits).collect(
        iter([part for parts in swept for part in parts])
    )
    return Restrictions(found, lines, network)[0], len(states)


def assert_equal(cut: Restriction, whole: Restriction) -> None:
    assert len(cut) == len(whole)
    assert torch.allclose(cut.alphas, whole.alphas, rtol=0, atol=1e-12)
    assert torch.equal(cut.origin_table, whole.origin_table)
    for a, b in zip(cut.stored_values, whole.stored_values, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("points", [1 << 20, 40])
def test_a_tent_is_bit_for_bit_the_same(points):
    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    cut, count = cut_here(tent_network(12), start, end, 16, points=points)
    assert count >= 16
    assert cut.alphas.tolist() == [k / 4096 for k in range(4097)]
    assert_equal(cut, xl.restrict(tent_network(12), start, end, engine="dense"))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seeds", [range(7), pytest.param(range(7, 140), marks=pytest.mark.slow)])
def test_networks_of_every_kind_are_the_same_cut_after_two_points(ties, seeds):
    stretched = 0
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        model, shape = list(FAMILIES.values())[seed % len(FAMILIES)](generator)
        (small_integers if ties else seeded)(*((generator, model) if ties else (model, generator)))
        if ties:
            start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
        else:
            start, end = 2 * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        cut, count = cut_here(model, start, end, 8, apart=2)
        whole, narrow = (xl.restrict(model, start, end, memory=m, engine="dense") for m in (None, 1))
        assert_equal(cut, whole)
        # what is in doubt may hang on how many points a sweep holds at once, cut or not
        assert cut.ambiguous_per_piece.tolist() in (
            whole.ambiguous_per_piece.tolist(),
            narrow.ambiguous_per_piece.tolist(),
        )
        stretched += count > 1
    assert stretched > len(seeds) // 3


def test_a_wide_network_is_the_same():
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 200), torch.nn.ReLU(), torch.nn.Linear(200, 200), torch.nn.ReLU(), torch.nn.Linear(200, 4)
    ).double()
    start, end = 3 * torch.randn(2, 8, dtype=torch.float64)
    cut, count = cut_here(model.eval(), start, end, 16)
    assert count >= 4
    whole = xl.restrict(model, start, end, engine="dense")
    assert_equal(cut, whole)
    assert torch.equal(cut.ambiguous_per_piece, whole.ambiguous_per_piece)
