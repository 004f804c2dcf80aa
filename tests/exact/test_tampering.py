"""Certificates of files in which breaks, values, origins or errors were changed: something is not proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import exactline as xl
from exactline.exact import certify
from tests.numerics.networks import make_case

ULPS = 1e4 * 2.0**-52
Tensors = dict[str, Tensor]


def move_value(tensors: Tensors, k: int) -> None:
    tensors["value.0"][k] += 1


def move_value_by_ulps(tensors: Tensors, k: int) -> None:
    tensors["value.0"][k] *= 1 + ULPS


def swap_values(tensors: Tensors, k: int) -> None:
    tensors["value.0"][[k, k + 1]] = tensors["value.0"][[k + 1, k]]


def move_alpha(tensors: Tensors, k: int) -> None:
    tensors["alphas"][k] = tensors["alphas"][k : k + 2].mean()


def drop_break(tensors: Tensors, k: int) -> None:
    for name in ("alphas", "births", "value.0", "errors", "doubts"):
        tensors[name] = torch.cat([tensors[name][:k], tensors[name][k + 1 :]])


def change_unit(tensors: Tensors, k: int) -> None:
    tensors["births"][k, 1] += 1


def swap_origins(tensors: Tensors, k: int) -> None:
    tensors["births"][[k, k + 1]] = tensors["births"][[k + 1, k]]


def shrink_errors(tensors: Tensors, k: int) -> None:
    tensors["errors"] *= 1e-6


CHANGES = (
    *(move_value, move_value_by_ulps, swap_values, move_alpha),
    *(drop_break, change_unit, swap_origins, shrink_errors),
)


def tamper(path: Path, change: Callable[[Tensors, int], None], k: int) -> None:
    """Change the tensors of a file and keep the rest."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    change(tensors, k)
    save_file(tensors, path, metadata=metadata)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_file_are_found(tmp_path, change):
    found = 0
    for seed in range(40):
        case = make_case("random", seed)
        line = xl.restrict(case.model, case.start, case.end)
        if len(line) < 6:
            continue
        columns = (line.origin_table[:, :2], line.stored_values[0])  # pyright: ignore[reportOptionalSubscript]
        if any(bool((column[2] == column[3]).all()) for column in columns):
            continue  # nothing to swap
        path = tmp_path / f"{seed}.safetensors"
        line.save(path)
        assert xl.Restriction.load(path, case.model).certify().complete
        tamper(path, change, 2)
        assert not xl.Restriction.load(path, case.model).certify().complete
        found += 1
        if found == 3:
            break
    assert found == 3


def test_failures_name_origins_and_errors():
    model, origins = torch.nn.ReLU(), torch.tensor([[-1, -1, 0], [1, 1, 1], [-1, -1, 0]])
    start, end, alphas = [-1.0, 1.0], [3.0, 2.0], [0.0, 0.25, 1.0]
    values = [[0.0, 1.0], [0.0, 1.25], [3.0, 2.0 + 1e-15]]
    errors = torch.tensor([1e-15, 1e-15, 1e-18], dtype=torch.float64)
    proof = certify(model, start, end, alphas, values=values, origins=origins, errors=errors)
    assert (proof.origins_checked, proof.origins_proved) == (1, 0)
    assert (proof.errors_checked, proof.errors_proved) == (3, 2)
    assert "1 of 1 breaks are real, 0 of 1 origins are right" in str(proof)
    assert "1 of 3 estimated errors are too small" in str(proof)
    assert "relu unit 1 does not change its activation pattern there" in str(proof)
    with pytest.raises(xl.ArgumentError):
        certify(model, start, end, alphas, origins=origins[:2])
    with pytest.raises(xl.ArgumentError):
        certify(model, start, end, alphas, values=values, errors=errors[:2])
