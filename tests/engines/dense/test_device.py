"""Breaking nodes on a device: bit for bit the host's results, with few synchronizations."""

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
from exactline.scale.split_line import split_line
from tests.engines.dense.device_reads import count_reads
from tests.engines.patches.random_graphs import random_graph
from tests.oracle.families import small_integers


class Residual(nn.Module):
    """Several tensors are live at every breaking node."""

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


def build_mlp(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: build_mlp(5, 30, 30, 30, 3), (5,)),
    "leaky": (lambda: nn.Sequential(nn.Linear(4, 25), nn.LeakyReLU(0.1), nn.Linear(25, 25), nn.ReLU6()), (4,)),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 25), nn.PReLU(25, 0.3), nn.Linear(25, 3)), (4,)),
    "residual": (Residual, (6,)),
    "pooled": (lambda: Pooled(0), (2, 8, 8)),
    "overlapping": (lambda: Pooled(1), (2, 8, 8)),  # overlapping windows change a shared leader at one break
}


@pytest.fixture
def pretend_device(monkeypatch):
    """A context in which CPU tensors count as a device's; lists which breaking nodes stayed on the device."""
    on_device: list[bool] = []

    @contextmanager
    def pretend() -> Iterator[list[bool]]:
        def recording_apply(self, start, stop):
            on_device.append(isinstance(self.breaks, engine.DeviceInsertion))
            return apply(self, start, stop)

        apply = engine.NodeInsertion.apply
        on_device.clear()
        with monkeypatch.context() as patch:
            patch.setattr(masks, "HOST_DEVICES", frozenset())
            patch.setattr(engine.NodeInsertion, "apply", recording_apply)
            yield on_device

    return pretend


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    return make().double().eval(), shape


def assert_same(one: xl.Restrictions, two: xl.Restrictions) -> None:
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
@pytest.mark.every(12)
def test_the_same_bits(name, memory, lines, pretend_device):
    model, shape = build(name)
    starts, ends = torch.randn(2, lines, *shape, dtype=torch.float64) * 2

    def run() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense", memory=memory)

    expected = run()
    with pretend_device() as on_device:
        assert_same(run(), expected)
    assert len(expected.alphas) > 5
    assert all(on_device) or name == "overlapping"


@pytest.mark.parametrize("memory", [None, 1 << 17])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.every(5)
def test_the_same_counts_by_layer(name, memory, pretend_device):
    model, shape = build(name)
    starts, ends = torch.randn(2, 4, *shape, dtype=torch.float64) * 2

    def run() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense", memory=memory, record="layers")

    expected = run()
    with pretend_device():
        found = run()
    for column in ("node", "units", "crossings", "dead", "always_on"):
        assert torch.equal(getattr(found.breaks.layers, column), getattr(expected.breaks.layers, column))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.every(3)
def test_the_same_in_single_precision(name, pretend_device):
    model, shape = build(name)
    starts, ends = torch.randn(2, 5, *shape)

    def run() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense", dtype=torch.float32)

    expected = run()
    with pretend_device():
        assert_same(run(), expected)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("memory", [None, 1 << 17])
@pytest.mark.every(4)
def test_the_same_gradients(name, memory, pretend_device):
    model, shape = build(name)
    inputs, baselines = torch.randn(2, 6, *shape, dtype=torch.float64) * 2

    def run() -> Tensor:
        return IntegratedGradients(model).attribute(inputs, baselines, target=1, memory=memory)

    expected = run()
    with pretend_device() as on_device:
        assert torch.equal(run(), expected)
    assert all(on_device) or name == "overlapping"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_ties_are_left_to_the_host(seed, pretend_device):
    """Small integers: units that cross together, or on a break, or stay on zero."""
    g = torch.Generator().manual_seed(seed)
    model = build_mlp(3, 6, 6, 6, 2).double().eval()
    small_integers(g, model)
    starts, ends = torch.randint(-9, 10, (2, 40, 3), generator=g).double()

    def run() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends)

    expected = run()
    with pretend_device() as on_device:
        assert_same(run(), expected)
    assert not all(on_device)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.every(24)
def test_random_graphs(seed, pretend_device):
    model, start, end = random_graph(seed)

    def run() -> xl.Restriction:
        return xl.restrict(model, start, end, engine="dense")

    expected = run()
    with pretend_device():
        found = run()
    assert torch.equal(expected.alphas, found.alphas)
    assert torch.equal(expected.origin_table, found.origin_table)
    assert torch.equal(expected.values, found.values)
    assert torch.equal(expected.ambiguous_per_piece, found.ambiguous_per_piece)


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-300])
@pytest.mark.every(3)
def test_enormous_and_tiny_values(scale, pretend_device):
    for name in ("relu", "residual"):
        model, shape = build(name)
        starts, ends = torch.randn(2, 3, *shape, dtype=torch.float64) * scale

        def run(model=model, starts=starts, ends=ends) -> xl.Restrictions:
            return xl.restrict_many(model, starts, ends)

        expected = run()
        with pretend_device():
            assert_same(run(), expected)


