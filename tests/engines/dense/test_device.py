"""The way a device goes: the same bits as the host's, and few questions on the way."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.engines.dense import sweep as engine
from exactline.fp_context import full_precision
from exactline.lines import as_lines
from exactline.network import as_network
from exactline.ops import masks
from exactline.scale.split_line import stretches
from tests.engines.dense.reads import counting
from tests.engines.patches.graphs import graph
from tests.oracle.families import small_integers


class Residual(nn.Module):
    """Several tensors are live at every break."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(6, 20), nn.Linear(20, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.one(x))
        z = torch.relu(self.two(y)) + y
        return self.out(torch.nn.functional.leaky_relu(z - 1, 0.1)) + x[:, :3]


class Pooled(nn.Module):
    """Maxima with and without a floor, and knots away from zero."""

    def __init__(self, overlap: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.overlap, self.out = overlap, nn.Linear(4 * 2 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.max_pool2d(self.one(x), 2)
        z = torch.relu(torch.max_pool2d(self.two(y), 2 + self.overlap, 2, self.overlap))
        return torch.nn.functional.hardtanh(self.out(z.flatten(1)), -0.2, 0.3)


def chain(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: chain(5, 30, 30, 30, 3), (5,)),
    "leaky": (lambda: nn.Sequential(nn.Linear(4, 25), nn.LeakyReLU(0.1), nn.Linear(25, 25), nn.ReLU6()), (4,)),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 25), nn.PReLU(25, 0.3), nn.Linear(25, 3)), (4,)),
    "residual": (Residual, (6,)),
    "pooled": (lambda: Pooled(0), (2, 8, 8)),
    "overlapping": (lambda: Pooled(1), (2, 8, 8)),  # windows that share a leader change it together
}


@pytest.fixture
def on_device(monkeypatch):
    """Tensors are taken for a device's; which nodes went all their way there."""
    ways: list[bool] = []

    @contextmanager
    def pretending() -> Iterator[list[bool]]:
        def watched(*args):
            ways.append(isinstance(args[3], engine.DeviceInsertion))
            return insert(*args)

        insert = engine._insert
        ways.clear()
        with monkeypatch.context() as patch:
            patch.setattr(masks, "HOST_DEVICES", frozenset())
            patch.setattr(engine, "_insert", watched)
            yield ways

    return pretending


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    return make().double().eval(), shape


def same(one: xl.Restrictions, two: xl.Restrictions) -> None:
    for a, b in zip(one, two, strict=True):
        pairs = [
            (a.alphas, b.alphas),
            (a.origin_table, b.origin_table),
            (a.ambiguous_per_piece, b.ambiguous_per_piece),
            *zip(a.stored_values, b.stored_values, strict=True),
        ]
        for x, y in pairs:
            assert torch.equal(x, y)


@pytest.mark.parametrize("lines", [1, 9])
@pytest.mark.parametrize("memory", [None, 1 << 17])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits(name, memory, lines, on_device):
    model, shape = made(name)
    starts, ends = torch.randn(2, lines, *shape, dtype=torch.float64) * 2

    def ask() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense", memory=memory)

    plain = ask()
    with on_device() as ways:
        same(ask(), plain)
    assert len(plain.alphas) > 5
    assert all(ways) or name == "overlapping"


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_in_single_precision(name, on_device):
    model, shape = made(name)
    starts, ends = torch.randn(2, 5, *shape)

    def ask() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense", dtype=torch.float32)

    plain = ask()
    with on_device():
        same(ask(), plain)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("memory", [None, 1 << 17])
def test_the_same_gradients(name, memory, on_device):
    model, shape = made(name)
    inputs, baselines = torch.randn(2, 6, *shape, dtype=torch.float64) * 2

    def ask() -> Tensor:
        return IntegratedGradients(model).attribute(inputs, baselines, target=1, memory=memory)

    plain = ask()
    with on_device() as ways:
        assert torch.equal(ask(), plain)
    assert all(ways) or name == "overlapping"


