"""Units that are the same function of the inputs: found by structure, never apart, and never ambiguous."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline import api
from exactline.engines.ambiguity import BreakRows, count_ambiguous
from exactline.engines.dense.error_model import PointErrorBounds
from exactline.engines.dense.sweep import SweepLimits
from exactline.lines import Lines
from exactline.network import Network, as_network
from exactline.numerics.equal_units import EqualUnits, breaking_op, merge_equal_members
from exactline.ops.maximum import Maximum
from exactline.ops.window_lines import parts_tied_for_lead, rival_leaders
from tests.engines.patches.random_graphs import random_graph
from tests.numerics.equal_windows import make_model
from tests.oracle.families import Concat

POINTS = 4
ENGINES = ("dense", "patches")


class Block(nn.Module):
    """Maps whose pixels are all equal, through one operator of each kind, and then a pool."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.pool, self.last = kind, nn.MaxPool2d(5, 1, 2), nn.MaxPool2d(2, 1)
        self.convolution = nn.Conv2d(2, 3, 2 if kind == "convolution" else 1, stride=1)
        self.slopes = nn.PReLU(2)
        self.shift = nn.Parameter(torch.zeros(2, 3, 3))
        nn.init.uniform_(self.slopes.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(x)
        match self.kind:
            case "convolution" | "pixelwise":
                y = self.convolution(y)
            case "prelu":
                y = self.slopes(y)
            case "sum":
                y = y + self.slopes(y)
            case "constant":
                y = y + self.shift
            case "pad":
                y = nn.functional.pad(y, (1, 1, 1, 1), value=0.5)
            case _:
                y = y.transpose(2, 3).flip(1)
        return self.last(y).flatten(1).sum(1, keepdim=True)


def _network(model: nn.Module, size: int = 3) -> Network:
    return as_network(model.double().eval(), [torch.zeros(2, size, size, dtype=torch.float64)])


@pytest.mark.parametrize("kind", ["convolution", "pixelwise", "prelu", "sum", "constant", "pad", "transpose"])
def test_equal_pixels_stay_equal(kind):
    network = _network(Block(kind))
    last = network.breaking_nodes[-1]
    sizes = [len(set(window)) for window in merge_equal_members(network)[last].table.tolist()]
    assert set(sizes) == ({1, 2} if kind == "pad" else {1})  # windows at the edge have constants and equal pixels


@pytest.mark.parametrize("changed", ["shift", "bias"])
def test_other_constants_keep_pixels_apart(changed):
    model = Block("constant" if changed == "shift" else "prelu")
    if changed == "shift":
        model.shift.data[:, 0, 0] = 1e-9  # so near, and yet another function
    network = _network(model)
    windows = EqualUnits(network).labels(network.nodes[network.breaking_nodes[-1]].inputs[0]).view(2, 3, 3)
    assert len(windows[0].unique()) == (2 if changed == "shift" else 1)
    assert not set(windows[0].flatten().tolist()) & set(windows[1].flatten().tolist())  # channels differ


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_units_with_equal_labels_have_equal_values(seed):
    model, start, _ = make_model() if seed is None else random_graph(seed)
    network = as_network(model, [start])
    units = EqualUnits(network)
    points = torch.randn(POINTS, *start.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    equal = 0
    for i, values in network.evaluate([points], range(len(network.nodes))).items():
        labels, first, values = units.labels(i), units.first_equal(i), values.flatten(1)
        if first is not None:
            assert torch.equal(labels, labels[first])
            assert bool((first <= torch.arange(len(first))).all())
            distance = (values - values[:, first]).abs().max()
            assert distance <= 1e-12 * max(float(values.abs().max()), 1.0)
        equal += len(labels) - len(labels.unique())
    if seed is None:
        assert equal > 0


def test_watched_units_are_told_apart():
    model, start, _ = make_model()
    network = as_network(model, [start])
    last = max(i for i, node in enumerate(network.nodes) if node.name.startswith("max_pool2d"))
    assert len(EqualUnits(network).labels(last).unique()) < network.nodes[last].shape[0] * 4
    assert len(EqualUnits(network, [last]).labels(last).unique()) == network.nodes[last].shape[0] * 4


def test_a_maximum_without_equal_members_has_the_same_values():
    model, start, _ = make_model()
    network = as_network(model, [start])
    points = torch.randn(POINTS, *start.shape, dtype=torch.float64)
    merged = merge_equal_members(network)
    assert merged
    sources = {i: network.nodes[i].inputs[0] for i in merged}
    inputs, outputs = network.evaluate([points], [*sources.values()]), network.evaluate([points], [*sources])
    for i, op in merged.items():
        assert breaking_op(network, i) is op
        assert op.table.shape[1] < network.nodes[i].op.table.shape[1]
        assert torch.allclose(op.evaluate(inputs[sources[i]]), outputs[i], rtol=0, atol=1e-14)


@pytest.fixture
def candidates(monkeypatch) -> list[int]:
    """For each count of ambiguous units, the pieces on which there may be some."""
    found = list[int]()

    def record(network: Network, lines: Lines, rows: BreakRows, limits: SweepLimits) -> Tensor:
        found.append(int((rows.candidates != 0).sum()))
        return count_ambiguous(network, lines, rows, limits)

    monkeypatch.setattr(api, "count_ambiguous", record)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_of_equal_members_are_no_candidates(engine, candidates):
    model, start, end = make_model(shift=1e4)
    line = xl.restrict(model, start, end, engine=engine)
    assert len(line) > 5
    assert sum(candidates) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_members_are_not_ambiguous_however_large_their_errors(engine):
    model, start, end = make_model(shift=1e9)  # cancels, and leaves errors of a share 1e-7
    line = xl.restrict(model, start, end, engine=engine)
    assert int(line.ambiguous) == 0


def test_a_maximum_ties_exactly_where_a_relu_of_its_input_breaks(monkeypatch):
    """The pool reads the inputs of the ReLUs in front of it, and 0: at the breaks of these, no estimate is needed."""
    rows = list[int]()
    bound = PointErrorBounds.bound

    def record(self: PointErrorBounds, some: Tensor) -> Tensor:
        rows.append(len(some))
        return bound(self, some)

    monkeypatch.setattr(PointErrorBounds, "bound", record)
    torch.manual_seed(0)
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 2, 1))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), Concat(nn.Conv2d(4, 2, 1), pooled), nn.Flatten())
    start, end = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    line = xl.restrict(model.double(), start, end, engine="dense")
    assert len(line) > 50
    assert rows == []


