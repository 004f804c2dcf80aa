"""What every test here is held against: the rational oracle, the module itself, or a typed error."""

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

TINY = 2 * 5e-324  # where numbers are subnormal, a rounding is one of these
CLOSE = 1e-9  # of the largest value on the line: wrong maps are off by far more, rounding by far less

tent = cache(tent_network)  # for whoever does not change it: a module is captured once


def dense(weight: Sequence[Sequence[float]] | Tensor, bias: Sequence[float] | Tensor | None = None) -> nn.Linear:
    """A float64 linear layer with these numbers."""
    w = torch.as_tensor(weight, dtype=torch.float64)
    layer = nn.Linear(w.shape[1], w.shape[0], bias=bias is not None, device="meta", dtype=torch.float64)
    layer.weight = nn.Parameter(w.clone())
    if bias is not None:
        layer.bias = nn.Parameter(torch.as_tensor(bias, dtype=torch.float64).clone())
    return layer


def relus(*layers: nn.Module) -> nn.Sequential:
    """Layers with a ReLU between neighbours, none after the last."""
    between = [part for layer in layers for part in (layer, nn.ReLU())]
    return nn.Sequential(*between[:-1]).eval()


def mlp(*widths: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A random ReLU network of these widths."""
    return relus(*(nn.Linear(a, b, bias=bias, dtype=dtype) for a, b in pairwise(widths)))


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)


def points(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def breaks(line: Restriction) -> list[float]:
    return line.alphas.tolist()


def right(model: Any, Q: Any, R: Any, *, close: float = CLOSE, forward: bool = True, **options: Any) -> Restriction:
    """Restrict, and compare breaks and values with the oracle and, where it is one, with the module's own forward."""
    line = xl.restrict(model, Q, R, **options)
    is_right(line, model, Q, R, close=close, forward=forward, **_graph(options))
    return line


def is_right(
    line: Restriction, model: Any, Q: Any, R: Any, *, close: float = CLOSE, forward: bool = True, **options: Any
) -> None:
    """The breaks are the oracle's, the values are the oracle's and the module's, births are complete."""
    exact = xl.exact.restrict(model, Q, R, **options)
    wrong = mismatch(line.alphas, exact)
    assert wrong is None, f"{wrong}\n{line}\nunresolved {line.ambiguous}"
    kept = line.values if isinstance(line.values, tuple) else (line.values,)
    for number, values in enumerate(kept):
        truth = _exact_values(exact, line.alphas, number).reshape(values.shape)
        scale = max(float(truth.abs().max()), 0.0) if truth.numel() else 0.0
        assert torch.isfinite(values).all()
        assert (values - truth).abs().le(close * scale + line.error).all(), f"output {number}: {values} is not {truth}"
    assert [line.origins[0], line.origins[-1]] == [None, None]
    assert all(birth is not None and birth.count >= 1 for birth in line.origins[1:-1])
    if forward and isinstance(model, nn.Module):
        follows_the_module(line, model, close=close)


def is_right_or_says_so(model: Any, Q: Any, R: Any, **options: Any) -> Restriction:
    """Where float64 cannot tell: either the breaks are the oracle's, or units are counted as unresolved."""
    line = xl.restrict(model, Q, R, **options)
    wrong = mismatch(line.alphas, xl.exact.restrict(model, Q, R, **_graph(options)))
    assert wrong is None or line.ambiguous > 0, f"{wrong}, and nothing is counted as unresolved"
    return line


def follows_the_module(line: Restriction, model: nn.Module, *, close: float = CLOSE) -> None:
    """At breaks and midpoints the answer is what the module itself computes in float64."""
    twin = copy.deepcopy(model).double() if any(True for _ in model.parameters()) else model
    alphas = torch.cat([line.alphas, (line.alphas[1:] + line.alphas[:-1]) / 2])
    starts, ends = line.lines.starts, line.lines.ends
    xs = [_lerp(a, b, alphas) for a, b in zip(starts, ends, strict=True)]
    with torch.no_grad():
        theirs = twin(*xs)
    ours = line.at(alphas, tail=True)
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    for mine, their in pairs:
        assert mine.shape == their.shape
        if their.numel():
            allowed = close * their.abs().max() + 16 * line.error + TINY  # their own rounding too
            assert (mine - their).abs().max() <= allowed, f"{mine} is not {their}"


def same_line(one: Restriction, other: Restriction, *, apart: float = 1e-12) -> None:
    """The same number of breaks, each in the same place, and the same values."""
    assert len(one) == len(other), f"{len(one)} pieces against {len(other)}"
    assert (one.alphas - other.alphas).abs().max() <= apart
    if one.stored_values is not None and other.stored_values is not None:
        for a, b in zip(one.stored_values, other.stored_values, strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-9 * float(a.abs().max()) if a.numel() else 0.0)


def refused(kind: type[xl.ExactlineError], call: Callable[..., Any], *args: Any, **options: Any) -> xl.ExactlineError:
    """The call raises this kind of typed error, complete with problem, place and advice."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    error = caught.value
    assert error.problem.strip()
    assert error.where.strip()
    assert error.hint.strip()
    return error


def settings() -> tuple[Any, ...]:
    """Everything global that a call could leave behind changed."""
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


def _graph(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k in ("rewrite", "until")}
