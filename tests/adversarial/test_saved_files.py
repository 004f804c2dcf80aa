"""Damaged and foreign files of results are refused, and a failed save leaves an existing file unchanged."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from tests.adversarial.truth import (
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


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.5, 0.99])
@pytest.mark.every(3)
def test_a_truncated_file_is_refused(tmp_path, keep):
    _, path = save_a_line(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    assert_refused(xl.FileError, xl.Restriction.load, path)


def test_foreign_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    weights = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(3)}, weights)
    tagged = tmp_path / "tagged.safetensors"
    save_file({"alphas": torch.zeros(3)}, tagged, metadata={"format": "exactline.restriction.1", "facts": "{}"})
    contents = {
        "text": b"alpha,value\n0,1\n",
        "zip": b"PK\x03\x04" + bytes(64),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "header": (2**62).to_bytes(8, "little") + b"{}",
        "json": (2).to_bytes(8, "little") + b"[]",
        "nested": (20000).to_bytes(8, "little") + b"[" * 20000,
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for path in (weights, tagged, *(tmp_path / name for name in contents)):
        assert_refused(xl.FileError, xl.Restriction.load, path)


@pytest.mark.parametrize(
    "facts", ["[]", "3", "null", '"text"', "{", '{"values": true}', '{"values": true, "names": 5}', '{"surprise": 1}']
)
@pytest.mark.every(3)
def test_files_with_damaged_facts_are_refused(tmp_path, facts):
    from safetensors.torch import load_file, save_file

    _, path = save_a_line(tmp_path)
    tensors = load_file(path)
    save_file(tensors, path, metadata={"format": "exactline.restriction.1", "facts": facts})
    assert_refused(xl.FileError, xl.Restriction.load, path)


@pytest.mark.parametrize("damage", ["short", "shape", "dtype", "lost", "nan"])
def test_files_with_damaged_arrays_are_refused(tmp_path, damage):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    _, path = save_a_line(tmp_path)
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    if damage == "short":
        tensors["value.0"] = tensors["value.0"][:-1].clone()
    elif damage == "shape":
        tensors["births"] = tensors["births"].flatten()
    elif damage == "dtype":
        tensors["alphas"] = tensors["alphas"].to(torch.int64)
    elif damage == "lost":
        del tensors["start.0"]
    else:
        tensors["alphas"][1] = float("nan")
    save_file(tensors, path, metadata=metadata)
    assert_refused(xl.FileError, xl.Restriction.load, path)


def test_missing_files_and_folders_are_refused(tmp_path):
    line, _ = save_a_line(tmp_path)
    assert_refused(xl.FileError, xl.Restriction.load, tmp_path / "nothing")
    assert_refused(xl.FileError, xl.Restriction.load, tmp_path)
    assert_refused(xl.FileError, xl.Restriction.load, tmp_path / "line.safetensors" / "inside")
    assert_refused(xl.FileError, line.save, tmp_path / "no" / "folder" / "x")
    assert_refused(xl.FileError, line.save, tmp_path)
    assert_refused(xl.FileError, line.save, "")
    assert_refused(xl.FileError, line.save, "/proc/nothing/x")
    assert_refused(xl.FileError, line.save, "nul\0byte")
    assert_refused(xl.FileError, xl.Restriction.load, "nul\0byte")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["line.safetensors"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.every(2)
def test_a_failed_save_does_not_change_an_existing_file(tmp_path, monkeypatch, step):
    line, path = save_a_line(tmp_path)
    before = path.read_bytes()
    other = xl.restrict(tent(10), [0.0], [1.0])

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write":  # a real failure: the process may not write files of this size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            assert_refused(xl.FileError, other.save, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    else:
        monkeypatch.setattr(os, step, fail)
        error = assert_refused(xl.FileError, other.save, path)
        assert "No space left" in error.problem
        monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["line.safetensors"]
    assert torch.equal(xl.Restriction.load(path).alphas, line.alphas)


def test_an_interrupt_while_saving_does_not_change_an_existing_file(tmp_path, monkeypatch):
    _, path = save_a_line(tmp_path)
    before = path.read_bytes()

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        xl.restrict(nn.ReLU(), START, END).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["line.safetensors"]


def test_a_saved_file_has_the_permissions_of_any_new_file(tmp_path):
    _, path = save_a_line(tmp_path)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
