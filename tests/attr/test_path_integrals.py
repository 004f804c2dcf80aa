"""Path integrals of gradients against sums over pieces, against differences of values, and against quadrature."""

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


def integral(network: xl.Network, Q: Tensor, R: Tensor, target: int = 0, **options: object) -> PathIntegral:
    lines = as_lines(Q[None], R[None], ("Q", "R"), many=True)
    return path_integral(network, lines, torch.tensor([target]), **options)  # type: ignore[arg-type]


@cache  # two tests ask for some of them
def random_case(seed: int) -> tuple[str, xl.Network, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    model, shape = FAMILIES[family](generator)
    if seed % 2:
        small_integers(generator, model, most=2)
        Q, R = torch.randint(-3, 4, (2, *shape), generator=generator).double()
    else:
        seeded(model, generator)
        Q, R = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * 2
    return family, as_network(model, [Q]), Q, R


def incompleteness(network: xl.Network, found: PathIntegral, Q: Tensor, R: Tensor, target: int = 0) -> float:
    ends = network(torch.stack([Q, R])).reshape(2, -1)[:, target]  # type: ignore[union-attr]
    attributions = found.gradients[0][0] * (R - Q)
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
def test_integrals_are_complete_and_equal_the_sum_over_pieces(part: int):
    for seed in range(part * SEEDS // 7, (part + 1) * SEEDS // 7):
        family, network, Q, R = random_case(seed)
        line = xl.restrict(network, Q, R)
        found = integral(network, Q, R)
        assert found.pieces == len(line), (family, seed)
        assert incompleteness(network, found, Q, R) <= 1e-12, (family, seed)
        want = naive(network, line)
        doubt = torch.zeros_like(want) if found.swing is None else found.swing[0][0]
        assert bool(((found.gradients[0][0] - want).abs() <= doubt + 1e-12 * want.abs().max()).all()), (family, seed)


@pytest.mark.parametrize("memory", [1, 20_000])
@pytest.mark.parametrize("seeds", [range(0, 28, 4), pytest.param(range(28, SEEDS, 4), marks=pytest.mark.slow)], ids=str)
def test_integrals_do_not_depend_on_memory_or_company(memory: int, seeds: range):
    for seed in seeds:
        family, network, Q, R = random_case(seed)
        found = integral(network, Q, R)
        ends = torch.stack([Q, R, Q]), torch.stack([R, Q, Q])
        lines = as_lines(*ends, ("Q", "R"), many=True)
        many = path_integral(network, lines, torch.zeros(3, dtype=torch.int64), memory=memory)
        scale = 1 + found.gradients[0].abs().max()
        apart = (many.gradients[0] - torch.stack([found.gradients[0][0]] * 2 + [many.gradients[0][2]])).abs().max()
        assert found.swing is not None or float(apart / scale) <= 1e-12, (family, seed)


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
    Q, R = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    network = as_network(stairs(pieces - 1), [Q])
    found = integral(network, Q, R)
    assert found.pieces == pieces
    assert incompleteness(network, found, Q, R) <= 1e-12


def test_no_piece_is_lost_among_a_hundred_thousand():
    class Leaning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tent = tent_network(17)

        def forward(self, x: Tensor) -> Tensor:
            return self.tent(x) + 0.375 * x

    Q, R = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    network = as_network(Leaning(), [Q])
    found = integral(network, Q, R)
    assert found.pieces > 100_000
    assert incompleteness(network, found, Q, R) <= 1e-12


def test_the_other_side_of_a_knot_is_told():
    # the second input is 0 all along: whether its unit is on is a convention, and it carries a weight of 3
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[2].weight.copy_(torch.tensor([[1.0, 3.0]]))
    Q, R = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([2.0, 0.0], dtype=torch.float64)
    found = integral(as_network(model, [Q]), Q, R)
    assert found.gradients[0][0].tolist() == [1.0, 0.0]
    assert found.stuck == 1
    assert found.swing is not None
    assert found.swing[0][0].tolist() == [0.0, 3.0]


TAILS = {"softmax": nn.Softmax(1), "log_softmax": nn.LogSoftmax(1), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh()}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_probabilities_are_complete(tail: str, scale: float):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3), TAILS[tail]).double().eval()
    Q, R = torch.randn(2, 4, dtype=torch.float64) * scale
    network = as_network(model, [Q])
    found = integral(network, Q, R, 1, tail=True)
    attributions = found.gradients[0][0] * (R - Q)
    with torch.no_grad():
        start, stop = (float(model(x[None])[0, 1]) for x in (Q, R))
    assert abs(float(attributions.sum()) - (stop - start)) <= 1e-11 * (
        abs(start) + abs(stop) + attributions.abs().sum()
    )


@pytest.mark.parametrize("tail", ["softmax", "log_softmax", "sigmoid"])
def test_probabilities_equal_quadrature_in_thirty_digits(tail: str):
    mpmath = pytest.importorskip("mpmath")
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3), TAILS[tail]).double().eval()
    Q, R = torch.randn(2, 2, dtype=torch.float64) * 2
    network = as_network(model, [Q])
    found = integral(network, Q, R, 0, tail=True).gradients[0][0]
    line = xl.restrict(network, Q, R)
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


@pytest.mark.slow
def test_the_shape_of_convbig_fits_in_three_gibibytes():
    from tests.test_promises import peak_of

    peak, lines = peak_of(
        "import sys; sys.path.insert(0, 'benchmarks')\n"
        "import bench\n"
        "from exactline.attr import path_integral\n"
        "from exactline.lines import lines_of\n"
        "from exactline.network import as_network\n"
        "case = bench.CASES['convBig']\n"
        "starts, ends = case.ends()\n"
        "network = as_network(case.model(), [starts[0]])\n"
        "found = path_integral(network, lines_of(starts, ends, ('Q', 'R'), many=True), torch.tensor([0]))\n"
        "values = network(torch.cat([starts, ends]))[:, 0]\n"
        "print(found.pieces, float((found.gradients[0] * (ends - starts)).sum() - (values[1] - values[0])))"
    )
    print(f"convBig: {lines[0]}, peak {peak / 2**20:.0f} MiB")
    assert peak < 3 * 2**30
    assert abs(float(lines[0].split()[1])) < 1e-10
