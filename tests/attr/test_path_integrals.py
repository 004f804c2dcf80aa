"""Tests of path integrals: against sums over pieces, differences of values, and quadrature in 30 digits."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import PathIntegral, path_integral
from exactline.lines import as_lines
from exactline.network import as_network
from exactline.zoo import tent_network
from tests.oracle.families import FAMILIES, seeded, small_integers

SEEDS = 70
PARTS = [pytest.param(part, marks=() if part < 3 else pytest.mark.slow) for part in range(7)]


def integral(network: xl.Network, start: Tensor, end: Tensor, target: int = 0, **options: object) -> PathIntegral:
    lines = as_lines(start[None], end[None], ("start", "end"), many=True)
    return path_integral(network, lines, torch.tensor([target]), **options)  # type: ignore[arg-type]


@cache  # shared by two tests
def random_case(seed: int) -> tuple[str, xl.Network, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    model, shape = FAMILIES[family](generator)
    if seed % 2:
        small_integers(generator, model, most=2)
        start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
    else:
        seeded(model, generator)
        start, end = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * 2
    return family, as_network(model, [start]), start, end


def incompleteness(network: xl.Network, found: PathIntegral, start: Tensor, end: Tensor, target: int = 0) -> float:
    ends = network(torch.stack([start, end])).reshape(2, -1)[:, target]  # type: ignore[union-attr]
    attributions = found.gradients[0][0] * (end - start)
    size = attributions.abs().sum() + ends.abs().sum() + 1e-300
    return float((attributions.sum() - (ends[1] - ends[0])).abs() / size)


def naive(network: xl.Network, line: xl.Restriction, target: int = 0) -> Tensor:
    """One gradient for each piece, times its width."""
    rank = len(network.output_shape)
    total = torch.zeros(network.input_shape, dtype=torch.float64)  # type: ignore[arg-type]
    for i in range(len(line)):
        matrix, _ = line.piece(i).affine()
        total += matrix.reshape(-1, *matrix.shape[rank:])[target] * line.piece(i).width  # type: ignore[union-attr]
    return total


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.slow
def test_integrals_are_complete_and_equal_the_sum_over_pieces(part: int):
    for seed in range(part * SEEDS // 7, (part + 1) * SEEDS // 7):
        family, network, start, end = random_case(seed)
        line = xl.restrict(network, start, end)
        found = integral(network, start, end)
        assert found.pieces == len(line), (family, seed)
        assert incompleteness(network, found, start, end) <= 1e-12, (family, seed)
        want = naive(network, line)
        slack = torch.zeros_like(want) if found.subgradient_range is None else found.subgradient_range[0][0]
        assert bool(((found.gradients[0][0] - want).abs() <= slack + 1e-12 * want.abs().max()).all()), (family, seed)


@pytest.mark.parametrize("memory", [1, 20_000])
@pytest.mark.parametrize("seeds", [range(0, 28, 4), pytest.param(range(28, SEEDS, 4), marks=pytest.mark.slow)], ids=str)
@pytest.mark.slow
def test_integrals_do_not_depend_on_memory_or_other_lines(memory: int, seeds: range):
    for seed in seeds:
        family, network, start, end = random_case(seed)
        found = integral(network, start, end)
        ends = torch.stack([start, end, start]), torch.stack([end, start, start])
        lines = as_lines(*ends, ("start", "end"), many=True)
        many = path_integral(network, lines, torch.zeros(3, dtype=torch.int64), memory=memory)
        scale = 1 + found.gradients[0].abs().max()
        apart = (many.gradients[0] - torch.stack([found.gradients[0][0]] * 2 + [many.gradients[0][2]])).abs().max()
        assert found.subgradient_range is not None or float(apart / scale) <= 1e-12, (family, seed)


def stairs(count: int) -> nn.Module:
    """A network of one input with ``count`` breaks between 0 and 1."""
    first = nn.Linear(1, count, dtype=torch.float64)
    last = nn.Linear(count, 1, dtype=torch.float64)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.copy_(-(torch.arange(count) + 0.5) / count)
    return nn.Sequential(first, nn.ReLU(), last).eval()


@pytest.mark.parametrize("pieces", [1_023, 1_024, 1_025])
def test_no_piece_is_lost_at_the_edge_of_a_batch(pieces: int):
    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    network = as_network(stairs(pieces - 1), [start])
    found = integral(network, start, end)
    assert found.pieces == pieces
    assert incompleteness(network, found, start, end) <= 1e-12


def test_no_piece_is_lost_among_a_hundred_thousand():
    class Leaning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tent = tent_network(17)

        def forward(self, x: Tensor) -> Tensor:
            return self.tent(x) + 0.375 * x

    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    network = as_network(Leaning(), [start])
    found = integral(network, start, end)
    assert found.pieces > 100_000
    assert incompleteness(network, found, start, end) <= 1e-12


def test_the_subgradient_range_is_reported():
    # the second input is 0 along the line: whether its unit is active is a convention, and its weight is 3
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[2].weight.copy_(torch.tensor([[1.0, 3.0]]))
    start, end = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([2.0, 0.0], dtype=torch.float64)
    found = integral(as_network(model, [start]), start, end)
    assert found.gradients[0][0].tolist() == [1.0, 0.0]
    assert found.ambiguous == 1
    assert found.subgradient_range is not None
    assert found.subgradient_range[0][0].tolist() == [0.0, 3.0]


TAILS = {"softmax": nn.Softmax(1), "log_softmax": nn.LogSoftmax(1), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh()}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
@pytest.mark.every(4)
def test_probabilities_are_complete(tail: str, scale: float):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3), TAILS[tail]).double().eval()
    start, end = torch.randn(2, 4, dtype=torch.float64) * scale
    network = as_network(model, [start])
    found = integral(network, start, end, 1, tail=True)
    attributions = found.gradients[0][0] * (end - start)
    with torch.no_grad():
        at_start, at_end = (float(model(x[None])[0, 1]) for x in (start, end))
    scale = abs(at_start) + abs(at_end) + attributions.abs().sum()
    assert abs(float(attributions.sum()) - (at_end - at_start)) <= 1e-11 * scale


@pytest.mark.parametrize("tail", ["softmax", "log_softmax", "sigmoid"])
@pytest.mark.every(3)
def test_probabilities_equal_quadrature_in_thirty_digits(tail: str):
    mpmath = pytest.importorskip("mpmath")
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3), TAILS[tail]).double().eval()
    start, end = torch.randn(2, 2, dtype=torch.float64) * 2
    network = as_network(model, [start])
    found = integral(network, start, end, 0, tail=True).gradients[0][0]
    line = xl.restrict(network, start, end)
    with mpmath.workdps(30):
        want = [mpmath.mpf(0), mpmath.mpf(0)]
        for i in range(len(line)):
            matrix, _ = line.piece(i).affine()
            ends = [[mpmath.mpf(v) for v in line.values[i + k].tolist()] for k in (0, 1)]

            def slope(t, ends=ends, matrix=matrix, j=0):
                logits = [a + t * (b - a) for a, b in zip(*ends, strict=True)]
                rows = [mpmath.mpf(float(matrix[k, j])) for k in range(3)]
                if tail == "sigmoid":
                    p = 1 / (1 + mpmath.exp(-logits[0]))
                    return p * (1 - p) * rows[0]
                total = sum(mpmath.exp(v) for v in logits)
                shares = [mpmath.exp(v) / total for v in logits]
                mean = sum(s * r for s, r in zip(shares, rows, strict=True))
                return (rows[0] - mean) * (shares[0] if tail == "softmax" else 1)

            width = mpmath.mpf(float(line.alphas[i + 1])) - mpmath.mpf(float(line.alphas[i]))
            for j in (0, 1):
                want[j] += width * mpmath.quad(lambda t, j=j: slope(t, j=j), [0, 0.5, 1])
    assert all(abs(float(found[j]) - float(want[j])) <= 1e-11 * (1 + abs(float(want[j]))) for j in (0, 1))


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e8, 1e12, 1e300])
def test_steep_tails_are_complete(tail: str, scale: float):
    last = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[scale], [0.0]], dtype=torch.float64))
    model = nn.Sequential(last, TAILS[tail]).eval()
    start, end = torch.tensor([[-0.37], [0.63]], dtype=torch.float64)
    found = integral(as_network(model, [start]), start, end, 0, tail=True)
    with torch.no_grad():
        change = float(model(end[None])[0, 0] - model(start[None])[0, 0])
    assert float((found.gradients[0][0] * (end - start)).sum()) == pytest.approx(change, rel=1e-12)


@pytest.mark.parametrize("tail", TAILS)
def test_steep_tails_are_complete_on_many_pieces_and_lines(tail: str):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 10), TAILS[tail]).double().eval()
    with torch.no_grad():
        model[2].weight.mul_(1e4)
        model[2].bias.mul_(1e4)
    starts, ends = torch.randn(2, 8, 4, dtype=torch.float64) * 3
    network, targets = as_network(model, [starts[0]]), torch.arange(8)
    lines = as_lines(starts, ends, ("start", "end"), many=True)
    found = path_integral(network, lines, targets, tail=True)
    assert found.pieces > 60
    attributions = found.gradients[0] * (ends - starts)
    with torch.no_grad():
        before, after = (model(x).gather(1, targets[:, None])[:, 0] for x in (starts, ends))
    size = attributions.abs().sum(1) + before.abs() + after.abs()
    assert bool(((attributions.sum(1) - (after - before)).abs() <= 1e-12 * size).all())
    few = path_integral(network, lines, targets, tail=True, memory=1)
    assert float((few.gradients[0] - found.gradients[0]).abs().max()) <= 1e-12 * float(found.gradients[0].abs().max())


@pytest.mark.parametrize("dim", [1, 2, -1])
def test_a_softmax_over_one_dimension_of_several_is_complete(dim: int):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Unflatten(1, (2, 3, 4)), nn.Softmax(dim)).double().eval()
    start, end = torch.randn(2, 4, dtype=torch.float64) * 20
    network = as_network(model, [start])
    for target in (0, 7, 23):
        found = integral(network, start, end, target, tail=True)
        with torch.no_grad():
            change = (model(end[None]) - model(start[None])).flatten()[target]
        assert float((found.gradients[0][0] * (end - start)).sum() - change) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_the_shape_of_convbig_fits_in_three_gibibytes():
    from tests.test_promises import measure_peak

    peak, lines = measure_peak(
        "import sys; sys.path.insert(0, 'benchmarks')\n"
        "import bench\n"
        "from exactline.attr import path_integral\n"
        "from exactline.lines import as_lines\n"
        "from exactline.network import as_network\n"
        "case = bench.CASES['convBig']\n"
        "starts, ends = case.ends()\n"
        "network = as_network(case.model(), [starts[0]])\n"
        "found = path_integral(network, as_lines(starts, ends, ('start', 'end'), many=True), torch.tensor([0]))\n"
        "values = network(torch.cat([starts, ends]))[:, 0]\n"
        "print(found.pieces, float((found.gradients[0] * (ends - starts)).sum() - (values[1] - values[0])))"
    )
    print(f"convBig: {lines[0]}, peak {peak / 2**20:.0f} MiB")
    assert peak < 3 * 2**30
    assert abs(float(lines[0].split()[1])) < 1e-10
