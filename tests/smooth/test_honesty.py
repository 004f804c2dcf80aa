"""The error estimate is never below the true error, rounding included, and not far above it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import exactline as xl

from .corpus import FAMILIES, LINES, SEEDS, CorpusLine, corpus_lines, extended_points
from .extended import HAS_EXTENDED_PRECISION
from .onnx_extended import evaluate_extended

TOLERANCES = (1e-6, 1e-9, 1e-14)  # the last one is below what rounding permits for most networks
ATTRIBUTION_TOLERANCES = (1e-5, 1e-8, 1e-11)
TRUE_NODES, MAX_HALVINGS = 16, 6  # of each panel of the true attributions
CHECKED_ALPHAS = 400
MAX_OVERESTIMATE = 1e4
pytestmark = pytest.mark.skipif(not HAS_EXTENDED_PRECISION, reason="long double is no more precise than double here")


def check_positions(curve: xl.Approximation) -> np.ndarray:
    """Random positions, and positions close to both sides of every breakpoint."""
    ends = curve.breakpoints.numpy()
    if len(ends) > CHECKED_ALPHAS:
        ends = ends[:: len(ends) // CHECKED_ALPHAS]
    near = np.concatenate([np.nextafter(ends, 0), ends, np.nextafter(ends, 1), (ends[1:] + ends[:-1]) / 2])
    even = np.random.default_rng(0).random(CHECKED_ALPHAS)
    steps = (ends[:-1, None] + np.diff(ends)[:, None] * np.array([0.013, 0.31, 0.77])).reshape(-1)
    return np.unique(np.clip(np.concatenate([near, even, steps, np.logspace(-16, -1, 30)]), 0, 1))


def measure(line: CorpusLine, tol: float) -> tuple[float, float, float]:
    """The estimate, the true error and the scale of one line; a missed tolerance must have been announced."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        curve = xl.approximate(line.network, line.start, line.end, tol=tol)
    assert curve.error <= tol or any(issubclass(w.category, xl.ToleranceWarning) for w in caught)
    alphas = check_positions(curve)
    truth = line.true_values(alphas)
    difference = np.abs(curve.at(alphas).numpy().astype(np.longdouble) - truth).max(1)
    assert (difference <= curve.error_at(alphas).numpy()).all(), f"{line.name}: {difference.max()} > {curve.error}"
    return curve.error, float(difference.max()), float(np.abs(truth).max())


def check_lines(lines: list[CorpusLine], tolerances: tuple[float, ...]) -> tuple[int, int]:
    """Check that no estimate is below the truth; returns how many are useful, of how many that count."""
    useful = counted = 0
    problems: list[str] = []
    for number, line in enumerate(lines):
        try:
            estimate, error, scale = measure(line, tolerances[number % len(tolerances)])
        except AssertionError as problem:
            problems.append(str(problem))
            continue
        if error > 1e-14 * scale:
            counted += 1
            useful += estimate <= MAX_OVERESTIMATE * error
    assert not problems, "\n".join(problems)
    return useful, counted


def test_estimates_are_honest_on_a_line_of_every_sixth_family() -> None:
    useful, counted = check_lines(list(corpus_lines(seeds=1, lines=1))[::6], (1e-8,))
    assert useful >= 0.9 * counted


def test_the_corpus_has_at_least_500_lines() -> None:
    assert len(FAMILIES) * SEEDS * LINES >= 500


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_are_honest_on_the_whole_corpus(family: str) -> None:
    useful, counted = check_lines(list(corpus_lines(families=[family])), TOLERANCES)
    print(f"{family}: useful estimates: {useful} of {counted}")
    assert useful >= 0.9 * counted


