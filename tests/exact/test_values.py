"""A certificate must prove correct values, and find every value that rounding cannot explain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline import exact
from exactline.errors import ArgumentError
from exactline.ops.functions import relu
from tests.oracle.families import FAMILIES, seeded, small_integers

from .networks import chain, linear, mlp


def double(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_line(dtype: torch.dtype = torch.float64, *, last: nn.Module | None = None) -> tuple[nn.Module, xl.Restriction]:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4)]
    model = nn.Sequential(*layers, *([] if last is None else [last])).double().eval()
    start, end = double(2, 3) * 2
    return model, xl.restrict(model, start, end, dtype=dtype)


def move(line: xl.Restriction, index: int, element: int, by: float, output: int = 0) -> xl.Restriction:
    """Change one stored value."""
    assert line.stored_values is not None
    values = [v.clone() for v in line.stored_values]
    values[output].view(len(line.alphas), -1)[index, element] += by
    return replace(line, stored_values=tuple(values))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.every(3)
def test_values_of_both_engines_are_proved(family: str, engine: str):
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        model, shape = FAMILIES[family](generator)
        if seed:
            small_integers(generator, model, most=2)
            start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
        else:
            seeded(model, generator)
            start, end = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * 2
        try:
            line = xl.restrict(model, start, end, engine=engine)
        except xl.ArgumentError:
            continue  # patches do not know this operator
        proof = line.certify(4)
        assert proof.complete, (seed, str(proof))
        assert proof.covers_values
        assert proof.max_value_error <= 1e-10 * float(line.stored_values[0].abs().max())  # type: ignore[index]


@pytest.mark.parametrize("last", [None, nn.Softmax(-1)], ids=["logits", "softmax"])
def test_every_value_that_is_moved_is_found(tmp_path: Path, last: nn.Module | None):
    model, line = make_line(last=last)
    assert line.certify().covers_values
    count = len(line.alphas)
    for index in (0, 1, count // 2, count - 2, count - 1):
        for by in (1.0, -1e-6 * float(line.values[index, 2].abs())):  # type: ignore[call-overload]
            moved = move(line, index, 2, by)
            moved.save(tmp_path / "line.safetensors")
            proof = xl.Restriction.load(tmp_path / "line.safetensors", model).certify()
            assert not proof.complete
            assert (proof.proved, proof.confirmed) == (proof.checked, proof.breaks)
            assert (proof.values_checked, proof.values_proved) == (4 * count, 4 * count - 1)
            assert len(proof.failures) == 1
            assert proof.failures[0].startswith(
                f"value at break {index}, alpha {float(line.alphas[index])!r}: element 2 "
            )
    everywhere = replace(line, stored_values=tuple(v + 1 for v in line.stored_values or ()))
    assert everywhere.certify().values_proved == 0


def test_values_that_are_not_finite_are_found():
    _, line = make_line()
    for value in (float("nan"), float("inf")):
        proof = move(line, 1, 0, value).certify()
        assert proof.values_proved == proof.values_checked - 1
        assert "off by inf" in proof.failures[0]


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_values_of_float32_are_compared_within_its_rounding(engine: str):
    model, _ = make_line()
    line = xl.restrict(model, *double(2, 3) * 2, dtype=torch.float32, engine=engine)
    proof = line.certify()
    assert proof.values_checked == proof.values_proved == 4 * len(line.alphas)
    assert 1e-12 < proof.max_value_error < 1e-5
    assert line.stored_values is not None
    for by in (1.0, 1e-2 * float(line.stored_values[0].abs().max())):
        assert move(line, 2, 1, by).certify().values_proved == proof.values_checked - 1


def test_values_of_several_outputs_are_told_apart():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.first(x).relu()
            return hidden, self.last(hidden)

    torch.manual_seed(1)
    line = xl.restrict(Both().double().eval(), *double(2, 3) * 3)
    assert line.certify().covers_values
    proof = move(line, 1, 0, 1e-6, output=1).certify()
    assert proof.values_proved == proof.values_checked - 1
    assert "element 0 of output 1 is off by 1.0e-06" in proof.failures[0]


def test_only_values_next_to_checked_pieces_are_compared():
    _, line = make_line()
    proof = line.certify([0])
    assert proof.values_checked == 2 * 4
    assert move(line, 0, 0, 1.0).certify([0]).values_proved == 7
    assert move(line, 3, 0, 1.0).certify([0]).complete


def test_a_line_without_values_says_that_they_were_not_checked():
    model, line = make_line()
    bare = xl.restrict(model, *double(2, 3) * 2, values=False)
    proof = bare.certify()
    assert proof.complete
    assert not proof.covers_values
    assert (proof.values_checked, proof.values_unchecked) == (0, 0)
    assert str(proof).endswith("; values were not checked")
    assert f"{4 * len(line.alphas)} of {4 * len(line.alphas)} values are right, at most " in str(line.certify())


def test_elements_beyond_the_limit_are_counted():
    network = chain((2,), linear(double(600, 2), double(600)))
    line = xl.restrict(network, [0.0, 0.0], [1.0, 1.0])
    proof = line.certify()
    assert proof.complete
    assert (proof.values_checked, proof.values_unchecked) == (2 * 256, 2 * 344)
    assert not proof.covers_values
    assert str(proof).endswith("; 688 values were not checked")
    assert not move(line, 1, 599, 1.0).certify().complete  # the last element is among those checked


def test_a_value_between_two_exact_breaks_is_compared_with_the_network_there():
    # both units cross within the tolerance of 0.5: neither neighbour's pattern holds at the stored break
    width = 2.0**-42
    network = chain((1,), linear([[1.0], [1.0]], [-0.5 + width, -0.5 - width]), relu())
    values = np.array([[0.0, 0.0], [width, 0.0], [0.5 + width, 0.5 - width]])
    proof = exact.certify(network, [0.0], [1.0], [0.0, 0.5, 1.0], values=values)
    assert (proof.merged, proof.values_checked, proof.values_proved) == (1, 6, 6)
    assert proof.max_value_error == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_rounded_exact_values_are_proved(seed: int):
    torch.manual_seed(seed)
    network, (start, end) = mlp([3, 8, 8, 2]), double(2, 3, seed=seed) * 3
    truth = exact.restrict(network, start, end)
    alphas = [float(a) for a in truth.alphas]
    rows = [[float(v) for v in truth.value(a)] for a in alphas]
    proof = exact.certify(network, start, end, alphas, values=rows)
    assert proof.covers_values
    assert proof.max_value_error <= 2.0**-53 * max(abs(v) for row in rows for v in row)


@pytest.mark.parametrize("values", [[[0.0], [1.0]], [[0.0, 0.0], [0.25, 0.0], [1.0, 0.0]], [0.0, 1.0, 2.0]])
def test_values_of_another_shape_raise_an_error(values: list[object]):
    with pytest.raises(ArgumentError, match="shapes"):
        exact.certify(chain((1,), relu()), [-1.0], [3.0], [0.0, 0.25, 1.0], values=values)
