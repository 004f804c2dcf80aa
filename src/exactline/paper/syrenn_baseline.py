"""What the paper's own tool makes of the same samples: its breaks, its sums and its way to search.

The tool finds breaks in float32, takes them in batches of 4,096 and loses the piece between two batches. It does not
try every number of samples but every fifth, and turns back by five where one is good; it goes on from there only while
each is, so that it often finds a later run of five than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ..attr.sampling_rules import Pieces
from ..network import Network
from .float32_sweep import plain_breaks

RULES = ("left", "right", "trapezoid")
BATCH = 4096  # end points at a time
LAST = 1005  # partitions at most
RUN = 5  # good numbers in a row
FIFTH = 5  # how far it steps, ahead or back
WINDOW = 6  # how far around the present number it looks for a run
BLOCK = 64  # numbers of samples whose errors are found at a time


@dataclass(frozen=True)
class Remembered(Pieces):
    """Pieces whose sums of samples are kept: they are compared with more than one integral."""

    kept: dict[tuple[str, int], Tensor] = field(default_factory=dict[tuple[str, int], Tensor])  # (features,) each

    def sampled(self, rule: str, counts: Sequence[int]) -> Tensor:
        """(counts, features) attributions with so many samples."""
        if rule not in RULES:
            return super().sampled(rule, counts)
        new = [n for n in counts if (rule, n) not in self.kept]
        if new:
            self.kept.update(zip(((rule, n) for n in new), super().sampled(rule, new), strict=True))
        return torch.stack([self.kept[rule, n] for n in counts])


@dataclass(frozen=True)
class Coarse(Remembered):
    """Pieces that are summed as the tool does."""

    breaks: Tensor = field(default_factory=lambda: torch.zeros(0))  # (breaks,) as a plain sweep in float32 finds them

    @staticmethod
    def made(pieces: Remembered, network: Network) -> Coarse:
        """The same gradients and samples, between the breaks that a plain sweep in float32 finds on the line."""
        start, end = (ends[0][0] for ends in (pieces.line.lines.starts, pieces.line.lines.ends))
        return Coarse(pieces.line, pieces.steps, pieces.kept, plain_breaks(network, start, end))

    @cached_property
    def exact(self) -> Tensor:
        """(features,) what the tool holds to be the integral."""
        widths, middles = torch.diff(self.breaks), (self.breaks[1:] + self.breaks[:-1]) / 2
        widths[BATCH - 1 :: BATCH] = 0
        shares = widths.new_zeros(len(self.steps)).index_add_(0, self.holding(middles), widths)
        return shares @ self.steps


def partitions(pieces: Pieces, tolerance: float) -> dict[str, int | None]:
    """How many partitions the tool finds to be enough by each of its rules; None where it finds none.

    The search goes as the tool's does, its oversights included: a rule that is done leaves the list of rules while that
    is gone through, so that the one behind it is looked at a turn later, and whether a number was tried before is only
    asked of left sums.
    """
    errors = {rule: _Errors(pieces, rule) for rule in RULES}
    tried: dict[str, dict[int, bool]] = {rule: {} for rule in RULES}
    enough: dict[str, int | None] = dict.fromkeys(RULES)
    left = list(RULES)
    at = furthest = 1
    turned = False
    while at <= LAST:
        furthest = max(furthest, at)
        place = 0
        while place < len(left):
            start = _run(tried[left[place]], at)
            if start is not None:
                enough[left.pop(place)] = start
            place += 1
        if not left:
            break
        if at in tried["left"]:
            at += 1
            continue
        for rule in left:
            tried[rule][at] = errors[rule].of(at) < tolerance
        if not any(tried[rule][at] for rule in left):
            at, turned = furthest + FIFTH, False
        elif turned:
            at += 1
        else:
            at, turned = max(at - FIFTH, 1), True
    return enough


def _run(tried: dict[int, bool], at: int) -> int | None:
    """Where the first run of good numbers begins, near a number."""
    good = 0
    for n in range(at - WINDOW, min(at + WINDOW, LAST + 1)):
        good = good + 1 if tried.get(n, False) else 0
        if good == RUN:
            return n - RUN + 1
    return None


class _Errors:
    """The errors of one rule by number of partitions, found in blocks as they are asked for."""

    def __init__(self, pieces: Pieces, rule: str) -> None:
        self.pieces, self.rule = pieces, rule
        self.blocks: dict[int, Sequence[float]] = {}

    def of(self, partitions: int) -> float:
        block, place = divmod(partitions - 1, BLOCK)
        if block not in self.blocks:
            first = block * BLOCK + 1 + (self.rule == "trapezoid")  # which has one sample more than partitions
            self.blocks[block] = self.pieces.errors(self.rule, range(first, first + BLOCK)).tolist()
        return self.blocks[block][place]
