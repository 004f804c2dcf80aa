"""Tests of the VNNLIB parser: errors with their positions, and formulas against a plain evaluation in rationals."""

from __future__ import annotations

import gzip
import random
import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import exactline as xl
from exactline.verification import terms, vnnlib
from exactline.verification.property import Property
from exactline.verification.vnnlib import parse_vnnlib, read_vnnlib
from tests.corpus.vnnlib_files import GOOD, HEAD, STATEMENTS, vnnlib_files

BAD = {name: rest for name, *rest in vnnlib_files()}
ACAS_SIZES = {"1": (1, 1), "2": (1, 4), "3": (1, 4), "4": (1, 4), "5": (4, 4), "6": (8, 8), "7": (2, 6), "8": (3, 6)}
ACAS_SIZES |= {"9": (4, 4), "10": (4, 4)}  # disjuncts and constraints of the ACAS Xu properties


@pytest.mark.parametrize("name", sorted(BAD))
@pytest.mark.every(2)
def test_a_bad_file_gets_its_error_and_its_place(name: str, tmp_path: Path):
    data, says, place = BAD[name]
    (tmp_path / name).write_bytes(data)
    begun = time.process_time()
    with pytest.raises(xl.FileError) as caught:
        read_vnnlib(tmp_path / name)
    assert time.process_time() - begun < 2
    assert says in caught.value.problem
    assert name in caught.value.where
    assert caught.value.hint
    assert len(str(caught.value)) < 1000
    if place is not None:
        assert caught.value.where.endswith(f"line {place[0]}, column {place[1]}")


def test_there_are_enough_bad_files():
    assert len(BAD) >= 80
    assert len(STATEMENTS) >= 40


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(xl.FileError, match="cannot be read"):
        read_vnnlib(tmp_path / "none.vnnlib")
    with pytest.raises(xl.FileError, match=r"cannot be read|regular"):
        read_vnnlib(tmp_path)


