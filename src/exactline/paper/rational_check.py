"""Which count is right where float32 counts otherwise than float64: the rational oracle says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

from ..exact import restrict as exact_restrict
from .linearity import Linearity, Row, lines_of
from .published import Suite

EACH = 5  # lines of each kind of images that are proved
DIRECTIONS = ("FGSM", "random 0", "random 1", "random 2", "random 3")


@dataclass(frozen=True)
class Proof:
    """One line on which counts differ, and the truth."""

    images: str
    network: str
    image: int
    direction: str
    breaks: int  # in float64
    breaks32: int  # in float32, doubting what cannot be told apart
    plain32: int  # in float32, doubting nothing
    truth: int  # in rationals
    closest: float  # how far in alpha the two nearest breaks are from one another


def proofs(found: Linearity, each: int = EACH, progress: Callable[[float, str], None] | None = None) -> list[Proof]:
    """The truth of some lines on which float32 counts otherwise: those with the fewest breaks, for each kind of images.

    A study without counts in float32 has none.
    """
    proved: list[Proof] = []
    for suite in found.suites:
        rows = [r for r in found.rows if r.images == suite.name]
        moved = [(r.breaks[k], place, k) for place, r in enumerate(rows) for k in _moved(r)]
        for number, (_, place, k) in enumerate(sorted(moved)[:each]):
            if progress is not None:
                progress(number / each, f"{suite.name}, proof {number + 1}")
            proved.append(_proof(suite, rows[place], k))
    return proved


def _moved(row: Row) -> list[int]:
    """Lines that are counted otherwise in float32, by either sweep."""
    three = zip(row.breaks, row.breaks32, row.plain32, strict=False)
    return [k for k, (fine, careful, plain) in enumerate(three) if not fine == careful == plain]


def _proof(suite: Suite, row: Row, k: int) -> Proof:
    network = next(s.network for s in suite.subjects if s.name == row.network)
    starts, ends = lines_of(suite.images, network, row.image)
    truth = exact_restrict(network, torch.from_numpy(starts[k]), torch.from_numpy(ends[k]))
    closest = min(float(b - a) for a, b in pairwise(truth.alphas))
    known = suite.name, row.network, row.image, DIRECTIONS[k], row.breaks[k], row.breaks32[k], row.plain32[k]
    return Proof(*known, len(truth.alphas), closest)
