"""Integrated gradients as the paper's tool computes them: its breaks, its sums, and its search for enough samples.

The tool finds breaks in float32, processes them in batches of 4,096 and loses the piece between two batches. It tries
every fifth number of partitions only. Where one is good enough it steps back by five and continues from there while
each number is good enough, so it often reports a later run of five than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ...attr.sampling_rules import PieceGradients
from ...network import Network
from .float32_sweep import find_float32_breaks

RULES = ("left", "right", "trapezoid")
BATCH_POINTS = 4096  # end points that the tool processes at a time
MAX_PARTITIONS = 1005
RUN_LENGTH = 5  # numbers of partitions in a row that must be good enough
SEARCH_STEP = 5  # partitions by which the search steps ahead or back
RUN_WINDOW = 6  # partitions before and after the current number in which the search looks for a run
ERROR_BLOCK = 64  # numbers of partitions whose errors are computed together


@dataclass(frozen=True)
class CachedPieces(PieceGradients):
    """The gradients on the pieces of a line, with a cache of the sums of each rule."""

    sums: dict[tuple[str, int], Tensor] = field(default_factory=dict[tuple[str, int], Tensor])  # (features,) each

    def apply_rule(self, rule: str, counts: Sequence[int]) -> Tensor:  # (counts, features)
        """Compute the attributions of a rule for several numbers of samples."""
        if rule not in RULES:
            return super().apply_rule(rule, counts)
        new = [n for n in counts if (rule, n) not in self.sums]
        if new:
            self.sums.update(zip(((rule, n) for n in new), super().apply_rule(rule, new), strict=True))
        return torch.stack([self.sums[rule, n] for n in counts])


@dataclass(frozen=True)
class SyrennPieces(CachedPieces):
    """The gradients on the pieces of a line, integrated over the breaks that the paper's tool finds."""

    breaks: Tensor = field(default_factory=lambda: torch.zeros(0))  # (breaks,) of a naive float32 sweep

    @staticmethod
    def build(pieces: CachedPieces, network: Network) -> SyrennPieces:
        """Combine the gradients of the exact pieces with the breaks of a naive float32 sweep."""
        start, end = (ends[0][0] for ends in (pieces.line.lines.starts, pieces.line.lines.ends))
        return SyrennPieces(pieces.line, pieces.rates, pieces.sums, find_float32_breaks(network, start, end))

    @cached_property
    def exact(self) -> Tensor:
        """(features,) the integral as the tool computes it."""
        widths, middles = torch.diff(self.breaks), (self.breaks[1:] + self.breaks[:-1]) / 2
        widths[BATCH_POINTS - 1 :: BATCH_POINTS] = 0
        shares = widths.new_zeros(len(self.rates)).index_add_(0, self.find_pieces(middles), widths)
        return shares @ self.rates


def search_partitions(pieces: PieceGradients, tolerance: float) -> dict[str, int | None]:
    """Search the number of partitions that each rule needs, as the paper's tool does; None where it finds none.

    The search reproduces two oversights of the tool: a rule that is finished is removed from the list while the list is
    traversed, so the next rule is checked one turn later; and only left sums record which numbers were tried before.
    """
    errors = {rule: _RuleErrors(pieces, rule) for rule in RULES}
    is_good: dict[str, dict[int, bool]] = {rule: {} for rule in RULES}
    found: dict[str, int | None] = dict.fromkeys(RULES)
    unfinished = list(RULES)
    current = furthest = 1
    stepped_back = False
    while current <= MAX_PARTITIONS:
        furthest = max(furthest, current)
        place = 0
        while place < len(unfinished):
            start = _find_run(is_good[unfinished[place]], current)
            if start is not None:
                found[unfinished.pop(place)] = start
            place += 1
        if not unfinished:
            break
        if current in is_good["left"]:
            current += 1
            continue
        for rule in unfinished:
            is_good[rule][current] = errors[rule].error_at(current) < tolerance
        if not any(is_good[rule][current] for rule in unfinished):
            current, stepped_back = furthest + SEARCH_STEP, False
        elif stepped_back:
            current += 1
        else:
            current, stepped_back = max(current - SEARCH_STEP, 1), True
    return found


def _find_run(is_good: dict[int, bool], current: int) -> int | None:
    """Return where the first run of good numbers near the current one begins."""
    length = 0
    for n in range(current - RUN_WINDOW, min(current + RUN_WINDOW, MAX_PARTITIONS + 1)):
        length = length + 1 if is_good.get(n, False) else 0
        if length == RUN_LENGTH:
            return n - RUN_LENGTH + 1
    return None


class _RuleErrors:
    """The errors of one rule by number of partitions, computed in blocks on demand."""

    def __init__(self, pieces: PieceGradients, rule: str) -> None:
        self.pieces, self.rule = pieces, rule
        self.blocks: dict[int, Sequence[float]] = {}

    def error_at(self, partitions: int) -> float:
        block, place = divmod(partitions - 1, ERROR_BLOCK)
        if block not in self.blocks:
            first = block * ERROR_BLOCK + 1 + (self.rule == "trapezoid")  # n partitions have n + 1 samples
            self.blocks[block] = self.pieces.rule_errors(self.rule, range(first, first + ERROR_BLOCK)).tolist()
        return self.blocks[block][place]
