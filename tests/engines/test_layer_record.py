"""Counts by layer: against patterns of single pieces and rational arithmetic, in parts, on many lines, after a stop."""

import pickle
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import exactline as xl
from exactline.ops.base import Breaking
from tests.oracle.families import FAMILIES, seeded, small_integers

ENGINES = ("dense", "patches")


def make_case(family, seed, integers):
    generator = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[family](generator)
    model = (small_integers(generator, model) if integers else seeded(model, generator)).double()
    start, end = (3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return (model, start.round(), end.round() + 1) if integers else (model, start, end)


def count_by_pieces(line):
    """By node: dead and always-on units, from the activation pattern of every single piece."""
    patterns = [line.piece(i).pattern() for i in range(len(line))]
    network, counts = line.network, {}
    for i, node in enumerate(network.nodes):
        if not isinstance(node.op, Breaking) or node.name not in patterns[0]:
            continue
        pattern = torch.stack([p[node.name] for p in patterns])
        units = node.op.units(network.nodes[node.inputs[0]].shape)
        rows = pattern.reshape(len(pattern), units, -1)
        stays, flat = (rows == rows[:1]).all(0).all(-1), node.op.is_flat(pattern).reshape(len(pattern), -1)[0]
        counts[i] = (int((stays & flat).sum()), int((stays & ~flat).sum()))
    return counts


def counts_of(line):
    table = line.layers
    return {
        n: (d, o) for n, d, o in zip(table.node.tolist(), table.dead.tolist(), table.always_on.tolist(), strict=True)
    }


@pytest.mark.parametrize("integers", [False, True], ids=["random", "ties"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.every(14)
def test_counts_agree_with_the_patterns_of_all_pieces(family, seed, integers):
    model, start, end = make_case(family, seed, integers)
    for engine in ENGINES:
        for memory in (None, 1):  # one part, and as many as possible
            line = xl.restrict(model, start, end, record="layers", engine=engine, memory=memory)
            assert counts_of(line) == count_by_pieces(line), (engine, memory)
            assert int(line.layers.crossings.sum()) == int(line.origin_table[1:-1, 2].sum())


@pytest.mark.parametrize("seed", range(3))
def test_crossings_agree_with_rational_arithmetic(seed):
    model, start, end = make_case("mixed", seed, False)
    exact = xl.exact.restrict(model, start, end)
    patterns = [exact.pattern(i) for i in range(len(exact))]
    for engine in ENGINES:
        table = xl.restrict(model, start, end, record="layers", engine=engine).layers
        for node, crossings in zip(table.node.tolist(), table.crossings.tolist(), strict=True):
            rows = torch.cat([p[node] for p in patterns]).flatten(1).int()
            assert crossings == int(rows.diff(dim=0).abs().sum())


def test_tents_have_known_crossings():
    """The second unit of layer k crosses 2**k times, the first one only touches zero."""
    table = xl.restrict(xl.zoo.tent_network(5), [0.0], [1.0], record="layers").layers
    assert table.crossings.tolist() == [1, 2, 4, 8, 16]
    assert table.units.tolist() == [2] * 5
    assert (table.dead.tolist(), table.always_on.tolist()) == ([0] * 5, [1] * 5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_unit_that_rests_on_its_knot_is_not_dead_if_it_leaves_it(engine):
    """The second ReLU is exactly 0 on half of the line and positive on the other half."""
    conv = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(conv.weight, 1.0)
    model = nn.Sequential(conv, nn.ReLU(), conv, nn.ReLU()).double().eval()
    start, end = torch.full((1, 2, 2), -1.0), torch.full((1, 2, 2), 1.0)
    end[0, 0, 0] = -2.0  # this one stays off
    table = xl.restrict(model, start, end, record="layers", engine=engine).layers
    assert table.crossings.tolist() == [3, 0]
    assert table.dead.tolist() == [1, 1]
    assert table.always_on.tolist() == [0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_that_rests_on_its_floor_is_not_dead_if_it_leaves_it(engine):
    conv = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.constant_(conv.weight, 1.0)
    model = nn.Sequential(conv, nn.ReLU(), conv, nn.MaxPool2d(2), nn.ReLU()).double().eval()
    start, end = torch.full((1, 2, 4), -1.0), torch.full((1, 2, 4), -2.0)
    end[0, 0, 0] = 1.0
    for memory in (None, 1):
        line = xl.restrict(model, start, end, record="layers", engine=engine, memory=memory)
        assert counts_of(line) == count_by_pieces(line)
        assert line.layers.dead.tolist() == [7, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_of_a_stream_count_every_crossing_once(engine):
    model, start, end = make_case("conv", 1, False)
    whole = xl.restrict(model, start, end, record="layers", engine=engine)
    parts = list(xl.sweep(model, start, end, record="layers", engine=engine, memory=1))
    assert len(parts) > 1 or engine == "patches"
    assert torch.equal(sum(part.layers.crossings for part in parts), whole.layers.crossings)
    for part in parts:
        assert counts_of(part) == count_by_pieces(part)


def test_ties_at_the_ends_of_parts_are_counted_once():
    """Every break of a tent is a tie of units of several layers."""
    network = xl.zoo.tent_network(6)
    whole = xl.restrict(network, [0.0], [1.0], record="layers").layers
    parts = list(xl.sweep(network, [0.0], [1.0], record="layers", memory=1))
    assert len(parts) > 10
    assert torch.equal(sum(part.layers.crossings for part in parts), whole.crossings)


def test_many_lines_have_the_counts_of_each():
    model, _, _ = make_case("residual", 0, False)
    starts, ends = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ends[3] = starts[3]  # a line of one point
    lines = xl.restrict_many(model, starts, ends, record="layers", memory=1)
    for k, line in enumerate(lines):
        alone = xl.restrict(model, starts[k], ends[k], record="layers")
        assert torch.equal(line.layers.crossings, alone.layers.crossings)
        assert counts_of(line) == counts_of(alone)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stopped_sweep_is_counted_up_to_where_it_came(engine):
    model, start, end = make_case("conv", 1, False)
    whole = xl.restrict(model, start, end)
    assert len(whole) > 12
    line = xl.restrict(model, start, end, record="layers", engine=engine, max_breaks=9)
    assert (line.stopped, len(line)) == ("max_breaks", 8)
    assert counts_of(line) == count_by_pieces(line)
    assert int(line.layers.crossings.sum()) == int(whole.origin_table[1:8, 2].sum())
    many = xl.restrict_many(model, start[None].expand(3, *start.shape), end[None].expand(3, *end.shape), max_breaks=9)
    assert many[2].layers is None  # not reached, and not asked for


def test_a_line_that_was_not_reached_has_no_counts():
    starts = torch.tensor([[-1.0, -3.0], [-1.0, -3.0]])
    lines = xl.restrict_many(nn.ReLU(), starts, -starts, record="layers", max_breaks=3)
    assert lines[0].layers is not None
    assert lines[1].layers is None


def test_nothing_is_recorded_unless_asked_for():
    line = xl.restrict(nn.ReLU(), [-1.0], [1.0])
    assert line.layers is None
    assert line.metrics().layers is None


def test_counts_are_saved_and_pickled(tmp_path):
    line = xl.restrict(xl.zoo.tent_network(3), [0.0], [1.0], record="layers")
    path = tmp_path / "line.safetensors"
    line.save(path)
    for copy in (xl.Restriction.load(path), pickle.loads(pickle.dumps(line))):
        assert all(
            torch.equal(a, b) for a, b in zip(vars(copy.layers).values(), vars(line.layers).values(), strict=True)
        )
        assert [vars(layer) for layer in copy.metrics().layers] == [vars(layer) for layer in line.metrics().layers]


@pytest.mark.parametrize(
    ("name", "value"), [("dead", [3, 0, 0]), ("node", [90, 1, 2]), ("crossings", [-1, 0, 0]), ("units", [1, 2])]
)
def test_a_file_with_wrong_counts_is_refused(tmp_path, name, value):
    line = xl.restrict(xl.zoo.tent_network(3), [0.0], [1.0], record="layers")
    table = replace(line.layers, **{name: torch.tensor(value)})
    replace(line, layers=table).save(tmp_path / "wrong.safetensors")
    with pytest.raises(xl.FileError, match="layers"):
        xl.Restriction.load(tmp_path / "wrong.safetensors")


def test_a_file_without_one_of_the_columns_is_refused(tmp_path):
    path = tmp_path / "line.safetensors"
    xl.restrict(xl.zoo.tent_network(3), [0.0], [1.0], record="layers").save(path)
    arrays, header = load_file(path), {"format": "exactline.restriction.1"}
    del arrays["layers.dead"]
    save_file(arrays, path, metadata=header | {"facts": "{}"})
    with pytest.raises(xl.FileError):
        xl.Restriction.load(path)


@pytest.mark.parametrize("record", ["all", 1, True, ("layers",)])
def test_other_records_are_refused(record):
    with pytest.raises(xl.ArgumentError, match="record"):
        xl.restrict(nn.ReLU(), [-1.0], [1.0], record=record)
