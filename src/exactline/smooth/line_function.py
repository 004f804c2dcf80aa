"""A model on one line: its outputs as functions of alpha, its kinks, and samples of its rounding error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..errors import CaptureError, NumberError, UnsupportedError
from ..fp_context import full_precision
from ..lines import Lines
from ..network.traced_node import operator_name
from .kinks import KinkRecorder, OperatorTrace, TraceRecorder, Watched, batch_dim, find_batch_dims
from .model import SmoothModel
from .program import describe_running_node
from .rounding import RoundingNoise
from .tolerances import REPEAT_TOLERANCE

INSPECTED_ALPHAS = (0.21, 0.55, 0.87)  # where a model is checked before its first piece
BYTES_PER_NUMBER = 8
MAX_BATCH_POINTS = 4096  # evaluated together, however little memory they need


@dataclass(frozen=True)
class Inspection:
    """What is learnt of a model before its first piece, from evaluations of two and of three points."""

    shapes: tuple[tuple[int, ...], ...]  # of each output for one point
    batch_dims: tuple[int | None, ...]  # for each call of an operator with kinks, the dimension that counts points
    bytes_per_point: int  # in the results of all operators

    @property
    def has_kinks(self) -> bool:
        """Whether an operator that depends on the input has kinks."""
        return any(d is not None for d in self.batch_dims)

    def batch_points(self, memory: int) -> int:
        """The number of points that are evaluated together within some bytes."""
        return int(np.clip(memory // self.bytes_per_point, 1, MAX_BATCH_POINTS))


def inspect_model(model: SmoothModel, lines: Lines) -> Inspection:
    """Check that a model is one function of each point by itself, and learn which operators have kinks.

    Raises CaptureError for a model that is not a function of its input, UnsupportedError for one with jumps.
    """
    alphas = torch.tensor(INSPECTED_ALPHAS, dtype=torch.float64)
    traces: list[OperatorTrace] = []
    values: list[Floats] = []
    outputs: tuple[Tensor, ...] = ()
    for count in (2, 3, 3):
        recorder, points = TraceRecorder(), lines.at_alphas(alphas[:count])[0]
        with full_precision(), recorder:
            outputs = model.evaluate(points)
        traces.append(recorder.trace)
        values.append(_flatten_rows(outputs))
    two, three = traces[0], traces[1]
    if two.random:
        raise CaptureError(
            "The model draws random numbers, so it is not a function of its input.",
            where=two.random[0],
            hint="Call model.eval(), and keep random numbers out of forward.",
        )
    for (node, a), (_, b) in zip(two.jumps, three.jumps, strict=False):
        if batch_dim(a, b) is not None:
            raise UnsupportedError(
                "An operator jumps, so no polynomial follows it.",
                nodes=(f"{node} is discontinuous",),
                where=f"{node} is discontinuous",
                hint="Replace it by a continuous operator.",
            )
    _check_repeatable(values)
    return Inspection(
        shapes=tuple(tuple(o.shape[1:]) for o in outputs),
        batch_dims=tuple(find_batch_dims(two, three)),
        bytes_per_point=max(three.elements - two.elements, 1) * BYTES_PER_NUMBER,
    )


def _check_repeatable(values: list[Floats]) -> None:
    two, three, again = values
    if not all(np.isfinite(v).all() for v in values):
        return  # reported with its position by `LineFunction.values`
    scale = np.abs(three).max(initial=0.0)
    if np.abs(three - again).max(initial=0.0) > REPEAT_TOLERANCE * scale:
        raise CaptureError(
            "The model returns different values for the same input.",
            where="forward",
            hint="Call model.eval(), and keep state and random numbers out of forward.",
        )
    if np.abs(three[:2] - two).max(initial=0.0) > REPEAT_TOLERANCE * scale:
        raise CaptureError(
            "The model mixes the points of a batch: the value of a point depends on the others.",
            where="forward",
            hint="Compute each point of a batch independently of the others.",
        )


@dataclass(frozen=True)
class SamplingLimits:
    """When to stop."""

    max_evaluations: float = float("inf")
    deadline: float = float("inf")  # of ``time.monotonic``


class LineFunction:
    """The outputs of a model along a line, (n, outputs) at n alphas, all output tensors flattened into one row.

    Args:
        model: the model.
        lines: a single line.
        memory: bytes that the results of all operators may take together.
        inspection: of the model, if it was inspected before.
        limits: when to stop searching for kinks.

    Raises CaptureError for a model that is not a function of its input, UnsupportedError for one with jumps.
    """

    def __init__(
        self,
        model: SmoothModel,
        lines: Lines,
        memory: int,
        inspection: Inspection | None = None,
        limits: SamplingLimits | None = None,
    ) -> None:
        self.model, self.lines, self.limits = model, lines, limits or SamplingLimits()
        self.evaluations = 0 if inspection else sum((2, 3, 3))
        self.inspection = inspection or inspect_model(model, lines)
        self.shapes, self.has_kinks = self.inspection.shapes, self.inspection.has_kinks
        self.batch_points = self.inspection.batch_points(memory)

    @property
    def spare_evaluations(self) -> float:
        """How many evaluations the limits still allow."""
        if time.monotonic() > self.limits.deadline:
            return 0.0
        return self.limits.max_evaluations - self.evaluations

    def _points(self, alphas: Floats) -> list[Tensor]:
        return self.lines.at_alphas(torch.from_numpy(alphas))[0]

    def values(self, alphas: Floats) -> Floats:  # (n, outputs)
        """Evaluate the outputs at some alphas."""
        return self._in_batches(alphas, lambda part: self._evaluate(part))

    def _in_batches(self, alphas: Floats, evaluate: Callable[[Floats], Floats]) -> Floats:
        parts = [evaluate(alphas[i : i + self.batch_points]) for i in range(0, max(len(alphas), 1), self.batch_points)]
        return np.concatenate(parts)

    def _evaluate(self, alphas: Floats, mode: Any = None, perturb: bool = False) -> Floats:
        points = self._perturbed_points(alphas) if perturb else self._points(alphas)
        with full_precision(), mode or nullcontext():
            outputs = self.model.evaluate(points)
        self.evaluations += len(alphas)
        rows = _flatten_rows(outputs)
        bad = ~np.isfinite(rows).all(1)
        if bad.any():
            raise self._overflow_error(float(alphas[np.flatnonzero(bad)[0]]))
        return rows

    def values_and_kinks(self, alphas: Floats) -> tuple[Floats, list[Watched]]:
        """Evaluate the outputs and the arguments of operators with kinks; at most ``batch_points`` alphas."""
        recorder = KinkRecorder(self.inspection.batch_dims, len(alphas))
        return self._evaluate(alphas, recorder), recorder.found

    def perturbed_values(self, alphas: Floats, seed: int) -> Floats:  # (n, outputs)
        """Evaluate the outputs with a random rounding error in every operator and in the points."""
        return self._in_batches(alphas, lambda part: self._evaluate(part, RoundingNoise(seed), perturb=True))

    def _perturbed_points(self, alphas: Floats) -> list[Tensor]:
        points, errors = self.lines.at_alphas(torch.from_numpy(alphas))
        generator = torch.Generator().manual_seed(len(alphas))
        noise = [2 * torch.rand(p.shape, generator=generator, dtype=torch.float64) - 1 for p in points]
        return [p + e * n for p, e, n in zip(points, errors, noise, strict=True)]

    def _overflow_error(self, alpha: float) -> NumberError:
        finder, points = _NonFiniteFinder(), self._points(np.array([alpha, alpha]))
        with full_precision(), finder:
            self.model.evaluate(points)
        return NumberError(
            f"A value is NaN or infinite at alpha {alpha:.6g}.",
            where=finder.node or "forward",
            hint="Repair the weights, or choose a line on which the model does not overflow.",
        )


class _NonFiniteFinder(TraceRecorder):
    """Finds the first operator that makes a NaN or an infinity from finite numbers."""

    node = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self.node and _has_tensor(args) and not _is_finite(out) and _is_finite(args):
            name = operator_name(func)
            if name not in ("masked_fill", "fill", "where", "full_like"):  # masks of attention
                self.node = describe_running_node(name)
        return out


def _has_tensor(args: Any) -> bool:
    return any(isinstance(a, Tensor) for a in args)


def _is_finite(values: Any) -> bool:
    tensors = values if isinstance(values, (tuple, list)) else [values]
    return all(bool(torch.isfinite(t).all()) for t in tensors if isinstance(t, Tensor) and t.is_floating_point())


def _flatten_rows(outputs: Sequence[Tensor]) -> Floats:  # (n, outputs)
    return torch.cat([o.reshape(len(o), -1) for o in outputs], 1).detach().cpu().numpy()
