"""Tests of the falsifier with degenerate boxes and files; counterexamples are checked in rational arithmetic."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network

from .truth import assert_refused, mlp


def make_text(bounds: list[tuple[float, float]], *asserts: str, outputs: int = 3) -> str:
    """A property of a box and some constraints."""
    rows = [f"(declare-const X_{i} Real)" for i in range(len(bounds))]
    rows += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    rows += [f"(assert (and (>= X_{i} {low!r}) (<= X_{i} {high!r})))" for i, (low, high) in enumerate(bounds)]
    return "\n".join([*rows, *(f"(assert {a})" for a in asserts)]) + "\n"


def write_property(folder: Path, text: str | bytes, name: str = "p.vnnlib") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def weighted_sum(weights: list[float]) -> str:
    return "(+ " + " ".join(f"(* {w!r} Y_{i})" for i, w in enumerate(weights)) + ")"


WIDE = [(-1.0, 1.0), (-1.0, 1.0)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.every(2)
def test_strict_counterexamples_hold_in_rational_arithmetic(seed: int, tmp_path: Path):
    """A constraint near its minimum on the box, so that many counterexamples are narrow."""
    ort = pytest.importorskip("onnxruntime")
    numbers = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = mlp(3, 6, 3)
    as_network(model, [torch.zeros(3)]).save(tmp_path / "n.onnx")
    low = (numbers.integers(-8, 0, 3) / 8).tolist()
    bounds = [(a, a + b / 8) for a, b in zip(low, numbers.integers(1, 8, 3).tolist(), strict=True)]
    weights = (numbers.integers(1, 4, 3) * 0.1).tolist()
    lower, upper = np.array(bounds).T
    inside = torch.tensor(numbers.uniform(lower, upper, (2000, 3)), dtype=torch.float32)
    with torch.no_grad():
        limit = float((model(inside).double().numpy() @ weights).min())
    path = write_property(
        tmp_path, make_text(bounds, f"({'<=' if seed % 2 else '<'} {weighted_sum(weights)} {limit!r})")
    )
    found = xl.falsify(tmp_path / "n.onnx", path, lines=500, seed=seed)
    assert found.answer == "sat"
    assert found.strict
    said = dict(row.strip("() ").split() for row in found.vnncomp().splitlines()[1:])
    x, y = ([float(said[f"{kind}_{i}"]) for i in range(3)] for kind in "XY")
    assert all(Fraction(a) <= Fraction(v) <= Fraction(b) for v, (a, b) in zip(x, bounds, strict=True))
    total = sum((Fraction(w) * Fraction(v) for w, v in zip(weights, y, strict=True)), Fraction(0))
    assert total <= Fraction(limit)
    session = ort.InferenceSession(str(tmp_path / "n.onnx"))
    (given,) = session.get_inputs()
    (theirs,) = session.run(None, {given.name: np.array([x], dtype=np.float32)})
    assert np.abs(theirs.reshape(-1) - y).max() <= 1e-6


def test_empty_boxes_are_unknown_and_single_points_are_decided(tmp_path: Path):
    model = mlp(2, 6, 3)
    none = xl.falsify(model, write_property(tmp_path, make_text(WIDE, "(>= X_0 2)", "(<= Y_0 Y_1)")), lines=50)
    assert (none.answer, none.lines, none.x) == ("unknown", 0, None)
    assert "No point" in none.note
    point = make_text([(0.25, 0.25), (0.5, 0.5)], "(<= Y_0 1000)")
    assert xl.falsify(model, write_property(tmp_path, point), lines=50).answer == "sat"
    missed = xl.falsify(model, write_property(tmp_path, point.replace("1000", "-1000")), lines=50)
    assert (missed.answer, missed.lines) == ("unknown", 1)


@pytest.mark.parametrize("more", [("(> X_0 0)", "(< X_0 0)"), ("(> X_0 0)", "(<= X_0 0)")])
def test_touching_a_strict_bound_is_not_called_a_violation(more: tuple[str, ...], tmp_path: Path):
    found = xl.falsify(mlp(2, 6, 3), write_property(tmp_path, make_text(WIDE, *more, "(<= Y_0 1000)")), lines=50)
    assert found.answer == "unknown"
    assert "violations" not in found.note


def test_boxes_wider_than_a_double_are_refused_and_boxes_beyond_float32_are_unknown(tmp_path: Path):
    model = mlp(2, 6, 3)
    wide = write_property(tmp_path, make_text([(-1.7e308, 1.7e308)] * 2, "(<= Y_0 Y_1)"))
    assert "apart" in assert_refused(xl.ArgumentError, xl.falsify, model, wide, lines=50).problem
    far = write_property(tmp_path, make_text([(1e39, 2e39)] * 2, "(<= Y_0 1e60)"))
    assert xl.falsify(model, far, lines=50).answer == "unknown"


def test_line_endings_byte_order_marks_and_gzip_change_nothing(tmp_path: Path):
    model, text = mlp(2, 6, 3), make_text(WIDE, "(<= Y_0 Y_1)")
    plain = xl.falsify(model, write_property(tmp_path, text), lines=100, seed=5)
    variants = {
        "crlf.vnnlib": text.replace("\n", "\r\n").encode(),
        "cr.vnnlib": b"\xef\xbb\xbf" + text.replace("\n", "\r").encode(),
        "packed.vnnlib.gz": gzip.compress(text.encode()),
    }
    for name, data in variants.items():
        found = xl.falsify(model, write_property(tmp_path, data, name), lines=100, seed=5)
        assert (found.vnncomp(), found.lines, found.pieces) == (plain.vnncomp(), plain.lines, plain.pieces)


def test_a_gzip_bomb_is_refused(tmp_path: Path):
    bomb = write_property(tmp_path, gzip.compress(b" " * (257 << 20), 1), "bomb.vnnlib.gz")
    assert_refused(xl.FileError, xl.falsify, mlp(2, 6, 3), bomb, lines=1)


def test_swapped_arguments_and_other_sizes_are_refused(tmp_path: Path):
    as_network(mlp(2, 4, 3), [torch.zeros(2)]).save(tmp_path / "n.onnx")
    path = write_property(tmp_path, make_text(WIDE, "(<= Y_0 Y_1)"))
    assert_refused(xl.FileError, xl.falsify, path, tmp_path / "n.onnx", lines=1)
    assert_refused(xl.ArgumentError, xl.falsify, mlp(3, 4, 3), path, lines=1, shape=(3,))
    assert_refused(xl.ArgumentError, xl.falsify, nn.Sequential(mlp(2, 4, 3), nn.Linear(3, 2)), path, lines=1)
