"""Tests of decisions, extrema and level sets with hostile arguments, and against planes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl

from .region_oracle import winding_numbers
from .truth import Function, assert_refused, mlp, vector


def line_of(model: nn.Module) -> xl.Restriction:
    return xl.restrict(model, vector(-1.0, -1.0), vector(1.0, 1.0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ["max", "min"])
@pytest.mark.every(3)
def test_decisions_of_a_line_in_a_plane_agree_with_the_plane(seed: int, order: str):
    torch.manual_seed(seed)
    model = mlp(3, 10, 10, 5, dtype=torch.float64)
    plane = xl.restrict_plane(model, torch.randn(3, 3, dtype=torch.float64) * 2)
    start, stop = torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.0, 0.5]], dtype=torch.float64) @ plane.outline
    ends = plane.lift(torch.stack([start, stop]))
    assert isinstance(ends, Tensor)
    one, two = plane.line(start, stop).decisions(order), xl.restrict(model, *ends).decisions(order)
    assert one.labels == two.labels
    assert torch.allclose(one.boundaries, two.boundaries, rtol=0, atol=1e-12)
    for interval in two:
        place = (start + (stop - start) * (interval.start + interval.stop) / 2)[None]
        here = [r for r in plane.decisions(order) if sum(int(winding_numbers(ring, place)) for ring in r.rings) == 1]
        assert [r.label for r in here] == [interval.label]


def test_three_outputs_tied_along_pieces_at_every_rank():
    model = Function(lambda x: torch.stack([x[:, 0], x[:, 0] * 1.0, x[:, 0], x[:, 1]], 1))
    line = xl.restrict(model, vector(1.0, 0.0), vector(1.0, 2.0))
    intervals = [(i.start, i.stop, i.label, i.tied) for i in line.decisions()]
    assert intervals == [(0.0, 0.5, 0, (0, 1, 2)), (0.5, 1.0, 3, ())]
    assert [(i.label, i.tied) for i in line.decisions(top=3)] == [((0, 1, 2), (0, 1, 2)), ((3, 0, 1), (0, 1, 2))]
    assert [(i.label, i.tied) for i in line.decisions("min")] == [(3, ()), (0, (0, 1, 2))]


@pytest.mark.parametrize("alpha", [float("nan"), -1e-9, 1 + 1e-9, None, "x", [0.5, 0.6]])
def test_alphas_off_the_line_are_refused(alpha: Any):
    assert_refused(xl.ArgumentError, line_of(mlp(2, 4, 3, dtype=torch.float64)).decisions().at, alpha)


def test_empty_outputs_have_no_decisions_and_no_extrema():
    line = line_of(nn.Sequential(nn.ReLU(), Function(lambda x: x[:, :0])))
    assert_refused(xl.ArgumentError, line.decisions)
    assert_refused(xl.ArgumentError, line.extrema, [])
    assert_refused(xl.ArgumentError, line.level, [], 0.0)