def test_overflow_is_an_error(pretend_device):
    model = build_mlp(2, 8, 2).double().eval()
    with torch.no_grad():
        model[0].weight.mul_(1e10)  # pyright: ignore
    with pretend_device(), pytest.raises(xl.NumberError, match="overflows"):
        xl.restrict_many(model, torch.zeros(2, 2), torch.full((2, 2), 1e300, dtype=torch.float64))


@pytest.mark.parametrize("capacity", [9, 40, 150])
@pytest.mark.every(2)
def test_a_device_that_runs_out_of_memory(capacity, pretend_device, monkeypatch):
    model, shape = build("residual")
    starts, ends = torch.randn(2, 5, *shape, dtype=torch.float64) * 3
    expected = xl.restrict_many(model, starts, ends)
    insert_breaks, refused = engine.insert_breaks, []

    def run_out_of_memory(network, plan, state, limits, **options):
        after = insert_breaks(network, plan, state, limits, **options)
        if isinstance(after, engine.SweepState) and len(after) > capacity:
            refused.append(len(after))
            raise torch.cuda.OutOfMemoryError("no room")
        return after

    monkeypatch.setattr(engine, "insert_breaks", run_out_of_memory)
    with pretend_device():
        halved = xl.restrict_many(model, starts, ends)
    assert refused
    assert torch.equal(expected.breaks.origins, halved.breaks.origins)
    assert (expected.alphas - halved.alphas).abs().max() < 1e-14  # matrix products of fewer rows may round differently


def count_reads_per_node(monkeypatch, run: Callable[[], object]) -> list[int]:
    """The number of synchronizations at each breaking node."""
    counts: list[int] = []
    insert_breaks = engine.insert_breaks
    with monkeypatch.context() as patch, count_reads(monkeypatch) as reads:

        def counting_insert(network, plan, state, limits, **options):
            before = reads.count
            after = insert_breaks(network, plan, state, limits, **options)
            counts.append(reads.count - before)
            return after

        patch.setattr(engine, "insert_breaks", counting_insert)
        run()
    return counts


@pytest.mark.parametrize(
    ("name", "max_reads"), [("relu", 3), ("leaky", 4), ("prelu", 3), ("residual", 3), ("pooled", 24)]
)
@pytest.mark.parametrize("lines", [1, 9])
@pytest.mark.every(9)
def test_a_node_synchronizes_a_few_times_at_most(name, max_reads, lines, pretend_device, monkeypatch):
    """The range of the input, the number of crossings for each knot, and whether any are close; maxima read more."""
    model, shape = build(name)
    starts, ends = torch.randn(2, lines, *shape, dtype=torch.float64) * 2

    def run() -> xl.Restrictions:
        return xl.restrict_many(model, starts, ends, engine="dense")

    run()  # plans are cached
    with pretend_device() as on_device:
        counts = count_reads_per_node(monkeypatch, run)
    assert len(counts) == len(on_device)
    assert [c for c, stayed in zip(counts, on_device, strict=True) if stayed and c > max_reads] == []
    assert any(on_device)


@pytest.mark.parametrize("points", [2, 7, 50])
@pytest.mark.every(2)
def test_parts_and_segments(points, pretend_device):
    """A line in parts, and one that is split into segments first, each swept by itself."""
    model, shape = build("residual")
    starts, ends = torch.randn(2, 1, *shape, dtype=torch.float64) * 3
    network, lines = as_network(model, [starts[0]]), as_lines(starts, ends, ("starts", "ends"), many=True)

    def run() -> list[engine.SweepPart]:
        parts = list(engine.sweep_lines(network, lines, engine.SweepLimits(points)))
        for state in split_line(network, lines, 3, 20):
            parts += engine.sweep_from(network, pickle.loads(pickle.dumps(state)), engine.SweepLimits(points))
        return parts

    with full_precision():
        expected = run()
        with pretend_device():
            found = run()
    assert len(expected) > 3
    for a, b in zip(expected, found, strict=True):
        for name in ("line", "alphas", "origins", "ambiguous"):
            assert torch.equal(getattr(a, name), getattr(b, name))
        assert torch.equal(a.values[0], b.values[0])
        assert (a.continues, a.shared_crossings) == (b.continues, b.shared_crossings)
