"""Benchmarks name functions of the package by text: all of these exist."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_parts_of_the_error_model_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    shares = import_module("shares")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten()).double()
    start, end = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    end = start + 0.001 * end  # on a short line the values of estimates serve the sweep, too
    with shares.time_in(shares.ERROR_MODEL) as estimates, shares.time_in(shares.SHARED_VALUES) as values:
        xl.restrict(model, start, end, engine="patches")
    assert 0 < values.spent < estimates.spent
