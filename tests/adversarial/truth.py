"""Shared helpers: small networks, and comparisons with the rational oracle, the module itself or a typed error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline import Restriction
from exactline.zoo import tent_network
from tests.oracle.compare import mismatch

SUBNORMAL_SLACK = 2 * 5e-324  # absolute rounding error of subnormal numbers
RELATIVE_TOLERANCE = 1e-9  # relative to the largest value on the line: far above rounding, far below a wrong affine map

tent = cache(tent_network)  # one module for all tests that do not change it, so that it is captured once


def linear_layer(weight: Sequence[Sequence[float]] | Tensor, bias: Sequence[float] | Tensor | None = None) -> nn.Linear:
    """A float64 linear layer with given weights."""
    w = torch.as_tensor(weight, dtype=torch.float64)
    layer = nn.Linear(w.shape[1], w.shape[0], bias=bias is not None, device="meta", dtype=torch.float64)
    layer.weight = nn.Parameter(w.clone())
    if bias is not None:
        layer.bias = nn.Parameter(torch.as_tensor(bias, dtype=torch.float64).clone())
    return layer


def relu_network(*layers: nn.Module) -> nn.Sequential:
    """Layers with a ReLU between neighbours and none after the last."""
    modules = [module for layer in layers for module in (layer, nn.ReLU())]
    return nn.Sequential(*modules[:-1]).eval()


def mlp(*widths: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A random ReLU network with layers of the given widths."""
    return relu_network(*(nn.Linear(a, b, bias=bias, dtype=dtype) for a, b in pairwise(widths)))


class Function(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def breaks(line: Restriction) -> list[float]:
    return line.alphas.tolist()


def restrict_and_verify(
    model: Any, start: Any, end: Any, *, tolerance: float = RELATIVE_TOLERANCE, forward: bool = True, **options: Any
) -> Restriction:
    """Restrict, and compare the line with the rational oracle and, if the model is a module, with its forward pass."""
    line = xl.restrict(model, start, end, **options)
    assert_matches_oracle(line, model, start, end, tolerance=tolerance, forward=forward, **_capture_options(options))
    return line


def assert_matches_oracle(
    line: Restriction,
    model: Any,
    start: Any,
    end: Any,
    *,
    tolerance: float = RELATIVE_TOLERANCE,
    forward: bool = True,
    **options: Any,
) -> None:
    """Breaks and values are those of the rational oracle, values also those of the module; origins are complete."""
    exact = xl.exact.restrict(model, start, end, **options)
    wrong = mismatch(line.alphas, exact)
    assert wrong is None, f"{wrong}\n{line}\nambiguous {line.ambiguous}"
    outputs = line.values if isinstance(line.values, tuple) else (line.values,)
    for number, values in enumerate(outputs):
        truth = _exact_values(exact, line.alphas, number).reshape(values.shape)
        scale = max(float(truth.abs().max()), 0.0) if truth.numel() else 0.0
        assert torch.isfinite(values).all()
        assert (values - truth).abs().le(tolerance * scale + line.error).all(), (
            f"output {number}: {values} is not {truth}"
        )
    assert [line.origins[0], line.origins[-1]] == [None, None]
    assert all(origin is not None and origin.count >= 1 for origin in line.origins[1:-1])
    if forward and isinstance(model, nn.Module):
        assert_matches_module(line, model, tolerance=tolerance)


def assert_exact_or_ambiguous(model: Any, start: Any, end: Any, **options: Any) -> Restriction:
    """Where rounding may hide a crossing: the breaks are those of the oracle, or some units are ambiguous."""
    line = xl.restrict(model, start, end, **options)
    wrong = mismatch(line.alphas, xl.exact.restrict(model, start, end, **_capture_options(options)))
    assert wrong is None or line.ambiguous > 0, f"{wrong}, and no unit is ambiguous"
    return line


def assert_matches_module(line: Restriction, model: nn.Module, *, tolerance: float = RELATIVE_TOLERANCE) -> None:
    """At breaks and midpoints the line has the values that the module itself computes in float64."""
    double = copy.deepcopy(model).double() if any(True for _ in model.parameters()) else model
    alphas = torch.cat([line.alphas, (line.alphas[1:] + line.alphas[:-1]) / 2])
    starts, ends = line.lines.starts, line.lines.ends
    xs = [_lerp(a, b, alphas) for a, b in zip(starts, ends, strict=True)]
    with torch.no_grad():
        expected = double(*xs)
    values = line.at(alphas, tail=True)
    pairs = zip(values, expected, strict=True) if isinstance(values, tuple) else [(values, expected)]
    for ours, theirs in pairs:
        assert ours.shape == theirs.shape
        if theirs.numel():
            allowed = tolerance * theirs.abs().max() + 16 * line.error + SUBNORMAL_SLACK  # the module rounds too
            assert (ours - theirs).abs().max() <= allowed, f"{ours} is not {theirs}"


def assert_same_line(one: Restriction, other: Restriction, *, tolerance: float = 1e-12) -> None:
    """Both lines have the same breaks and the same values."""
    assert len(one) == len(other), f"{len(one)} pieces against {len(other)}"
    assert (one.alphas - other.alphas).abs().max() <= tolerance
    if one.stored_values is not None and other.stored_values is not None:
        for a, b in zip(one.stored_values, other.stored_values, strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-9 * float(a.abs().max()) if a.numel() else 0.0)


def assert_refused(
    kind: type[xl.ExactlineError], call: Callable[..., Any], *args: Any, **options: Any
) -> xl.ExactlineError:
    """The call raises a typed error of this kind, with problem, where and hint; returns it."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    error = caught.value
    assert error.problem.strip()
    assert error.where.strip()
    assert error.hint.strip()
    return error


def global_settings() -> tuple[Any, ...]:
    """All global settings that a call must leave unchanged."""
    import sys
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        precision = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    tiny = torch.tensor([1e-310], dtype=torch.float64, device="cpu")
    return (
        *precision,
        float(tiny * 1.0) == 0.0,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.random.get_rng_state().sum().item(),
        id(sys.stdout),
        id(sys.stderr),
        len(warnings.filters),
    )


def _exact_values(exact: xl.exact.ExactRestriction, alphas: Tensor, output: int) -> Tensor:
    rows = [[float(v) for v in exact.value(Fraction(a), output)] for a in alphas.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _lerp(start: Tensor, end: Tensor, alphas: Tensor) -> Tensor:
    part = alphas.view(-1, *[1] * (start.dim() - 1))
    return start * (1 - part) + end * part


def _capture_options(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k in ("rewrite", "until")}
