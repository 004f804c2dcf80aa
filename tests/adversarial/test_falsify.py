"""The falsifier with boxes and files that make no sense, and its counterexamples checked in rationals by other code."""

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

from .truth import mlp, refused


def text_of(bounds: list[tuple[float, float]], *asserts: str, outputs: int = 3) -> str:
    """A property of a box and some constraints."""
    rows = [f"(declare-const X_{i} Real)" for i in range(len(bounds))]
    rows += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    rows += [f"(assert (and (>= X_{i} {low!r}) (<= X_{i} {high!r})))" for i, (low, high) in enumerate(bounds)]
    return "\n".join([*rows, *(f"(assert {a})" for a in asserts)]) + "\n"


def asked(folder: Path, text: str | bytes, name: str = "p.vnnlib") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def weighted(weights: list[float]) -> str:
    return "(+ " + " ".join(f"(* {w!r} Y_{i})" for i, w in enumerate(weights)) + ")"


WIDE = [(-1.0, 1.0), (-1.0, 1.0)]


@pytest.mark.parametrize("seed", range(8))
def test_what_needs_no_tolerance_holds_in_rationals(seed: int, tmp_path: Path):
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
    path = asked(tmp_path, text_of(bounds, f"({'<=' if seed % 2 else '<'} {weighted(weights)} {limit!r})"))
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


def test_boxes_that_hold_no_point_or_one_are_unknown_or_decided(tmp_path: Path):
    model = mlp(2, 6, 3)
    none = xl.falsify(model, asked(tmp_path, text_of(WIDE, "(>= X_0 2)", "(<= Y_0 Y_1)")), lines=50)
    assert (none.answer, none.lines, none.x) == ("unknown", 0, None)
    assert "No point" in none.note
    point = text_of([(0.25, 0.25), (0.5, 0.5)], "(<= Y_0 1000)")
    assert xl.falsify(model, asked(tmp_path, point), lines=50).answer == "sat"
    missed = xl.falsify(model, asked(tmp_path, point.replace("1000", "-1000")), lines=50)
    assert (missed.answer, missed.lines) == ("unknown", 1)


@pytest.mark.parametrize("more", [("(> X_0 0)", "(< X_0 0)"), ("(> X_0 0)", "(<= X_0 0)")])
def test_touching_a_strict_bound_is_not_called_a_violation(more: tuple[str, ...], tmp_path: Path):
    found = xl.falsify(mlp(2, 6, 3), asked(tmp_path, text_of(WIDE, *more, "(<= Y_0 1000)")), lines=50)
    assert found.answer == "unknown"
    assert "violations" not in found.note


def test_boxes_wider_than_any_double_are_refused_and_those_beyond_float32_are_not_called_sat(tmp_path: Path):
    model = mlp(2, 6, 3)
    wide = asked(tmp_path, text_of([(-1.7e308, 1.7e308)] * 2, "(<= Y_0 Y_1)"))
    assert "apart" in refused(xl.ArgumentError, xl.falsify, model, wide, lines=50).problem
    far = asked(tmp_path, text_of([(1e39, 2e39)] * 2, "(<= Y_0 1e60)"))
    assert xl.falsify(model, far, lines=50).answer == "unknown"


def test_line_ends_marks_and_packing_change_nothing(tmp_path: Path):
    model, text = mlp(2, 6, 3), text_of(WIDE, "(<= Y_0 Y_1)")
    plain = xl.falsify(model, asked(tmp_path, text), lines=100, seed=5)
    variants = {
        "crlf.vnnlib": text.replace("\n", "\r\n").encode(),
        "cr.vnnlib": b"\xef\xbb\xbf" + text.replace("\n", "\r").encode(),
        "packed.vnnlib.gz": gzip.compress(text.encode()),
    }
    for name, data in variants.items():
        found = xl.falsify(model, asked(tmp_path, data, name), lines=100, seed=5)
        assert (found.vnncomp(), found.lines, found.pieces) == (plain.vnncomp(), plain.lines, plain.pieces)


def test_a_packed_file_that_grows_without_end_is_refused(tmp_path: Path):
    bomb = asked(tmp_path, gzip.compress(b" " * (257 << 20), 1), "bomb.vnnlib.gz")
    refused(xl.FileError, xl.falsify, mlp(2, 6, 3), bomb, lines=1)


def test_network_and_property_exchanged_or_of_other_sizes_are_refused(tmp_path: Path):
    as_network(mlp(2, 4, 3), [torch.zeros(2)]).save(tmp_path / "n.onnx")
    path = asked(tmp_path, text_of(WIDE, "(<= Y_0 Y_1)"))
    refused(xl.FileError, xl.falsify, path, tmp_path / "n.onnx", lines=1)
    refused(xl.ArgumentError, xl.falsify, mlp(3, 4, 3), path, lines=1, shape=(3,))
    refused(xl.ArgumentError, xl.falsify, nn.Sequential(mlp(2, 4, 3), nn.Linear(3, 2)), path, lines=1)
