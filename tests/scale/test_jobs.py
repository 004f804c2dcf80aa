"""Every job on many lines gives what the library gives for each line, bit for bit."""

import numpy as np
import pytest
import torch

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.errors import ArgumentError, LineError, MissingError
from exactline.scale import LineDensity
from tests.scale.examples import assert_same, random_lines, small_network

COUNT = 300  # more than two batches of 128
BATCHES = [slice(0, 128), slice(128, 256), slice(256, 300)]


def example():
    return small_network(), *random_lines(COUNT)


def test_restrictions_are_those_of_restrict_many(tmp_path):
    model, starts, ends = example()
    store = xl.scale.run(model, zip(starts, ends, strict=True), out=tmp_path)
    wanted = [line for rows in BATCHES for line in xl.restrict_many(model, starts[rows], ends[rows])]
    assert len(store) == store.done == COUNT
    assert store.complete
    for found, line in zip(store, wanted, strict=True):
        assert_same(found, line)
    assert store.breaks == sum(len(line) + 1 for line in wanted)
    assert store[-1].check().worst < 1e-12  # the network is known


def test_without_values_and_without_the_model(tmp_path):
    model, starts, ends = example()
    xl.scale.run(model, zip(starts, ends, strict=True), out=tmp_path, values=False)
    found = xl.scale.open(tmp_path)[130]
    with pytest.raises(MissingError):
        _ = found.values
    with pytest.raises(MissingError):
        found.check()
    known = xl.scale.open(tmp_path, model)[130]
    assert torch.allclose(known.at(0.25), model(0.75 * starts[130] + 0.25 * ends[130]), rtol=1e-12)
    assert torch.equal(found.alphas, known.alphas)


def test_decisions(tmp_path):
    model, starts, ends = example()
    lines = zip(starts, ends, strict=True)
    store = xl.scale.run(model, lines, "decide", out=tmp_path, order="min", top=2, values=False)
    wanted = [
        decided for rows in BATCHES for decided in xl.restrict_many(model, starts[rows], ends[rows]).decisions("min", 2)
    ]
    for found, decided in zip(store, wanted, strict=True):
        assert list(found) == list(decided)
        assert (found.order, found.top) == ("min", 2)
        assert torch.equal(found.line.alphas, decided.line.alphas)


def test_decisions_of_one_output(tmp_path):
    starts, ends = random_lines(20)
    torch.manual_seed(0)
    one = torch.nn.Linear(starts.shape[1], 1).double()
    detector = torch.nn.Sequential(one, torch.nn.Sigmoid()).eval()
    store = xl.scale.run(detector, zip(starts, ends, strict=True), "decide", out=tmp_path / "a", values=True)
    wanted = xl.restrict_many(detector, starts, ends).decisions()
    for found, decided in zip(store, wanted, strict=True):
        assert list(found) == list(decided)
        assert found.describe() == "class 1 where the output is above 0.5"
        assert np.array_equal(found.values, decided.values)
    with pytest.raises(ArgumentError, match="no rival"):
        xl.scale.run(one.eval(), zip(starts, ends, strict=True), "decide", out=tmp_path / "b")


@pytest.mark.parametrize("target", [None, 1])
def test_attributions(tmp_path, target):
    model, starts, ends = example()
    store = xl.scale.run(model, zip(starts, ends, strict=True), "attribute", out=tmp_path, target=target)
    network, method = store.network, IntegratedGradients(store.network)
    for rows in BATCHES:
        targets = network(ends[rows]).argmax(1) if target is None else torch.full((len(ends[rows]),), target)
        wanted = method.attribute(ends[rows], baselines=starts[rows], target=targets)
        for number, row in zip(range(rows.start, rows.stop), wanted, strict=True):
            found = store[number]
            assert torch.equal(found.attributions, row)
            assert found.target == int(targets[number - rows.start])
            assert abs(found.delta) < 1e-10


def test_densities(tmp_path):
    model, starts, ends = example()
    store = xl.scale.run(model, zip(starts, ends, strict=True), "density", out=tmp_path)
    for rows in BATCHES:
        wanted = xl.density(model, starts[rows], (ends - starts)[rows, None], many=True)
        for number in range(rows.start, rows.stop):
            found, at = store[number], number - rows.start
            assert isinstance(found, LineDensity)
            assert found.count == int(wanted.counts[at, 0])
            assert found.origins == {name: int(counts[at, 0]) for name, counts in wanted.origins.items()}
            assert found.density == pytest.approx(float(wanted.densities[at, 0]), rel=1e-12)


