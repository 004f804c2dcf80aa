"""Tests of the falsifier: decisions on pieces against rationals, planted violations, replay, and ACAS Xu."""

from __future__ import annotations

import json
import re
import sys
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.verification import falsifier as module
from exactline.verification.margin import minimize_margin, minimize_maximum
from exactline.verification.property import Box, Property
from exactline.verification.replay import round_into_box
from exactline.verification.vnnlib import parse_vnnlib
from tests.cli.running import run as run  # pytest finds the fixture by its name

WIDTH = 2.0**-20  # of the line: a millionth
NAMES = "(declare-const X_0 Real)(declare-const Y_0 Real)"


def linear(weight: list[list[float]], bias: list[float], dtype: torch.dtype = torch.float64) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), dtype=dtype)
    layer.weight.data = torch.tensor(weight, dtype=dtype)
    layer.bias.data = torch.tensor(bias, dtype=dtype)
    return layer


def spike(normal: list[float], at: float, width: float = WIDTH, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A tent over ``normal . x = at``, 1 high and ``width`` wide, 0 elsewhere."""
    half = width / 2
    inner = linear([normal] * 3, [half - at, -at, -half - at], dtype)
    return nn.Sequential(inner, nn.ReLU(), linear([[1 / half, -2 / half, 1 / half]], [0.0], dtype)).eval()


def at_least(height: float, lower: list[float], upper: list[float]) -> Property:
    """The property that is violated where the first output is at least ``height``."""
    return Property.of(lower, upper, [[-1.0]], [-height])


# Decisions on a piece.


def exact_minimum(start: list[int], stop: list[int]) -> Fraction:
    """The minimum of a maximum of lines: at an end, or where two of them meet."""
    parts = [Fraction(0), Fraction(1)]
    for (a, b), (c, d) in combinations(zip(start, stop, strict=True), 2):
        if (b - a) != (d - c):
            part = Fraction(c - a, (b - a) - (d - c))
            parts += [part] if 0 < part < 1 else []
    return min(max(a + t * (b - a) for a, b in zip(start, stop, strict=True)) for t in parts)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12])
@pytest.mark.every(2)
def test_the_minimum_of_a_maximum_agrees_with_rational_arithmetic(rows: int):
    generator = torch.Generator().manual_seed(rows)
    start, stop = (torch.randint(-6, 7, (200, rows), generator=generator).double() for _ in range(2))
    part, value = minimize_maximum(start, stop)
    for k in range(len(start)):
        want = exact_minimum([int(v) for v in start[k]], [int(v) for v in stop[k]])
        assert abs(Fraction(float(value[k])) - want) <= Fraction(1, 2**48)
        at = Fraction(float(part[k]))
        pairs = zip(start[k].tolist(), stop[k].tolist(), strict=True)
        there = max(Fraction(a) + at * (Fraction(b) - Fraction(a)) for a, b in pairs)
        assert abs(there - want) <= Fraction(1, 2**46)


def test_each_line_has_its_own_smallest_margin():
    excess = torch.tensor([[3.0], [1.0], [2.0], [5.0], [4.0], [0.5]]).double()
    alphas = torch.tensor([0.0, 0.5, 1.0, 0.0, 1.0, 0.0]).double()
    margin, alpha = minimize_margin(excess, alphas, torch.tensor([0, 3, 5, 5, 6]))  # the third line was never swept
    assert margin.tolist() == [1.0, 4.0, float("inf"), 0.5]
    assert alpha[:2].tolist() == [0.5, 1.0]


def test_without_constraints_every_point_is_a_violation():
    found = xl.falsify(nn.ReLU(), parse_vnnlib(NAMES + "(assert (>= X_0 0))(assert (<= X_0 1))"), lines=3)
    assert found
    assert found.strict


# Violations planted by hand.


def test_a_violation_of_a_millionth_is_found_on_its_line():
    at = 0.3337890625 + 2.0**-21
    model = spike([1.0], at)
    grid = torch.linspace(0, 1, 10_000, dtype=torch.float64)[:, None]
    random = torch.rand(10_000, 1, dtype=torch.float64)
    with torch.no_grad():
        assert float(model(grid).max()) == 0  # no sample sees it
        assert float(model(random).max()) == 0
    found = xl.falsify(model, at_least(0.99, [0.0], [1.0]), lines=1)
    assert (found.answer, found.lines, found.strict) == ("sat", 1, True)
    assert found.pieces == 4
    assert abs(float(found.x) - at) < WIDTH / 100
    assert abs(found.margin - -0.01) < 1e-8


def test_a_thin_slab_in_four_dimensions_is_found():
    model = spike([1.0, -0.5, 0.25, 0.7], 0.123456)
    with torch.no_grad():
        assert float(model(torch.rand(10_000, 4, dtype=torch.float64)).max()) < 0.9
    found = xl.falsify(model, at_least(0.9, [0.0] * 4, [1.0] * 4), lines=50)
    assert found.strict
    assert float(found.y) >= 0.9


def test_a_violation_in_a_far_corner_is_found():
    """Only where all of 20 coordinates are near their ends, which no random point is: 0.05^20."""
    signs = [1.0 if i % 3 else -1.0 for i in range(20)]
    model = nn.Sequential(linear([signs], [0.0]), nn.ReLU(), linear([[1.0]], [0.0])).eval()
    most = sum(s > 0 for s in signs)
    found = xl.falsify(model, at_least(most - 1e-9, [0.0] * 20, [1.0] * 20), lines=500)
    assert found.strict


def test_a_file_is_replayed_in_onnxruntime(tmp_path: Path):
    at = 1 / 8
    as_network(spike([1.0], at, dtype=torch.float32), [torch.zeros(1)]).save(tmp_path / "spike.onnx")
    found = xl.falsify(tmp_path / "spike.onnx", at_least(0.5, [0.0], [1.0]), lines=1)
    assert (found.answer, found.strict) == ("sat", True)
    assert found.replayed_by.startswith("onnxruntime")
    assert found.x.tolist() == [at]
    assert found.y.tolist() == [1.0]


def test_without_onnxruntime_our_own_evaluation_confirms_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    as_network(spike([1.0], 1 / 8), [torch.zeros(1)]).save(tmp_path / "spike.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = xl.falsify(tmp_path / "spike.onnx", at_least(0.5, [0.0], [1.0]), lines=1)
    assert found.strict
    assert found.replayed_by == "exactline in float32"


def test_the_second_box_is_searched_too():
    text = NAMES + "(assert (or (and (>= X_0 -1) (<= X_0 0)) (and (>= X_0 0.25) (<= X_0 0.5))))(assert (>= Y_0 0.375))"
    found = xl.falsify(nn.ReLU(), parse_vnnlib(text), lines=5)
    assert found.strict
    assert 0.375 <= float(found.x) <= 0.5
    assert found.disjunct == 1


def test_constraints_of_inputs_and_outputs_together():
    box = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    box += "".join(f"(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(2))
    held = parse_vnnlib(box + "(assert (and (>= (+ X_0 X_1) 1.5) (<= (- Y_0 Y_1) -0.49)))")
    found = xl.falsify(nn.ReLU(), held, lines=400)
    assert found.strict
    x0, x1 = found.x.tolist()
    assert x0 + x1 >= 1.5
    assert x0 - x1 <= -0.49
    never = parse_vnnlib(box + "(assert (and (>= (+ X_0 X_1) 1.5) (<= (- Y_0 Y_1) -0.51)))")
    assert not xl.falsify(nn.ReLU(), never, lines=400)


@pytest.mark.parametrize(("sign", "answer"), [("<=", "sat"), ("<", "unknown")])
def test_a_single_touching_point_counts_only_where_equality_does(sign: str, answer: str):
    text = f"{NAMES}(assert (>= X_0 0))(assert (<= X_0 1))(assert ({sign} Y_0 0))"
    found = xl.falsify(nn.ReLU(), parse_vnnlib(text), lines=20)
    assert found.margin == 0
    assert (found.answer, found.strict) == (answer, answer == "sat")


def test_fixed_coordinates_stay_fixed():
    prop = at_least(0.5, [0.25, 0.5, 0.0], [0.25, 0.5, 1.0])
    found = xl.falsify(spike([0.0, 0.0, 1.0], 0.625), prop, lines=3)
    assert found.strict
    assert found.x.tolist()[:2] == [0.25, 0.5]
    point = at_least(0.5, [0.25, 0.5, 0.625], [0.25, 0.5, 0.625])
    assert xl.falsify(spike([0.0, 0.0, 1.0], 0.625), point, lines=3).strict
    other = at_least(0.5, [0.25, 0.5, 0.75], [0.25, 0.5, 0.75])
    assert not xl.falsify(spike([0.0, 0.0, 1.0], 0.625), other, lines=3)


def test_a_bound_that_float32_cannot_represent_is_noted():
    model = linear([[1.0, 1.0]], [0.0], torch.float32).eval()
    found = xl.falsify(model, at_least(0.5, [0.1, 0.0], [0.1, 1.0]), lines=10)
    assert (found.answer, found.strict) == ("sat", False)
    assert "box" in found.note
    assert found.x[0] == torch.tensor(0.1, dtype=torch.float32).double()


def test_points_are_rounded_into_the_box():
    box = Box(torch.tensor([0.1, -0.3], dtype=torch.float64), torch.tensor([0.7, 0.1], dtype=torch.float64))
    for corner in (box.lower, box.upper):
        assert bool(box.holds(round_into_box(corner, box, torch.float32).double()[None]))


def test_a_module_of_half_precision_is_confirmed_in_float32_and_a_point_of_pixels_has_its_shape():
    model = nn.Sequential(nn.Flatten(), linear([[1.0, 1.0, 1.0, 1.0]], [0.0], torch.float16)).eval()
    found = xl.falsify(model, at_least(3.5, [0.0] * 4, [1.0] * 4), lines=40, shape=(1, 2, 2))
    assert found.strict
    assert found.replayed_by == "exactline in float32"
    batch = {0: torch.export.Dim("batch")}
    pixels = nn.Sequential(nn.Flatten(), nn.ReLU()).eval()
    program = torch.export.export(pixels, (torch.zeros(2, 1, 2),), dynamic_shapes=(batch,))
    prop = Property.of([-1.0] * 2, [1.0] * 2, [[-1.0, -1.0]], [-1.9])
    assert xl.falsify(program, prop, lines=40, shape=(1, 2)).strict


def test_one_line_is_enough_for_a_round():
    assert xl.falsify(nn.ReLU(), Property.of([-1.0] * 3, [1.0] * 3, [[1.0, 0.0, 0.0]], [-1.0]), lines=1).lines == 1


# Reports and errors.


def test_it_never_says_unsat():
    empty = Property.of([1.0], [0.0], [[1.0]], [0.0])
    nothing = parse_vnnlib(NAMES + "(assert (>= X_0 1))(assert (<= X_0 0))")
    for prop in (empty, nothing):
        found = xl.falsify(nn.ReLU(), prop, lines=5)
        assert (found.answer, found.lines, found.x) == ("unknown", 0, None)
        assert "No point" in found.note
    held = xl.falsify(nn.ReLU(), at_least(1.5, [-1.0], [1.0]), lines=100)
    assert (held.answer, held.lines, held.margin) == ("unknown", 1, 0.5)  # the box is one line
    assert held.nearest.tolist() == [1.0]
    assert "unknown" in str(held)
    assert held.vnncomp() == "unknown"


def test_the_same_seed_and_lines_give_the_same_answer():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 2)).eval()
    prop = Property.of([-1.0] * 4, [1.0] * 4, [[-1.0, 0.0]], [-1e3])
    one, two, three = (xl.falsify(model, prop, lines=300, seed=s) for s in (7, 7, 8))
    assert (one.lines, one.pieces, one.margin) == (300, two.pieces, two.margin)
    assert torch.equal(one.nearest, two.nearest)
    assert one.pieces != three.pieces


def test_the_answer_reads_back_as_the_numbers_it_is():
    found = xl.falsify(spike([1.0], 0.3), at_least(0.5, [0.0], [1.0]), lines=1)
    text = found.vnncomp()
    assert text.startswith("sat\n((X_0 ")
    assert text.endswith("))")
    assert text.count("(") == text.count(")") == 3
    pairs = re.findall(r"\(([XY]_\d+) ([^()\s]+)\)", text)
    assert [(n, float(v)) for n, v in pairs] == [("X_0", float(found.x)), ("Y_0", float(found.y))]


def test_the_clock_ends_a_search():
    model = as_network(nn.Sequential(nn.Linear(6, 60), nn.ReLU(), nn.Linear(60, 1)).eval(), [torch.zeros(6)])
    found = xl.falsify(model, at_least(1e6, [-1.0] * 6, [1.0] * 6), seconds=0.5)
    assert found.answer == "unknown"
    assert found.lines > 0
    assert found.seconds < 60  # on a busy machine
    assert xl.falsify(model, at_least(1e6, [-1.0] * 6, [1.0] * 6), seconds=0).lines == 0


def test_progress_is_reported():
    reports = []
    prop = at_least(9.0, [-1.0] * 2, [1.0] * 2)
    model = nn.Sequential(linear([[1.0, 1.0]], [0.0]), nn.ReLU()).eval()
    xl.falsify(model, prop, lines=200, progress=lambda *report: reports.append(report))
    assert [lines for _, lines, _ in reports][-1] == 200
    assert reports[-1][0] == 1.0
    assert reports[-1][2] == 7.0


def test_softmax_changes_no_order_and_other_constraints_of_it_are_refused():
    model = nn.Sequential(linear([[1.0], [-1.0]], [0.0, 0.25]), nn.Softmax(-1)).eval()
    order = Property.of([-1.0], [1.0], [[1.0, -1.0]], [0.0])  # y0 <= y1
    found = xl.falsify(model, order, lines=3)
    assert found.strict
    assert float(found.y.sum()) == pytest.approx(1.0)
    with pytest.raises(xl.UnsupportedError, match="softmax"):
        xl.falsify(model, Property.of([-1.0], [1.0], [[1.0, 0.0]], [0.5]), lines=3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lines": 0}, "lines"),
        ({"lines": 1.5}, "lines"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"progress": "yes"}, "progress"),
        ({"network": 17}, "network"),
        ({"property": None}, "property"),
        ({"device": "nowhere"}, "device"),
        ({"property": Property.of([0.0] * 2, [1.0] * 2, [[1.0]], [0.0])}, "inputs"),
        ({"property": Property.of([0.0], [1.0], [[1.0, 1.0]], [0.0])}, "outputs"),
    ],
)
@pytest.mark.every(3)
def test_what_makes_no_sense_is_refused(change: dict[str, object], says: str):
    given = {"network": as_network(nn.ReLU(), [torch.zeros(1)]), "property": at_least(2.0, [0.0], [1.0]), "lines": 2}
    given |= change
    with pytest.raises(xl.ArgumentError, match=says):
        xl.falsify(given.pop("network"), given.pop("property"), **given)


@pytest.mark.parametrize("bad", [([0.0], [1.0, 2.0], [[1.0]], [0.0]), ([0.0], [float("inf")], [[1.0]], [0.0])])
def test_a_property_of_numbers_that_do_not_fit_is_refused(bad: tuple[list[float], ...]):
    with pytest.raises(xl.ArgumentError):
        Property.of(*bad)


# The command.

SCORES = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
SCORES += "(assert (and (>= X_0 20) (<= X_0 30) (>= X_1 30) (<= X_1 50)))"


def test_the_command_prints_the_competitions_form(run):
    Path("p.vnnlib").write_text(SCORES + "(assert (>= Y_0 15))")
    status, out, err = run("falsify", "loan.nnet", "p.vnnlib", "--lines", "50", "--out", "answer.txt")
    assert status == 0
    assert out.startswith("sat\n((X_0 ")
    assert Path("answer.txt").read_text() == out
    assert "confirms it without tolerance" in err
    x, y = (float(v) for v in re.findall(r"\(X_\d (\S+)\)", out))
    assert -1.7 * x + y + 3 >= 15 - 1e-4
    status, out, err = run("falsify", "loan.nnet", "p.vnnlib", "--lines", "50", "--json")
    assert json.loads(out)["answer"] == "sat"


def test_the_command_reports_its_coverage(run):
    Path("p.vnnlib").write_text(SCORES + "(assert (>= Y_0 1000))")
    status, out, err = run("falsify", "loan.nnet", "p.vnnlib", "--lines", "60")
    assert (status, out) == (0, "unknown\n")
    assert "60 lines" in err
    assert "smallest margin at 20, 50" in err  # by hand: 1000 - (-34 + 50 + 3)
    found = json.loads(run("falsify", "loan.nnet", "p.vnnlib", "--lines", "60", "--json")[1])
    assert (found["answer"], found["x"], found["lines"]) == ("unknown", None, 60)
    assert found["margin"] == pytest.approx(981)


def test_the_command_exits_with_the_codes_of_our_errors(run):
    Path("bad.vnnlib").write_text("(assert")
    Path("p.vnnlib").write_text(SCORES)
    assert run("falsify", "loan.nnet", "bad.vnnlib")[0] == 6
    assert run("falsify", "torn.nnet", "p.vnnlib")[0] == 6
    assert run("falsify", "loan.nnet", "none.vnnlib")[0] == 6
    assert run("falsify", "loan.nnet", "p.vnnlib", "--lines", "0")[0] == 2
    assert run("falsify", "loan.nnet", "p.vnnlib", "--out", "none/x.txt")[0] == 6


def test_an_interrupted_search_writes_nothing(run, monkeypatch: pytest.MonkeyPatch):
    Path("p.vnnlib").write_text(SCORES + "(assert (>= Y_0 1000))")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "select_search", interrupt)
    assert run("falsify", "loan.nnet", "p.vnnlib", "--out", "answer.txt")[0] == 130
    assert not Path("answer.txt").exists()


# Published networks.


def acas(data: Path, network: str, number: int) -> tuple[Path, Path]:
    folder = data / "acasxu"
    return folder / "onnx" / f"ACASXU_run2a_{network}_batch_2000.onnx", folder / "vnnlib" / f"prop_{number}.vnnlib"


@pytest.mark.parametrize(
    ("network", "number"), [("2_1", 2), ("3_5", 2), ("5_3", 2), ("1_9", 7), ("2_9", 8), ("1_7", 3), ("1_9", 4)]
)
def test_known_violations_of_acas_xu_are_found(data: Path, network: str, number: int):
    found = xl.falsify(*acas(data, network, number), lines=20_000)
    assert found.strict, found
    assert found.replayed_by.startswith("onnxruntime")


def test_no_violation_is_claimed_where_there_is_none(data: Path):
    for network, number in (("1_1", 3), ("3_3", 9), ("4_5", 10), ("1_1", 5)):
        assert not xl.falsify(*acas(data, network, number), lines=300)
    small = data / "vnncomp" / "2021_test"
    assert xl.falsify(small / "test_sat.onnx", small / "test_prop.vnnlib", lines=300).strict
    for name, rule in (("test_unsat", "test_prop"), ("test_nano", "test_nano"), ("test_tiny", "test_tiny")):
        assert not xl.falsify(small / f"{name}.onnx", small / f"{rule}.vnnlib", lines=300)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_property_2_is_broken_by_nearly_all_networks_and_the_hard_ones_by_every_seed(data: Path):
    names = [f"{a}_{b}" for a in range(2, 6) for b in range(1, 10)]
    answers = {n: xl.falsify(*acas(data, n, 2), seconds=20) for n in names}
    sat = [n for n, found in answers.items() if found.strict]
    print(f"property 2: {len(sat)} of {len(names)}, the slowest in {max(answers[n].seconds for n in sat):.1f} s")
    assert len(sat) >= 30
    for network, number in (("1_9", 7), ("2_9", 8)):
        for seed in range(5):
            found = xl.falsify(*acas(data, network, number), seconds=60, seed=seed)
            print(f"property {number} on {network}, seed {seed}: {found}")
            assert found.strict