@pytest.mark.parametrize("has_floor", [False, True])
def test_rivals_are_lines_near_the_leader(has_floor):
    torch.manual_seed(0)
    op = Maximum(torch.randint(0, 30, (200, 4)), (200,), floor=has_floor)
    flat = torch.randint(-3, 4, (5, 30)).double()
    leaders = op.branch_at(flat)
    found = rival_leaders(flat, op.table, leaders, 1.0, has_floor)
    for point, row in enumerate(leaders.tolist()):
        for window, leader in enumerate(row):
            values = {int(j): float(flat[point, j]) for j in op.table[window]} | ({-1: 0.0} if has_floor else {})
            near = [j for j, value in values.items() if j != leader and value >= values[leader] - 1]
            assert bool(found[point, window]) == bool(near)


def test_lines_that_may_tie_do_so_inside_the_part_that_is_found():
    torch.manual_seed(0)
    threshold, windows, size = 0.01, 400, 4
    before, after = torch.randint(0, 4, (2, windows, size)).double() + 0.005 * torch.rand(2, windows, size)
    elements = torch.arange(size).expand(windows, size)
    first, last = parts_tied_for_lead(before, after, elements, threshold, 1e9)
    assert bool((first < last).any())
    assert bool((first > last).any())
    changes = before.argmax(1) != after.argmax(1)
    values = torch.lerp(before, after, torch.linspace(0, 1, 401, dtype=torch.float64)[:, None, None])
    near = values >= values.amax(2, keepdim=True) - threshold  # together, errors are up to two thresholds
    for one, other in combinations(range(size), 2):
        for end in (0, -1):  # at which both lead
            tied = near[:, :, one] & near[:, :, other] & (near[end, :, one] & near[end, :, other] & changes)
            point, window = tied.nonzero(as_tuple=True)
            fraction = point / 400
            assert bool((first[window] <= fraction + 1e-12).all())
            assert bool((last[window] >= fraction - 1e-12).all())


def test_windows_that_are_tied_at_a_black_start_are_candidates_there_only(candidates):
    torch.manual_seed(0)
    first, second = (nn.Sequential(nn.Conv2d(n, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2)) for n in (1, 4))
    model = nn.Sequential(first, second, nn.Flatten(), nn.Linear(16, 2)).double()
    end = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    line = xl.restrict(model, torch.zeros_like(end) + 1e-6, end, engine="patches")
    assert len(line) > 20
    assert sum(candidates) <= 1
