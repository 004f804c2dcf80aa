"""Saved results load completely, with the network they belong to and with no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from tests.adversarial.truth import (
    Function,
    assert_refused,
    mlp,
    tent,
    vector,
)

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


def save_a_line(tmp_path: Path, model: nn.Module | None = None, **options) -> tuple[xl.Restriction, Path]:
    line = xl.restrict(model or mlp(3, 8, 8, 2), START, END, **options)
    path = tmp_path / "line.safetensors"
    line.save(path)
    return line, path


def test_a_saved_line_loads_completely(tmp_path):
    model = mlp(3, 8, 8, 2)
    line, path = save_a_line(tmp_path, model)
    for loaded in (xl.Restriction.load(path), xl.Restriction.load(str(path), model)):
        assert torch.equal(loaded.alphas, line.alphas)
        assert torch.equal(loaded.values, line.values)
        assert torch.equal(loaded.points, line.points)
        assert list(loaded.origins) == list(line.origins)
        assert loaded.ambiguous_per_piece.tolist() == line.ambiguous_per_piece.tolist()
        assert (loaded.units, loaded.error, loaded.stopped, loaded.complete) == (line.units, line.error, "", True)
        assert loaded.status == line.status == "exact"
        assert str(loaded) == str(replace(line, setup_seconds=0.0))  # the file is no first use of a model
        assert torch.equal(loaded.at(0.3), line.at(0.3))
    loaded = xl.Restriction.load(path, model)
    assert torch.equal(loaded.piece(1).affine()[0], line.piece(1).affine()[0])
    assert loaded.certify().covers_whole_line
    assert loaded.check(samples=5).worst <= 1e-12
    assert_refused(xl.MissingError, xl.Restriction.load(path).piece, 0)
    assert_refused(xl.MissingError, xl.Restriction.load(path).certify)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["line.safetensors"]


def test_lines_of_every_kind_can_be_saved_and_loaded(tmp_path):
    path = tmp_path / "x"
    two = Function(lambda x, y: (torch.relu(x) + y, torch.relu(y).amax(1)))
    kinds = [
        xl.restrict(mlp(3, 8, 2), START, END, values=False),
        xl.restrict(two, (START, START.flip(0)), (END, END.flip(0))),
        xl.restrict(tent(9), [0.0], [1.0], max_breaks=7),
        xl.restrict(mlp(3, 8, 2), START, END).minimal(),
        xl.restrict(nn.ReLU(), torch.zeros(2, 0), torch.zeros(2, 0)),
        xl.restrict(nn.ReLU(), -1.0, 1.0),
        next(iter(xl.sweep(tent(5), [0.0], [1.0], memory=1))),
    ]
    for line in kinds:
        line.save(path)
        loaded = xl.Restriction.load(path)
        assert torch.equal(loaded.alphas, line.alphas)
        assert (loaded.stored_values is None) == (line.stored_values is None)
        assert all(torch.equal(a, b) for a, b in zip(loaded.stored_values or (), line.stored_values or (), strict=True))
        facts = ("stopped", "complete", "is_minimal", "several_inputs", "several_outputs", "names", "units")
        assert [getattr(loaded, f) for f in facts] == [getattr(line, f) for f in facts]
        assert str(loaded) == str(replace(line, setup_seconds=0.0))  # the file is no first use of a model


@pytest.mark.parametrize("options", [{"rewrite": False}, {"until": "1"}, {"dtype": torch.float32}], ids=str)
def test_a_line_restricted_with_options_can_be_loaded_with_its_model(tmp_path, options):
    model = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 2)).eval()
    line = xl.restrict(model, torch.randn(1, 5) * 3, torch.randn(1, 5) * 3, **options)
    line.save(tmp_path / "x")
    loaded = xl.Restriction.load(tmp_path / "x", model)
    assert torch.equal(loaded.piece(0).affine()[0], line.piece(0).affine()[0])


def test_a_file_with_another_model_is_refused(tmp_path):
    _, path = save_a_line(tmp_path, mlp(3, 8, 8, 2))
    assert_refused(xl.FileError, xl.Restriction.load, path, mlp(3, 8, 2))
    assert_refused(xl.ExactlineError, xl.Restriction.load, path, mlp(4, 8, 8, 2))


def test_a_file_with_the_same_model_of_other_weights_is_refused(tmp_path):
    _, path = save_a_line(tmp_path, mlp(3, 8, 8, 2))
    assert_refused(xl.FileError, xl.Restriction.load, path, mlp(3, 8, 8, 2))