@pytest.mark.parametrize("seed", range(6))
def test_ties_are_left_to_the_host(seed, on_device):
    """Small integers: units that cross together, or on a break, or stay on zero."""
    g = torch.Generator().manual_seed(seed)
    model = chain(3, 6, 6, 6, 2).double().eval()
    small_integers(g, model)
    starts, ends = torch.randint(-9, 10, (2, 40, 3), generator=g).double()

    def ask() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends)

    plain = ask()
    with on_device() as ways:
        same(ask(), plain)
    assert not all(ways)


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed, on_device):
    model, start, end = graph(seed)

    def ask() -> xl.Restriction:
        return xl.restrict(model, start, end, engine="dense")

    plain = ask()
    with on_device():
        found = ask()
    assert torch.equal(plain.alphas, found.alphas)
    assert torch.equal(plain.origin_table, found.origin_table)
    assert torch.equal(plain.values, found.values)
    assert torch.equal(plain.ambiguous_per_piece, found.ambiguous_per_piece)


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-300])
def test_enormous_and_tiny_values(scale, on_device):
    for name in ("relu", "residual"):
        model, shape = made(name)
        starts, ends = torch.randn(2, 3, *shape, dtype=torch.float64) * scale

        def ask(model=model, starts=starts, ends=ends) -> xl.Restrictions:
            return xl.restrict_many(model, starts, ends)

        plain = ask()
        with on_device():
            same(ask(), plain)


def test_what_overflows_is_an_error(on_device):
    model = chain(2, 8, 2).double().eval()
    with torch.no_grad():
        model[0].weight.mul_(1e10)  # pyright: ignore
    with on_device(), pytest.raises(xl.NumberError, match="overflows"):
        xl.restrict_many(model, torch.zeros(2, 2), torch.full((2, 2), 1e300, dtype=torch.float64))


@pytest.mark.parametrize("roomy", [9, 40, 150])
def test_a_device_that_runs_out_of_memory(roomy, on_device, monkeypatch):
    model, shape = made("residual")
    starts, ends = torch.randn(2, 5, *shape, dtype=torch.float64) * 3
    plain = xl.restrict_many(model, starts, ends)
    branch_out, refused = engine.insert_breaks, []

    def cramped(network, facts, state, limits):
        after = branch_out(network, facts, state, limits)
        if isinstance(after, engine.SweepState) and len(after) > roomy:
            refused.append(len(after))
            raise torch.cuda.OutOfMemoryError("no room")
        return after

    monkeypatch.setattr(engine, "insert_breaks", cramped)
    with on_device():
        halved = xl.restrict_many(model, starts, ends)
    assert refused
    assert torch.equal(plain.breaks.origins, halved.breaks.origins)
    assert (plain.alphas - halved.alphas).abs().max() < 1e-14  # products of fewer rows may round otherwise


def reads_of_nodes(monkeypatch, ask: Callable[[], object]) -> list[int]:
    """For each breaking node, how many answers were waited for."""
    found: list[int] = []
    branch_out = engine.insert_breaks
    with monkeypatch.context() as patch, counting(monkeypatch) as reads:

        def watched(network, facts, state, limits):
            before = reads.count
            after = branch_out(network, facts, state, limits)
            found.append(reads.count - before)
            return after

        patch.setattr(engine, "insert_breaks", watched)
        ask()
    return found


@pytest.mark.parametrize(("name", "most"), [("relu", 3), ("leaky", 4), ("prelu", 3), ("residual", 3), ("pooled", 10)])
@pytest.mark.parametrize("lines", [1, 9])
def test_a_node_asks_a_device_a_few_times_at_most(name, most, lines, on_device, monkeypatch):
    """How large and how near, how many crossings for each knot, and whether any are near; maxima look more often."""
    model, shape = made(name)
    starts, ends = torch.randn(2, lines, *shape, dtype=torch.float64) * 2

    def ask() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense")

    ask()  # what is known of the network is found once
    with on_device() as ways:
        counts = reads_of_nodes(monkeypatch, ask)
    assert len(counts) == len(ways)
    assert [c for c, there in zip(counts, ways, strict=True) if there and c > most] == []
    assert any(ways)


@pytest.mark.parametrize("points", [2, 7, 50])
def test_parts_and_stretches(points, on_device):
    """A line in parts, and one that is cut into stretches first, each swept by itself."""
    model, shape = made("residual")
    starts, ends = torch.randn(2, 1, *shape, dtype=torch.float64) * 3
    network, lines = as_network(model, [starts[0]]), as_lines(starts, ends, ("Q", "R"), many=True)

    def ask() -> list[engine.SweepPart]:
        parts = list(engine.sweep_lines(network, lines, engine.SweepLimits(points)))
        for state in stretches(network, lines, 3, 20):
            parts += engine.sweep_from(network, pickle.loads(pickle.dumps(state)), engine.SweepLimits(points))
        return parts

    with full_precision():
        plain = ask()
        with on_device():
            found = ask()
    assert len(plain) > 3
    for a, b in zip(plain, found, strict=True):
        for name in ("line", "alphas", "origins", "ambiguous"):
            assert torch.equal(getattr(a, name), getattr(b, name))
        assert torch.equal(a.values[0], b.values[0])
        assert (a.continues, a.shared_crossings) == (b.continues, b.shared_crossings)
