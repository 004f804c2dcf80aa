"""Tests of complete verification: answers against rationals, exact ties, odd boxes, published instances."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.verification.property import Box, Disjunct, Property
from exactline.verification.vnnlib import parse_vnnlib
from tests.cli.running import run as run  # pytest finds the fixture by its name
from tests.verification.verify_study import Tally, ask

NAMES = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const X_2 Real)(declare-const Y_0 Real)"
TLL = {  # instance: answer
    "8_0": "unsat",
    "8_1": "unsat",
    "8_2": "unsat",
    "8_3": "sat",
    "16_0": "unsat",
    "16_1": "sat",
    "16_2": "unsat",
    "16_3": "unsat",
    "24_0": "unsat",
    "24_1": "unsat",
    "32_0": "unsat",
    "32_1": "sat",
}
QUICK_TLL = ("8_0", "8_3")
QUICK_INDEXES = (("lindex", 10000), ("lindex_deep", 200))


@pytest.fixture(scope="session")
def lowdim(data: Path) -> Path:
    """The folder of published networks with one and two inputs."""
    folder = data.parent / "lowdim"
    if not folder.is_dir():
        pytest.skip("there is no folder lowdim beside EXACTLINE_DATA")
    return folder


def make_network(weight: list[list[float]], bias: list[float], out: list[list[float]]) -> nn.Module:
    """A layer of ReLUs and a linear combination of them."""
    first, second = nn.Linear(len(weight[0]), len(weight)), nn.Linear(len(weight), len(out), bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor(weight))
        first.bias.copy_(torch.tensor(bias))
        second.weight.copy_(torch.tensor(out))
    return nn.Sequential(first, nn.ReLU(), second).eval()


TENT = make_network([[1.0], [1.0], [1.0]], [0.0, -1.0, -2.0], [[1.0, -2.0, 1.0]])  # 0 at 0 and 2, 1 at 1
SUM = make_network([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 0.0], [[1.0, 1.0]])  # relu(x0 + x1) + relu(x2)


def at_least(height: float, lower: list[float], upper: list[float]) -> Property:
    return Property.of(lower, upper, [[-1.0]], [-height])


# Against rationals.


def test_random_networks_around_their_extrema():
    tally = Tally()
    for seed in range(7):  # one of each family
        ask(seed, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert sum(tally.answers.values()) == 49


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_two_thousand_random_networks_around_their_extrema(first):
    tally = Tally()
    for seed in range(first, first + 100):
        ask(seed, tally)
    print(dict(tally.answers))
    assert not tally.wrong, "\n".join(tally.wrong)


# Exact ties.


def test_a_peak_is_reached_exactly_and_not_exceeded():
    found = xl.verify(TENT, at_least(1.0, [0.0], [2.0]))
    assert (found.result, found.x.tolist(), found.y.tolist()) == ("sat", [1.0], [1.0])
    above = xl.verify(TENT, at_least(math.nextafter(1.0, 2.0), [0.0], [2.0]))
    assert above.result == "unsat"
    assert xl.check_proof(TENT, at_least(math.nextafter(1.0, 2.0), [0.0], [2.0]), above.proof)


def test_a_strict_constraint_is_not_satisfied_by_equality():
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 2) ({} Y_0 1)))"
    assert xl.verify(TENT, parse_vnnlib(text.format(">="))).result == "sat"
    assert xl.verify(TENT, parse_vnnlib(text.format(">"))).result == "unsat"


def test_a_strict_bound_of_an_input_excludes_the_end_of_the_box():
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) ({} X_0 1) (>= Y_0 1)))"
    assert xl.verify(TENT, parse_vnnlib(text.format("<="))).result == "sat"
    assert xl.verify(TENT, parse_vnnlib(text.format("<"))).result == "unsat"


def test_a_violation_between_floats_is_unknown_with_the_exact_point():
    names = "(declare-const X_0 Real)(declare-const Y_0 Real)"
    prop = parse_vnnlib(f"{names}(assert (and (>= X_0 0) (<= X_0 2) (= (* 3 X_0) 1) (>= Y_0 0)))")
    found = xl.verify(TENT, prop)
    assert (found.result, found.exact_point) == ("unknown", (Fraction(1, 3),))
    assert "X_0 = 1/3" in found.reason
    found = xl.verify(TENT, at_least(0.05, [0.1], [0.1]))  # no float32 number is 0.1
    assert (found.result, found.exact_point) == ("unknown", (Fraction(0.1),))


def test_an_equality_touches_one_point():
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 2) (= Y_0 1)))"
    assert xl.verify(TENT, parse_vnnlib(text)).x.tolist() == [1.0]


def test_numbers_that_are_rounded_while_reading_are_noted():
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 1) (>= {} 9)))"
    for term in ("(+ Y_0 0.1 0.2)", "(* 0.1 3 Y_0)", "(/ Y_0 3)", "(- (* 0.1 Y_0) (* 1.3 Y_0))"):
        assert "rounded" in xl.verify(TENT, parse_vnnlib(text.format(term))).note, term
    for term in ("(+ Y_0 0.5 0.25)", "(* 0.1 2 Y_0)", "(/ Y_0 4)", "(- Y_0 X_0)", "(* 3 (+ Y_0 0.5))"):
        assert not xl.verify(TENT, parse_vnnlib(text.format(term))).note, term


# Boxes.


def test_fixed_inputs_are_constants_wherever_they_stand():
    for free in range(3):
        lower, upper = [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]
        upper[free] = 1.0
        assert xl.verify(SUM, at_least(2.0, lower, upper)).result == "sat"
        assert xl.verify(SUM, at_least(2.0 + 1e-9, lower, upper)).result == "unsat"


def test_two_free_inputs_in_any_position():
    for fixed in range(3):
        lower, upper = [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]
        lower[fixed] = 1.0
        found = xl.verify(SUM, at_least(3.0, lower, upper))
        assert (found.result, found.x.tolist()) == ("sat", [1.0, 1.0, 1.0])
        prop = at_least(3.0 + 1e-9, lower, upper)
        found = xl.verify(SUM, prop)
        assert found.result == "unsat"
        assert xl.check_proof(SUM, prop, found.proof)


def test_a_box_without_free_inputs_is_a_point():
    assert xl.verify(SUM, at_least(3.0, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])).result == "sat"
    found = xl.verify(SUM, at_least(3.1, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]))
    assert (found.result, found.pieces) == ("unsat", 1)


def test_empty_boxes_and_contradictions_have_no_counterexample():
    bounds = "(>= X_0 0) (<= X_0 1) (>= X_1 0) (<= X_1 1) (= X_2 0)"
    for constraint in ("(>= X_0 2)", "(and (>= Y_0 1) (<= Y_0 0.5))", "(and (> Y_0 1) (< Y_0 1))", "(< 1 1)"):
        prop = parse_vnnlib(f"{NAMES}(assert (and {bounds} {constraint}))")
        found = xl.verify(SUM, prop)
        assert found.result == "unsat", constraint
        assert xl.check_proof(SUM, prop, found.proof), constraint


def test_larger_boxes_go_to_the_falsifier():
    found = xl.verify(SUM, at_least(2.9, [0.0] * 3, [1.0] * 3), seconds=20)
    assert (found.result, found.searched, found.decided) == ("sat", 1, 0)
    found = xl.verify(SUM, at_least(3.1, [0.0] * 3, [1.0] * 3), seconds=0.2)
    assert found.result == "unknown"
    assert "more than two free inputs" in found.reason


def test_a_small_box_is_decided_where_a_larger_one_is_not():
    boxes = (Box(torch.zeros(3).double(), torch.ones(3).double()), Box(torch.ones(3).double(), torch.ones(3).double()))
    row = torch.tensor([[-1.0]], dtype=torch.float64)
    high = Disjunct(0, row, torch.tensor([-9.0]).double(), torch.tensor([False]))
    reached = Disjunct(1, row, torch.tensor([-3.0]).double(), torch.tensor([False]))
    assert xl.verify(SUM, Property(3, 1, boxes, (high, reached)), seconds=0.2).disjunct == 1
    missed = Disjunct(1, row, torch.tensor([-4.0]).double(), torch.tensor([False]))
    assert xl.verify(SUM, Property(3, 1, boxes, (high, missed)), seconds=0.2).result == "unknown"


def test_disjuncts_on_one_line_share_one_sweep():
    step, ends = 2.0**-10, range(2048)
    boxes = tuple(Box(torch.tensor([k * step]).double(), torch.tensor([(k + 1) * step]).double()) for k in ends)
    limit = torch.tensor([-1.0 - 1e-9], dtype=torch.float64)
    row = torch.tensor([[-1.0]], dtype=torch.float64)
    disjuncts = tuple(Disjunct(k, row, limit, torch.tensor([False])) for k in ends)
    found = xl.verify(TENT, Property(1, 1, boxes, disjuncts))
    assert (found.result, found.pieces, found.decided) == ("unsat", 2, 2048)
    one = Disjunct(1023, row, torch.tensor([-1.0]).double(), torch.tensor([False]))
    assert xl.verify(TENT, Property(1, 1, boxes, (*disjuncts, one))).disjunct == 2048


def test_boxes_on_one_plane_share_one_part():
    corners = [(a, b) for a in (-1.0, 0.0, 3.0) for b in (-1.0, 0.5)]
    boxes = tuple(
        Box(torch.tensor([a, b, 0.0]).double(), torch.tensor([a + 0.75, b + 1.0, 0.0]).double()) for a, b in corners
    )
    row = torch.tensor([[-1.0]], dtype=torch.float64)

    def make(limit: float) -> Property:
        limits = torch.tensor([limit], dtype=torch.float64)
        return Property(3, 1, boxes, tuple(Disjunct(k, row, limits, torch.tensor([False])) for k in range(6)))

    found = xl.verify(SUM, make(-5.26))  # the largest value is 3.75 + 1.5
    assert found.result == "unsat"
    assert len(found.proof.document["parts"]) == 1
    assert xl.check_proof(SUM, make(-5.26), found.proof)
    found = xl.verify(SUM, make(-5.25))
    assert (found.result, found.disjunct, found.x.tolist()) == ("sat", 5, [3.75, 1.5, 0.0])


def test_out_of_time_is_unknown_with_the_reason():
    found = xl.verify(TENT, at_least(1.5, [0.0], [2.0]), seconds=0)
    assert (found.result, found.proof, found.decided) == ("unknown", None, 0)
    assert "time" in found.reason


# Networks.


def test_huge_and_tiny_weights_are_exact():
    big, small = 1e30, 1e-30
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[big], [small]], dtype=torch.float64))
        model[0].bias.copy_(torch.tensor([-big, -small], dtype=torch.float64))
        model[2].weight.copy_(torch.tensor([[small, big]], dtype=torch.float64))
        model[2].bias.zero_()
    exact = 2 * Fraction(big) * Fraction(small)  # at x = 2
    near = float(exact)
    limit = near if Fraction(near) <= exact else math.nextafter(near, 0)
    assert xl.verify(model, at_least(math.nextafter(limit, 9), [0.0], [2.0])).result == "unsat"
    assert xl.verify(model, at_least(limit, [0.0], [2.0])).result in ("sat", "unknown")


def test_what_is_not_piecewise_linear_is_refused():
    with pytest.raises(xl.UnsupportedError):
        xl.verify(nn.GELU(), at_least(0.5, [0.0], [1.0]))
    with pytest.raises(xl.UnsupportedError, match="softmax"):
        xl.verify(nn.Sequential(nn.Linear(1, 1), nn.Softmax(1)).eval(), at_least(0.5, [0.0], [1.0]))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"seconds": -1}, "seconds"), ({"seconds": math.nan}, "seconds"), ({"seed": -1}, "seed")],
)
def test_arguments_are_checked(arguments, match):
    with pytest.raises(xl.ArgumentError, match=match):
        xl.verify(TENT, at_least(1.0, [0.0], [2.0]), **arguments)


def test_a_property_of_another_network_is_refused():
    network = as_network(TENT, [torch.zeros(1)])
    with pytest.raises(xl.ArgumentError, match="inputs"):
        xl.verify(network, at_least(1.0, [0.0, 0.0], [2.0, 1.0]))
    with pytest.raises(xl.ArgumentError, match="outputs"):
        xl.verify(network, Property.of([0.0], [1.0], [[1.0, 1.0]], [0.0]))
    with pytest.raises(xl.ArgumentError, match="cannot be"):
        xl.verify(network, 3)


# Published instances.


@pytest.mark.parametrize(
    ("network", "count"),
    [
        pytest.param(name, count, marks=[] if (name, count) in QUICK_INDEXES else pytest.mark.slow)
        for name in ("lindex", "lindex_deep")
        for count in (1, 200, 1000, 10000)
    ],
)
def test_learned_indexes(data, lowdim, network, count):
    file = data / "vnncomp/2026r_nn4sys/lindex.onnx" if network == "lindex" else lowdim / "lindex_deep.onnx"
    if not file.exists():
        pytest.skip(f"there is no {file.name}")
    found = xl.verify(file, lowdim / f"lindex_{count}.vnnlib.gz")
    assert (found.result, found.decided) == ("unsat", 2 * count)


@pytest.mark.parametrize("name", [n if n in QUICK_TLL else pytest.param(n, marks=pytest.mark.slow) for n in TLL])
def test_two_level_lattices(lowdim, name):
    file, prop = lowdim / f"tll_N={name}.onnx.gz", lowdim / f"tll_N={name}.vnnlib"
    found = xl.verify(file, prop)
    assert found.result == TLL[name]
    if found.proof is not None:
        assert xl.check_proof(file, prop, found.proof)
    else:
        assert found.replayed_by.startswith("onnxruntime")
        assert bool(xl.verification.vnnlib.read_vnnlib(prop).disjuncts[0].holds(found.x[None], found.y[None]))


# The command.


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    as_network(TENT, [torch.zeros(1)]).save(tmp_path / "tent.onnx")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 2) (>= Y_0 1.5)))"
    (tmp_path / "high.vnnlib").write_text(text)
    (tmp_path / "peak.vnnlib").write_text(text.replace("1.5", "1"))
    return str(tmp_path / "tent.onnx"), str(tmp_path / "high.vnnlib")


def test_the_command_writes_proofs_and_results(run, files, tmp_path):
    proof, result = str(tmp_path / "proof.json.gz"), tmp_path / "result.txt"
    status, out, _ = run("verify", *files, "--proof", proof, "--result", str(result), "--json")
    assert (status, json.loads(out)["result"]) == (0, "unsat")
    assert result.read_text() == "unsat\n"
    status, out, _ = run("check-proof", *files, proof)
    assert (status, out.startswith("accepted")) == (0, True)
    status, out, _ = run("check-proof", files[0], str(tmp_path / "peak.vnnlib"), proof, "--json")
    assert (status, json.loads(out)["accepted"]) == (1, False)


def test_the_command_prints_a_counterexample_in_the_competition_format(run, files, tmp_path):
    result = tmp_path / "result.txt"
    status, out, err = run("verify", files[0], str(tmp_path / "peak.vnnlib"), "--result", str(result))
    assert (status, out) == (0, "sat\n((X_0 1.0)\n (Y_0 1.0))\n")
    assert result.read_text() == out
    assert "onnxruntime" in err


def test_without_onnxruntime_the_replay_is_our_own_and_says_so(run, files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    status, out, _ = run("verify", files[0], str(tmp_path / "peak.vnnlib"), "--json")
    document = json.loads(out)
    assert (status, document["result"], document["replayed_by"]) == (0, "sat", "exactline in float32")