def measure(line):
    widths = line.alphas.diff()
    return {"widest": float(widths.max()), "at": (int(widths.argmax()), "piece"), "widths": widths, "none": [None]}


def test_a_user_function(tmp_path):
    model, starts, ends = example()
    store = xl.scale.run(model, zip(starts, ends, strict=True), measure, out=tmp_path)
    wanted = [measure(line) for rows in BATCHES for line in xl.restrict_many(model, starts[rows], ends[rows])]
    for found, one in zip(store, wanted, strict=True):
        assert torch.equal(found.pop("widths"), one.pop("widths"))
        assert found == one


def fail_sometimes(line):
    if len(line) % 5 == 0:
        raise ValueError(f"{len(line)} pieces")
    return np.float32(len(line))


def test_a_function_that_fails_is_tried_three_times_and_affects_no_other_line(tmp_path):
    model, starts, ends = small_network(), *random_lines(30)
    store = xl.scale.run(model, zip(starts, ends, strict=True), fail_sometimes, out=tmp_path)
    pieces = [len(xl.restrict(model, start, end)) for start, end in zip(starts, ends, strict=True)]
    assert [n for n, p in enumerate(pieces) if p % 5 == 0] == list(store.errors) != []
    assert {failure.tries for failure in store.failures().values()} == {3}
    assert {number: int(value) for number, value in store.items()} == {n: p for n, p in enumerate(pieces) if p % 5}
    first = next(iter(store.errors))
    with pytest.raises(xl.ExactlineError, match=f"ValueError: {pieces[first]} pieces"):
        _ = store[first]


def test_what_cannot_be_stored_is_recorded(tmp_path):
    store = xl.scale.run(torch.nn.ReLU(), [([-1.0], [1.0])], lambda line: line, out=tmp_path)
    assert "cannot be stored" in store.errors[0].problem


def test_unusable_lines_are_recorded_and_others_unaffected(tmp_path):
    model, starts, ends = example()
    lines: list = list(zip(starts, ends, strict=True))
    bad_start = starts[5].clone()
    bad_start[2] = float("nan")
    lines[5], lines[131], lines[140], lines[299] = (
        (bad_start, ends[5]),
        (starts[131][:3], ends[131][:3]),
        7,
        (None, "x"),
    )
    store = xl.scale.run(model, lines, out=tmp_path)
    assert {n: type(e) for n, e in store.errors.items()} == dict.fromkeys((5, 131, 140, 299), LineError)
    assert "NaN" in store.errors[5].problem
    assert "(3,)" in store.errors[131].problem
    good = [[n for n in range(rows.start, rows.stop) if n not in store.errors] for rows in BATCHES]
    answers = [xl.restrict_many(model, starts[rows], ends[rows]) for rows in good]
    wanted = {n: x for rows, answer in zip(good, answers, strict=True) for n, x in zip(rows, answer, strict=True)}
    assert dict(store.items()).keys() == wanted.keys()
    for number, line in store.items():
        assert_same(line, wanted[number])


def test_several_inputs_and_a_network_that_overflows_on_one_line(tmp_path):
    class Two(torch.nn.Module):
        def forward(self, a, b):
            return (torch.relu(a) + b) * 1e300

    lines = [(([-1.0], [1.0]), ([1.0], [2.0])), (([-1.0], [1.0]), ([1e300], [2.0])), (([1.0], [2.0]), ([-3.0], [5.0]))]
    store = xl.scale.run(Two(), lines, out=tmp_path)
    assert store[0].alphas.tolist() == [0.0, 0.5, 1.0]
    assert store[2].alphas.tolist() == [0.0, 0.25, 1.0]
    assert list(store.errors) == [1]
    assert isinstance(store.errors[1], xl.NumberError)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"job": "paint"}, "job"),
        ({"backend": "spark"}, "backend"),
        ({"workers": 2}, "local"),
        ({"workers": 0, "backend": "ray"}, "workers"),
        ({"gpus_per_worker": -1, "backend": "ray"}, "gpus"),
        ({"lines": 3}, "lines"),
        ({"job": "decide", "order": "best"}, "order"),
        ({"job": "attribute", "target": 9}, "target"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(tmp_path, change, word):
    options = {"network": small_network(), "lines": list(zip(*random_lines(3), strict=True)), "out": tmp_path / "s"}
    with pytest.raises(ArgumentError, match=word):
        xl.scale.run(**(options | change))
