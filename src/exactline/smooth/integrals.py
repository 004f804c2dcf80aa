"""Adaptive Gauss-Kronrod quadrature of vector functions along many lines, the worst panels of each line first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..lines import Lines
from ..progress import ProgressCallback
from ..tolerances import ALPHA_RESOLUTION, FLOAT64_EPS
from .cuts import Features, cut_at_features, find_features
from .gauss_kronrod import KRONROD_NODES, gauss_kronrod
from .gradients import GRADIENT_MEMORY_FACTOR, Integrand, watch_units
from .kinks import Watched, enclose_points
from .line_function import LineFunction, SamplingLimits
from .rounding import RoundingNoise
from .tolerances import (
    GRADIENT_ROUNDING_FACTOR,
    MAX_STALLED,
    MIN_CUT_SHARE,
    NEGLIGIBLE_SHARE,
    PANEL_ROUNDINGS,
    ROUNDING_PANELS,
    SMALLEST_ALPHA,
    STALLED_SHARE,
    WORST_SHARE,
)

KEPT_MEMORY_SHARE = 2  # panels may keep half of the memory; the rest is for evaluations


@dataclass
class Panel:
    """An interval of alpha on one line, with the integral over it."""

    line: int
    left: float
    right: float
    parent: Panel | None = None
    stalled: int = 0  # generations in which both parts kept a large share of the error
    integral: Tensor | None = None  # (features,)
    error: float = float("inf")  # L1 difference of the two rules
    size: float = 0.0  # L1 norm of the integrand, integrated
    parts: list[Panel] = field(default_factory=list["Panel"])
    share: float = 0.5  # of the width, where the panel is cut next
    is_left: bool = True  # whether that share is measured from the left end

    def cut(self) -> list[Panel]:
        """Two panels in place of this one; the part with most of the error is the smaller one."""
        width = self.right - self.left
        middle = self.left + self.share * width if self.is_left else self.right - self.share * width
        self.integral = None
        self.parts = [Panel(self.line, a, b, self) for a, b in ((self.left, middle), (middle, self.right))]
        return self.parts

    def note_progress(self, negligible: float) -> None:
        """Learn from the errors of both parts how to cut next, and whether cutting helps.

        A singular point near an end leaves all of the error in one part: the next cut is closer to that end. Noise
        stays in both parts.
        """
        parent = self.parent
        if parent is None or any(p.error == float("inf") for p in parent.parts):
            return
        left, right = parent.parts
        is_stalled = min(left.error, right.error) > STALLED_SHARE * parent.error
        for p, sibling in ((left, right), (right, left)):
            p.stalled = parent.stalled + 1 if is_stalled else 0
            factor = 4 if sibling.error <= 1e-2 * negligible else 2
            if p.error > 10 * negligible >= 10 * sibling.error:
                p.share, p.is_left = max(parent.share / factor, MIN_CUT_SHARE), p is left

    @property
    def is_final(self) -> bool:
        """Whether cutting cannot reduce the error any more."""
        too_short = self.right - self.left <= 64 * ALPHA_RESOLUTION * self.right or self.right < SMALLEST_ALPHA
        return too_short or self.stalled >= MAX_STALLED or self.error <= PANEL_ROUNDINGS * FLOAT64_EPS * self.size


@dataclass(frozen=True)
class LineIntegrals:
    """Integrals over all lines, and how far they can be trusted."""

    integrals: Tensor  # (lines, features)
    errors: Tensor  # (lines,) estimated L1 errors, relative to the L1 norms of the integrals
    gradients: Tensor  # (lines,) evaluations of the integrand
    panels: int
    stopped: str = ""  # "max_gradients" or "seconds" if a limit ended the work


@dataclass
class PanelQueue:
    """All panels of all lines, refined until every line has reached the tolerance.

    Args:
        integrand: what to integrate.
        weights: factors (lines, features) of the error norm, such as inputs minus baselines.
        tol: the largest L1 error of a line, relative to the L1 norm of its integral.
        memory: bytes of the working set.
        max_gradients: evaluations of each line.
        deadline: of ``time.monotonic``.
    """

    integrand: Integrand
    weights: Tensor
    tol: float
    memory: int
    max_gradients: int
    deadline: float
    report: ProgressCallback | None = None
    panels: list[list[Panel]] = field(default_factory=list[list[Panel]])  # of each line
    base: Tensor = field(default_factory=lambda: torch.zeros(0))  # (lines, features) of panels that were released
    base_errors: list[float] = field(default_factory=list[float])
    gradients: Tensor = field(default_factory=lambda: torch.zeros(0))
    stopped: str = ""

    def run(self, breakpoints: Sequence[Floats]) -> LineIntegrals:  # one array from 0 to 1 for each line
        """Integrate over all lines, starting with the panels between breakpoints."""
        count = len(breakpoints)
        self.panels, self.base_errors = [[] for _ in range(count)], [0.0] * count
        self.base, self.gradients = torch.zeros_like(self.weights), torch.zeros(count, dtype=torch.int64)
        new = [Panel(line, a, b) for line, ends in enumerate(breakpoints) for a, b in pairwise(ends.tolist())]
        while new:
            new = self._evaluate(new)
            if not new:
                new = self._refine()
        errors = torch.tensor([self._relative_error(i) for i in range(count)], dtype=torch.float64)
        rounding = torch.tensor([self._sample_rounding(i) for i in range(count)], dtype=torch.float64)
        integrals = torch.stack([self._total(i) for i in range(count)]) if count else self.base
        panels = sum(map(len, self.panels))
        return LineIntegrals(integrals, errors + rounding, self.gradients, panels, self.stopped)

    def _evaluate(self, panels: Sequence[Panel]) -> list[Panel]:
        """Integrate over panels, batch by batch; returns the parts of panels that have kinks inside."""
        inspection = self.integrand.inspection
        points = inspection.batch_points(self.memory // GRADIENT_MEMORY_FACTOR)
        points = min(points, max(1, self.memory // (8 * KEPT_MEMORY_SHARE * max(1, self.weights.shape[1]))))
        step, split = max(1, points // KRONROD_NODES), list[Panel]()
        for first in range(0, len(panels), step):
            if time.monotonic() > self.deadline:
                self.stopped = "seconds"  # every panel is integrated once, but not cut any more
            split += self._evaluate_batch(panels[first : first + step])
            self._release_panels()
        return split

    def _evaluate_batch(self, batch: Sequence[Panel]) -> list[Panel]:
        nodes, kronrod, gauss = gauss_kronrod()
        left, right = (np.array([getattr(p, side) for p in batch]) for side in ("left", "right"))
        half = (right - left)[:, None] / 2
        alphas = np.clip((left + right)[:, None] / 2 + half * nodes, left[:, None], right[:, None])
        line = torch.tensor([p.line for p in batch]).repeat_interleave(KRONROD_NODES)
        sample = self.integrand.sample(line, torch.from_numpy(alphas.reshape(-1)))
        self.gradients += torch.bincount(line, minlength=len(self.gradients))
        features = self._find_features(batch, alphas, sample.watched) if sample.watched else None
        rows = sample.rows.view(len(batch), KRONROD_NODES, -1)
        split: list[Panel] = []
        for i, panel in enumerate(batch):
            if features is not None and len(features[i]) and not self.stopped:
                parts = self._split(panel, features[i])
                if parts:
                    split += parts
                    continue
            width = (panel.right - panel.left) / 2
            weight = self.weights[panel.line]
            panel.integral = width * (torch.from_numpy(kronrod) @ rows[i])
            difference = width * (torch.from_numpy(kronrod - gauss) @ rows[i])
            panel.error = float((difference * weight).abs().sum())
            panel.size = width * float(torch.from_numpy(kronrod) @ (rows[i] * weight).abs().sum(1))
            self.panels[panel.line].append(panel)
            panel.note_progress(NEGLIGIBLE_SHARE * self.tol * self._norm(panel.line))
        return split

    def _find_features(self, batch: Sequence[Panel], alphas: Floats, watched: Sequence[Watched]) -> list[Features]:
        """The features of each panel between its nodes (panels, nodes) and both of its ends."""
        ends = np.array([[p.left, p.right] for p in batch])
        lines = torch.tensor([p.line for p in batch]).repeat_interleave(2)
        at_ends = watch_units(self.integrand, lines, torch.from_numpy(ends.reshape(-1)))
        joined = [enclose_points(w, e, len(batch)) for w, e in zip(watched, at_ends, strict=True)]
        positions = np.concatenate([ends[:, :1], alphas, ends[:, 1:]], 1)
        count = positions.shape[1]
        return find_features(
            positions.reshape(-1), [slice(i * count, (i + 1) * count) for i in range(len(batch))], joined
        )

    def _split(self, panel: Panel, features: Features) -> list[Panel]:
        """Cut a panel at its features; none if they lie at its ends."""
        if features.need_halving:
            return [] if panel.is_final else panel.cut()
        cuts = cut_at_features(self._line_function(panel.line), panel.left, panel.right, features, graded=True)
        return [Panel(panel.line, a, b) for a, b in pairwise(cuts.ends)] if len(cuts.ends) > 2 else []

    def _line_function(self, line: int) -> LineFunction:
        lines = self.integrand.lines
        one = Lines(*(tuple(t[line : line + 1] for t in side) for side in (lines.starts, lines.ends)))
        limits = SamplingLimits(self.max_gradients - int(self.gradients[line]), self.deadline)
        return LineFunction(self.integrand.model, one, self.memory, self.integrand.inspection, limits)

    def _refine(self) -> list[Panel]:
        """Cut the worst panels of every line that has not reached the tolerance."""
        new: list[Panel] = []
        for line, panels in enumerate(self.panels):
            if self._relative_error(line) <= self.tol or not panels:
                continue
            if time.monotonic() > self.deadline:
                self.stopped = "seconds"
            elif int(self.gradients[line]) >= self.max_gradients:
                self.stopped = "max_gradients"
            open_panels = [p for p in panels if not p.is_final]
            if self.stopped or not open_panels:
                continue
            worst = max(p.error for p in open_panels)
            chosen = [p for p in open_panels if p.error >= WORST_SHARE * worst]
            kept = set(map(id, chosen))
            self.panels[line] = [p for p in panels if id(p) not in kept]
            new += [part for p in chosen for part in p.cut()]
        if self.report is not None:
            reached = sum(self._relative_error(i) <= self.tol for i in range(len(self.panels)))
            self.report(reached / max(1, len(self.panels)), sum(map(len, self.panels)))
        return [] if self.stopped else new

    def _release_panels(self) -> None:
        """Add the panels with the smallest errors to the running sums if the panels take too much memory."""
        features = max(1, self.weights.shape[1])
        allowed = max(1, self.memory // (8 * KEPT_MEMORY_SHARE * features))
        kept = [p for panels in self.panels for p in panels]
        if len(kept) <= allowed:
            return
        for p in sorted(kept, key=lambda p: p.error)[: len(kept) - allowed // 2]:
            if p.integral is not None:
                self.base[p.line] += p.integral
            self.base_errors[p.line] += p.error
            self.panels[p.line].remove(p)

    def _total(self, line: int) -> Tensor:  # (features,)
        total = self.base[line].clone()
        for p in sorted(self.panels[line], key=lambda p: p.size):
            if p.integral is not None:
                total += p.integral
        return total

    def _norm(self, line: int) -> float:
        return float((self._total(line) * self.weights[line]).abs().sum())

    def _relative_error(self, line: int) -> float:
        error = self.base_errors[line] + sum(p.error for p in self.panels[line])
        norm = self._norm(line)
        return error / norm if norm > 0 else (0.0 if error == 0 else float("inf"))

    def _sample_rounding(self, line: int) -> float:
        """The rounding error of the integral relative to its norm, from gradients with noise in every operator."""
        panels = sorted(self.panels[line], key=lambda p: p.size, reverse=True)[:ROUNDING_PANELS]
        norm = self._norm(line)
        if not panels or norm == 0:
            return 0.0
        alphas = torch.tensor([0.4 * p.left + 0.6 * p.right for p in panels], dtype=torch.float64)
        index = torch.full((len(panels),), line)
        exact = self.integrand.sample(index, alphas).rows
        with RoundingNoise(line):
            noisy = self.integrand.sample(index, alphas).rows
        self.gradients[line] += 2 * len(panels)
        weight = self.weights[line]
        change, size = (((noisy - exact) * weight).abs().sum(1), (exact * weight).abs().sum(1))
        share = float((change / size.clamp(min=torch.finfo(torch.float64).tiny)).max())
        return GRADIENT_ROUNDING_FACTOR * share * sum(p.size for p in self.panels[line]) / norm + FLOAT64_EPS * len(
            panels
        )
