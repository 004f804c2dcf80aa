"""Exact answers to the lines of the legacy protocol; lines that arrive together are swept together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...api import restrict_many, restrict_parts
from ...arrays import Floats, Ints
from ...decide.intervals import IntervalTable
from ...engines.dense.sweep import SweepPart
from ...network.graph import Network
from ..limits import Limits
from .encode import FLOAT_BYTES, encode_line, to_float32

ENDPOINT_BYTES = 24  # of an endpoint, at most, besides its numbers


@dataclass(frozen=True)
class LineResponder:
    """Answers lines for one network; with an ArgMax the values are classes."""

    network: Network
    has_argmax: bool
    limits: Limits

    @property
    def outputs(self) -> int:
        """How many numbers an answer has at each point."""
        return 1 if self.has_argmax else self.network.nodes[self.network.outputs[0]].shape[0]

    def transform_lines(
        self,
        starts: Floats,  # (lines, in)
        ends: Floats,  # (lines, in)
        include_post: bool,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield for each line how many breaks it has, and the answer: every break an endpoint.

        With ``include_post`` the endpoints have the network's values.
        """
        labels = self.constant_classes([np.stack(pair) for pair in zip(starts, ends, strict=True)])
        swept = np.array([label is None for label in labels])
        answers = self._sweep_lines(starts[swept], ends[swept], include_post) if swept.any() else iter(())
        for label in labels:
            if label is None:
                yield next(answers)
            else:
                values = np.full((2, 1), label, np.float32) if include_post else None
                yield 2, encode_line(np.array([0.0, 1.0]), values)

    def _sweep_lines(self, starts: Floats, ends: Floats, include_post: bool) -> Iterator[tuple[int, bytes]]:
        endpoint_bytes = ENDPOINT_BYTES + FLOAT_BYTES * self.outputs * include_post
        for ratios, values in self.restrict_lines(starts, ends, include_post, endpoint_bytes):
            yield len(ratios), encode_line(ratios, None if values is None else to_float32(values))

    def restrict_lines(
        self,
        starts: Floats,  # (lines, in)
        ends: Floats,  # (lines, in)
        values: bool,
        break_bytes: int,  # of a break in the answer
    ) -> Iterator[tuple[Floats, Any]]:
        """Yield for each line the ratios (n,) of its endpoints, and the values (n, out) or None.

        Raises LimitError if a line has more breaks than allowed, or than fit an answer.
        """
        limit = _BreakLimit(self.limits, break_bytes)
        if self.has_argmax:
            yield from self._classify_lines(starts, ends, values, limit)
            return
        collected = _CollectedLine(limit)
        _, parts = restrict_parts(self.network, torch.from_numpy(starts), torch.from_numpy(ends), values=values)
        for part in parts:
            yield from collected.add(part)
        yield from collected.finish()

    def _classify_lines(
        self, starts: Floats, ends: Floats, values: bool, limit: _BreakLimit
    ) -> Iterator[tuple[Floats, Any]]:
        sides = torch.from_numpy(starts), torch.from_numpy(ends)
        lines = restrict_many(self.network, *sides, progress=limit.report(len(starts)))
        offsets = lines.offsets.tolist()
        single = _count_outputs(self.network) == 1  # the argument of the maximum of one output is always 0
        table = None if single else lines.decisions().table
        for i in range(len(lines)):
            alphas = lines.alphas[offsets[i] : offsets[i + 1]].numpy()
            limit.check(len(alphas))
            ratios, labels = (alphas, np.zeros(len(alphas))) if table is None else _insert_boundaries(alphas, table, i)
            yield ratios, labels.astype(np.float64)[:, None] if values else None

    def constant_classes(self, groups: list[Floats]) -> list[int | None]:
        """Return for each group of points (n, in) the class of all points between them, if an affine network has one.

        Clients classify the pieces of an earlier answer this way: they send them back one by one, with an ArgMax alone.
        """
        if not self.has_argmax or self.network.breaking_nodes or not groups:
            return [None] * len(groups)
        labels = flatten_rows(self.network(torch.from_numpy(np.concatenate(groups)))).argmax(1)
        ends = np.cumsum([len(group) for group in groups])
        return [int(part[0]) if (part == part[0]).all() else None for part in np.split(labels, ends[:-1]) if len(part)]