@pytest.mark.slow
def test_the_estimate_covers_a_published_vision_transformer() -> None:
    path = Path(os.environ.get("EXACTLINE_DATA", "")) / "vnncomp" / "2026r_vit_2023" / "ibp_3_3_8.onnx"
    if not path.exists():
        pytest.skip("the file is not there")
    network = xl.load(path)
    generator = torch.Generator().manual_seed(0)
    for tol in (1e-6, 1e-9, 1e-12):
        start, end = torch.rand(2, 3, 32, 32, generator=generator, dtype=torch.float64)
        curve = xl.approximate(network, start, end, tol=tol)
        alphas = check_positions(curve)[:: max(1, len(curve) // 100)]
        points = extended_points(start, end, alphas)
        truth = np.concatenate([evaluate_extended(path, part) for part in np.array_split(points, len(points) // 50)])
        difference = np.abs(curve.at(alphas).numpy() - truth).max(1)
        assert (difference <= curve.error_at(alphas).numpy()).all()
        assert curve.error <= tol


def true_attribution(line: CorpusLine, target: int, breakpoints: np.ndarray) -> np.ndarray:
    """Integrated gradients in extended precision; panels between breakpoints are halved until nothing changes."""
    graded = 2.0 ** np.arange(-40, 0, dtype=float) if line.name.startswith("zero") else np.zeros(0)
    ends = np.unique(np.concatenate([breakpoints, graded, np.linspace(0, 1, 5)]))
    found = integrate_truth(line, target, ends)
    for _ in range(MAX_HALVINGS):
        ends = np.unique(np.concatenate([ends, (ends[1:] + ends[:-1]) / 2]))
        found, previous = integrate_truth(line, target, ends), found
        if np.abs(found - previous).sum() <= 1e-14 * np.abs(found).sum():
            return found
    raise AssertionError(f"{line.name}: the truth does not converge")


def integrate_truth(line: CorpusLine, target: int, ends: np.ndarray) -> np.ndarray:
    """Integrated gradients by a Gauss-Legendre rule on each panel, in extended precision."""
    nodes, weights = np.polynomial.legendre.leggauss(TRUE_NODES)
    half = (np.diff(ends) / 2)[:, None]
    alphas = ((ends[1:] + ends[:-1])[:, None] / 2 + half * nodes).reshape(-1)
    gradients = line.true_gradients(alphas, target)
    change = (line.end - line.start).numpy().astype(np.longdouble)
    return ((half * weights).reshape(-1).astype(np.longdouble) @ gradients) * change


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_attribution_errors_are_honest(family: str) -> None:
    """Fixed targets and changing tolerances; the truth has the rounding error of its float64 nodes."""
    lines = 3 if family.startswith("zero") else LINES  # gradients in extended precision are slow
    for number, line in enumerate(corpus_lines(1, lines, [family])):
        tol = ATTRIBUTION_TOLERANCES[number % len(ATTRIBUTION_TOLERANCES)]
        curve = xl.approximate(line.network, line.start, line.end, tol=1e-10)
        method = xl.attr.IntegratedGradients(line.network, tol=tol)
        found = method.attribute(line.end[None], line.start[None], target=1)[0].double().numpy()
        truth = true_attribution(line, 1, curve.breakpoints.numpy())
        error = float(np.abs(found - truth).sum() / np.abs(truth).sum())
        if method.report is None or method.report.status == "exact":
            assert error < 1e-10
            continue
        assert method.report.error is not None
        estimate = float(method.report.error[0])
        assert error <= estimate <= tol, f"{line.name}: {error} {estimate}"


def test_lines_with_a_steep_start_take_few_gradients() -> None:
    """The lines on which captum's default rule is wrong by percents."""
    (line,) = corpus_lines(seeds=1, lines=1, families=["zero residual stream, 2 layers, eps 1e-12"])
    method = xl.attr.IntegratedGradients(line.network, tol=1e-6)
    attributions = method.attribute(line.end[None], target=1, return_convergence_delta=True)
    assert method.report is not None
    assert method.report.gradients <= 900
    assert abs(float(attributions[1])) <= 1e-6 * float(attributions[0].abs().sum())
    assert torch.isfinite(attributions[0]).all()
