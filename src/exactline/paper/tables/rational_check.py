"""Which break count is right where float32 and float64 differ, decided by the rational oracle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from ...exact import restrict as restrict_exactly
from ..published import NetworkSuite
from ..record import StudyProgress
from .linearity import DIRECTIONS, LinearityCounts, LinearityStudy, compute_lines

LINES_PER_DATASET = 5


@dataclass(frozen=True)
class RationalCheck:
    """A line on which the break counts differ, and its count in rational arithmetic."""

    images: str
    network: str
    image: int
    direction: str
    breaks: int  # in float64
    float32_breaks: int  # of exactline's float32 sweep
    naive_float32_breaks: int  # of a float32 sweep that ignores rounding
    rational_breaks: int
    min_gap: float  # distance in alpha between the two closest breaks


def check_differing_lines(
    study: LinearityStudy, lines_per_dataset: int = LINES_PER_DATASET, progress: StudyProgress | None = None
) -> list[RationalCheck]:
    """Check lines on which float32 counts differ: those with the fewest breaks, of each set of images.

    Args:
        study: A study that was run with ``float32=True``; another one has no lines to check.
        lines_per_dataset: The largest number of lines to check of each set of images.
        progress: Called with the share of the work done and a description of the current step.
    """
    checks: list[RationalCheck] = []
    for suite in study.suites:
        rows = [r for r in study.rows if r.images == suite.name]
        differing = sorted((r.breaks[k], i, k) for i, r in enumerate(rows) for k in _find_differing_lines(r))
        for number, (_, i, k) in enumerate(differing[:lines_per_dataset]):
            if progress is not None:
                progress(number / lines_per_dataset, f"{suite.name}, check {number + 1}")
            checks.append(_check_line(suite, rows[i], k))
    return checks


def _find_differing_lines(row: LinearityCounts) -> list[int]:
    counts = zip(row.breaks, row.float32_breaks, row.naive_float32_breaks, strict=False)
    return [k for k, (float64, float32, naive) in enumerate(counts) if not float64 == float32 == naive]


def _check_line(suite: NetworkSuite, row: LinearityCounts, k: int) -> RationalCheck:
    network = next(named.network for named in suite.networks if named.name == row.network)
    starts, ends = compute_lines(suite.images, network, row.image)
    exact = restrict_exactly(network, torch.from_numpy(starts[k]), torch.from_numpy(ends[k]))
    return RationalCheck(
        images=suite.name,
        network=row.network,
        image=row.image,
        direction=DIRECTIONS[k],
        breaks=row.breaks[k],
        float32_breaks=row.float32_breaks[k],
        naive_float32_breaks=row.naive_float32_breaks[k],
        rational_breaks=len(exact.alphas),
        min_gap=min(float(b - a) for a, b in pairwise(exact.alphas)),
    )
