"""Estimates of the rounding error in outputs, in differences of outputs and in linear functionals of them.

The rounding errors of two outputs are strongly correlated because they share most of the computation. The error of
their difference is therefore estimated directly, with `PointErrors`. One call costs about eleven evaluations, so a
floating-point filter (`OutputErrors.filter_width`) selects the few points that need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..numerics.point_errors import PointErrors, points_per_estimate
from ..tolerances import (
    DECISION_FILTER_ERRORS,
    DECISION_SAMPLE_BREAKS,
    DECISION_SAMPLE_LINES,
    DECISION_SAMPLE_WIDTH,
    DECISION_SAMPLES,
    MIN_DECISION_FILTER_ROUNDINGS,
    REEVALUATION_SAFETY,
)


@dataclass(frozen=True, eq=False)
class OutputErrors:
    """Estimates the error of one output tensor at points of some lines; estimates include `DECISION_SAMPLE_WIDTH`."""

    lines: Lines
    line_index: Ints  # (breaks,) the line of each break
    alphas: Floats  # (breaks,)
    network: Network | None
    output_node: int  # index of the output's node in the network
    dtype: torch.dtype  # precision of the sweep
    known_error: float  # error of all values, used where there is no network to sample
    error_factor: float = 1.0  # multiplies all estimates; above 1 for minimal partitions
    scales: Floats | None = None  # (lines,) factors already applied to the values, negative for order="min"; None: 1

    def scale_of(self, line_index: Ints) -> Floats:
        """Return the factor applied to the values of each line, (points,)."""
        return np.ones(len(line_index)) if self.scales is None else self.scales[line_index]

    def estimate_differences(
        self,
        line_index: Ints,  # (points,)
        alphas: Floats,  # (points,)
        values: Floats,  # (points, outputs)
        first: Ints,  # (points, pairs) outputs
        second: Ints,  # (points, pairs) outputs
    ) -> Floats:
        """Estimate the error of each difference ``values[first] - values[second]``, (points, pairs).

        The estimate evaluates the outputs a second time, in another order of operations, and the distance between both
        evaluations enters the estimate. This matters for two maxima with a shared leader: their samples are equal,
        but their values can round differently where other elements tie with the leader.
        """
        sampled = self._sample(line_index, alphas)
        if sampled is None:
            return np.broadcast_to(
                2
                * DECISION_SAMPLE_WIDTH
                * self.error_factor
                * self.known_error
                * np.abs(self.scale_of(line_index))[:, None],
                first.shape,
            )
        reevaluated, samples = sampled

        def gaps(of: Floats) -> Floats:
            return np.take_along_axis(of, first, 1) - np.take_along_axis(of, second, 1)

        largest = np.zeros(first.shape)
        for sample in samples:
            np.maximum(largest, np.abs(gaps(sample)), out=largest)
        return largest + REEVALUATION_SAFETY * np.abs(gaps(values - reevaluated))

    def estimate_functionals(
        self,
        line_index: Ints,  # (points,)
        alphas: Floats,  # (points,)
        values: Floats,  # (points, outputs)
        weights: Floats,  # (points, outputs)
    ) -> Floats:
        """Estimate the error of the weighted sum of the outputs at each point, (points,)."""
        sampled = self._sample(line_index, alphas)
        if sampled is None:
            scale = np.abs(self.scale_of(line_index))
            return DECISION_SAMPLE_WIDTH * self.error_factor * self.known_error * scale * np.abs(weights).sum(1)
        reevaluated, samples = sampled
        largest = np.abs(np.einsum("pno,no->pn", samples, weights)).max(0, initial=0.0)
        return largest + REEVALUATION_SAFETY * np.abs(((values - reevaluated) * weights).sum(1))

    def filter_width(self, largest: float, weight: float = 1.0) -> float:
        """Return the size below which a difference or functional needs an error estimate of its own.

        Args:
            largest: The largest absolute value.
            weight: The sum of the absolute weights of a functional; 1 for differences.
        """
        least = MIN_DECISION_FILTER_ROUNDINGS * float(torch.finfo(self.dtype).eps) * largest
        return max(DECISION_FILTER_ERRORS * self.largest_sampled_error * weight, least)

    @cached_property
    def largest_sampled_error(self) -> float:
        """The largest error at breaks spread over all lines and at the ends of the farthest lines."""
        if self.network is None or not len(self.alphas):
            return DECISION_SAMPLE_WIDTH * self.error_factor * self.known_error
        spread = np.linspace(0, len(self.alphas) - 1, DECISION_SAMPLE_BREAKS).astype(np.int64)
        first = np.searchsorted(self.line_index, self._farthest_lines)
        last = np.searchsorted(self.line_index, self._farthest_lines, side="right") - 1
        breaks = np.unique(np.concatenate([spread, first, last]).clip(0, len(self.alphas) - 1))
        sampled = self._sample(self.line_index[breaks], self.alphas[breaks])
        return 0.0 if sampled is None else float(np.abs(sampled[1]).max(initial=0.0))

    @property
    def _farthest_lines(self) -> Ints:
        """The lines with the largest coordinates, where rounding errors are largest."""
        sides = [t.reshape(len(t), t.shape[1:].numel()) for side in (self.lines.starts, self.lines.ends) for t in side]
        size = torch.cat(sides, 1).abs().amax(1) if sum(t.shape[1] for t in sides) else torch.zeros(len(self.lines))
        return size.argsort(descending=True)[:DECISION_SAMPLE_LINES].numpy()

    @cached_property
    def _cast_network(self) -> Network:
        if self.network is None:
            raise TypeError("there is no network to sample")
        return self.network if self.dtype == torch.float64 else self.network.to(dtype=self.dtype)

    @cached_property
    def _cast_lines(self) -> Lines:
        return self.lines.to(torch.device("cpu"), self.dtype)

    def _sample(self, line_index: Ints, alphas: Floats) -> tuple[Floats, Floats] | None:
        """Evaluate the outputs at some points, (points, outputs), and sample their errors, (samples, points, outputs).

        Returns None without a network.
        """
        if self.network is None:
            return None
        if not len(alphas):
            outputs = prod(self.network.nodes[self.output_node].shape)
            return np.zeros((0, outputs)), np.zeros((DECISION_SAMPLES, 0, outputs))
        step = points_per_estimate(self._cast_network, DECISION_SAMPLES)
        batches = [slice(at, at + step) for at in range(0, len(alphas), step)]
        values, samples = zip(*(self._sample_batch(line_index[b], alphas[b]) for b in batches), strict=True)
        scale = self.scale_of(line_index)[:, None]
        return np.concatenate(values) * scale, np.concatenate(samples, 1) * (
            DECISION_SAMPLE_WIDTH * self.error_factor * scale
        )

    def _sample_batch(self, line_index: Ints, alphas: Floats) -> tuple[Floats, Floats]:
        with full_precision():
            points = self._cast_lines.at(torch.from_numpy(line_index), torch.from_numpy(alphas))
            state = PointErrors(self._cast_network, *points, DECISION_SAMPLES)
            state.advance_to(self.output_node)
            values = state.values[self.output_node].to(torch.float64)
            samples = state.errors[self.output_node][1:].to(torch.float64)
            outputs = samples.shape[2:].numel()
            return values.reshape(len(values), outputs).numpy(), samples.reshape(*samples.shape[:2], outputs).numpy()