def test_gzip_byte_order_marks_and_solver_commands_are_read(tmp_path: Path):
    (tmp_path / "a.vnnlib.gz").write_bytes(gzip.compress(GOOD))
    (tmp_path / "b.vnnlib").write_bytes(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"))
    solver = b"(set-logic QF_LRA)(set-info :source |many (words|)\n" + GOOD + b"(check-sat)(get-model)(exit)"
    (tmp_path / "c.vnnlib").write_bytes(solver.replace(b"const X_0 Real", b"fun X_0 () Real"))
    for name in ("a.vnnlib.gz", "b.vnnlib", "c.vnnlib"):
        found = read_vnnlib(tmp_path / name)
        assert (found.inputs, found.outputs, len(found.disjuncts)) == (1, 1, 1)
        assert (found.boxes[0].lower.tolist(), found.boxes[0].upper.tolist()) == ([0.0], [1.0])


def test_the_tightest_bounds_count_and_keep_their_decimals():
    text = "(assert (<= X_0 0.679857769 0.9))(assert (>= 0.7 X_0))(assert (>= X_0 -0.3))(assert (>= (* 2 X_0) -1/2))"
    found = parse_vnnlib(HEAD.decode() + text.replace("-1/2", "(/ -1 2)"))
    assert found.boxes[0].upper.tolist() == [0.679857769]
    assert found.boxes[0].lower.tolist() == [-0.25]


def test_disjuncts_that_cannot_hold_are_left_out():
    box = "(assert (and (>= X_0 0) (<= X_0 1)))"
    for text in ("(assert (<= 1 0))", "(assert (>= X_0 2))", "(assert (< Y_0 Y_0))", "(assert (not (<= 0 1)))"):
        assert not parse_vnnlib(HEAD.decode() + box + text).disjuncts
    kept = parse_vnnlib(HEAD.decode() + box + "(assert (or (<= 1 0) (<= Y_0 Y_0) (= Y_0 3)))").disjuncts
    assert [len(c.limit) for c in kept] == [0, 2]


def test_a_large_file_is_read_in_linear_time():
    count = 10_000
    text = "".join(f"(declare-const X_{i} Real)" for i in range(count)) + "(declare-const Y_0 Real)"
    text += "".join(f"(assert (<= X_{i} 1))(assert (>= X_{i} 0))" for i in range(count))
    begun = time.process_time()
    found = parse_vnnlib(text + "(assert (or (<= Y_0 1) (>= Y_0 2)))")
    assert time.process_time() - begun < 4
    assert (found.inputs, len(found.boxes), len(found.disjuncts)) == (count, 1, 2)


def test_deep_and_wide_expressions_need_no_recursion():
    deep = "(+ " * 400 + "Y_0" + " 1)" * 400
    found = parse_vnnlib(GOOD.decode() + f"(assert (<= {deep} 0))(assert (<= (+ {'Y_0 ' * 50_000}) 0))")
    assert found.disjuncts[0].output_weights.tolist() == [[1.0], [1.0], [50_000.0]]
    assert found.disjuncts[0].limit.tolist() == [0.0, -400.0, 0.0]


# A plain evaluation of the same formulas, in rationals.


def truth(node, at: dict[str, Fraction]) -> bool:
    head, *rest = node
    if head in ("and", "or"):
        return (all if head == "and" else any)(truth(r, at) for r in rest)
    if head == "not":
        return not truth(rest[0], at)
    values = [number(r, at) for r in rest]
    pairs = list(pairwise(values))
    compare = {
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "=": lambda a, b: a == b,
    }[head]
    return all(compare(a, b) for a, b in pairs)


def number(node, at: dict[str, Fraction]) -> Fraction:
    if isinstance(node, str):
        return at[node] if node in at else Fraction(node)
    head, *rest = node
    values = [number(r, at) for r in rest]
    if head == "+":
        return sum(values, Fraction(0))
    if head == "-":
        return values[0] - sum(values[1:]) if len(values) > 1 else -values[0]
    product = Fraction(1)
    for v in values:
        product *= v
    return product if head == "*" else values[0] / values[1]


def to_text(node) -> str:
    return node if isinstance(node, str) else f"({' '.join(map(to_text, node))})"


def random_term(chance: random.Random, depth: int):
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        return chance.choice(["X_0", "X_1", "Y_0", "Y_1", str(chance.randint(-3, 3)), "0.5", "-1.25"])
    if kind < 0.6:
        return ("*", str(chance.randint(-3, 3)), random_term(chance, depth - 1))
    if kind < 0.7:
        return ("/", random_term(chance, depth - 1), chance.choice(["2", "-4"]))
    return (chance.choice("+-"), *(random_term(chance, depth - 1) for _ in range(chance.randint(1, 3))))


def random_formula(chance: random.Random, depth: int):
    if depth == 0 or chance.random() < 0.3:
        head = chance.choice(["<=", ">=", "<=", ">=", "<", ">", "="])
        return (head, *(random_term(chance, 2) for _ in range(chance.choice([2, 2, 2, 3]))))
    head = chance.choice(["and", "or", "not"])
    return (head, *(random_formula(chance, depth - 1) for _ in range(1 if head == "not" else chance.randint(1, 3))))


def holds(found: Property, at: dict[str, Fraction]) -> bool:
    x = torch.tensor([[float(at[f"X_{i}"]) for i in range(2)]], dtype=torch.float64)
    y = torch.tensor([[float(at[f"Y_{i}"]) for i in range(2)]], dtype=torch.float64)
    return any(bool(found.boxes[c.box].holds(x)) and bool(c.holds(x, y)) for c in found.disjuncts)


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.every(4)
def test_a_formula_agrees_with_a_plain_evaluation(seed: int):
    chance = random.Random(seed)
    bounds = [(">=", f"X_{i}", "-2") for i in range(2)] + [("<=", f"X_{i}", "2") for i in range(2)]
    asserted = [*bounds, *(random_formula(chance, 3) for _ in range(chance.randint(1, 2)))]
    names = "".join(f"(declare-const {n} Real)\n" for n in ("X_0", "X_1", "Y_0", "Y_1"))
    found = parse_vnnlib(names + "\n".join(f"(assert {to_text(a)}) ; one" for a in asserted))
    for _ in range(40):
        at = {n: Fraction(chance.randint(-10, 10), 4) for n in ("X_0", "X_1", "Y_0", "Y_1")}
        assert holds(found, at) == all(truth(a, at) for a in asserted)


def test_the_number_of_disjuncts_is_checked_before_they_are_built(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(terms, "MAX_CLAUSES", 8)
    either = "(assert (or (<= Y_0 0) (>= Y_0 1)))"
    assert len(parse_vnnlib(GOOD.decode() + either * 3).disjuncts) == 8
    with pytest.raises(xl.FileError, match="16 disjuncts"):
        parse_vnnlib(GOOD.decode() + either * 4)


@pytest.mark.parametrize("number", ACAS_SIZES)
def test_the_properties_of_acas_xu_are_read(data: Path, number: str):
    found = read_vnnlib(data / "acasxu" / "vnnlib" / f"prop_{number}.vnnlib")
    assert (found.inputs, found.outputs) == (5, 5)
    assert (len(found.disjuncts), sum(len(c.limit) for c in found.disjuncts)) == ACAS_SIZES[number]
    assert len(found.boxes) == (2 if number == "6" else 1)
    assert all(c.input_weights is None and not bool(c.strict.any()) for c in found.disjuncts)
    assert not any(b.empty for b in found.boxes)


def test_every_property_of_the_published_ones_is_read(data: Path):
    files = sorted(data.rglob("*.vnnlib*"))
    assert len(files) >= 14
    assert all(read_vnnlib(file).disjuncts for file in files)


BOUNDS = [
    "(and (>= X_0 0) (<= X_0 1) (>= X_1 -1) (<= X_1 2.5) (<= Y_0 3))",
    "(and (<= X_0 1) (>= X_0 0) (>= X_1 -1) (<= X_1 2.5) (>= Y_0 -0) (<= Y_1 1e-3))",
    "(and (>= X_0 2) (<= X_0 1) (>= X_1 -1) (<= X_1 2.5) (<= Y_0 3))",
    "(and (>= X_0 0.5) (>= X_0 0.25) (<= X_0 1) (<= X_0 2) (= X_1 -0) (<= Y_1 .5))",
    "( and (>= X_0 -0.0)(<= X_0 +1.)(>= X_1 -1) (<= X_1 2.5))",
]


@pytest.mark.parametrize("chosen", [[0], [0, 1], [2], [0, 2, 1, 0], [4, 0], [3], [0, 3, 1]], ids=str)
def test_a_disjunction_of_bounds_is_read_at_once_and_alike(chosen, monkeypatch):
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    text = names + f"(assert (or {' '.join(BOUNDS[k] for k in chosen)}))\n"
    is_special = 3 not in chosen  # which has an equality
    assert (vnnlib.read_bound_table(text, "") is not None) == is_special
    fast = parse_vnnlib(text).table
    monkeypatch.setattr(vnnlib, "read_bound_table", lambda text, where: None)
    slow = parse_vnnlib(text).table
    for name in ("lower", "upper", "box", "offsets", "output_weights", "limit", "strict"):
        one, two = getattr(fast, name), getattr(slow, name)
        assert one.dtype == two.dtype
        assert torch.equal(one, two), name
        assert torch.equal(1 / one[one == 0], 1 / two[two == 0]), name  # no -0
    assert fast.input_weights == slow.input_weights == {}