@dataclass(frozen=True)
class _BreakLimit:
    """How many breaks a line may have."""

    limits: Limits
    break_bytes: int  # in an answer

    @property
    def max_breaks(self) -> int:
        return min(self.limits.breaks_per_line, self.limits.legacy_message_bytes // self.break_bytes)

    def check(self, count: int) -> None:
        """Raise LimitError if a line has too many breaks."""
        if count > self.max_breaks:
            is_count = self.max_breaks == self.limits.breaks_per_line
            name = "breaks_per_line" if is_count else "legacy_message_bytes"
            raise self.limits.error(name, f"A line has {count:,} breaks or more.")

    def report(self, lines: int) -> Any:
        """Return a progress callback that ends a sweep of so many lines with far too many breaks."""

        def check_total(share: float, breaks: int) -> None:
            self.check(breaks // max(lines, 1))

        return check_total


@dataclass
class _CollectedLine:
    """Joins the parts of a sweep into lines."""

    limit: _BreakLimit
    line: int = 0
    count: int = 0
    alphas: list[Floats] = field(default_factory=list[Floats])
    values: list[Floats] = field(default_factory=list[Floats])

    def add(self, part: SweepPart) -> Iterator[tuple[Floats, Any]]:
        """Add a part; yields the lines that are complete."""
        if not len(part.line):
            return
        line = part.line.numpy()
        cuts = np.flatnonzero(np.diff(line)) + 1
        alphas = np.split(part.alphas.numpy(), cuts)
        values = np.split(flatten_rows(part.values[0]), cuts) if part.values else None
        for i, number in enumerate(line[np.append(0, cuts)].tolist()):
            if number != self.line:
                yield from self.finish()
                self.line = number
            self.count += len(alphas[i])
            self.limit.check(self.count)
            self.alphas.append(alphas[i])
            if values is not None:
                self.values.append(values[i])

    def finish(self) -> Iterator[tuple[Floats, Any]]:
        """Yield the last line."""
        if self.alphas:
            alphas, values = self.alphas, self.values
            self.alphas, self.values, self.count = [], [], 0
            yield np.concatenate(alphas), np.concatenate(values) if values else None


def _insert_boundaries(
    alphas: Floats,  # (breaks,)
    table: IntervalTable,
    line: int,
) -> tuple[Floats, Ints]:
    """Return breaks and class boundaries together, (n,), and the class from each to the next, (n,).

    The last one has the class of the piece before it. A boundary within its error of a break is moved to the break.
    """
    rows = slice(int(table.offsets[line]), int(table.offsets[line + 1]))
    labels, starts, errors = table.labels[rows, 0], table.starts[rows], table.start_errors[rows]
    changes = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    starts, labels, errors = starts[changes], labels[changes], errors[changes]
    after = np.searchsorted(alphas, starts).clip(1, len(alphas) - 1)
    nearest = np.where(starts - alphas[after - 1] < alphas[after] - starts, alphas[after - 1], alphas[after])
    starts = np.where(np.abs(nearest - starts) <= errors, nearest, starts)
    starts[0] = alphas[0]
    ratios = np.union1d(alphas, starts)
    intervals = np.searchsorted(starts, ratios, side="right") - 1
    intervals[-1] = intervals[max(len(intervals) - 2, 0)]
    return ratios, labels[intervals]


def flatten_rows(values: Any) -> Floats:
    """Return values (n, *out) as an array (n, outputs)."""
    return values.reshape(len(values), -1).numpy()


def _count_outputs(network: Network) -> int:
    return network.nodes[network.outputs[0]].shape[0]
