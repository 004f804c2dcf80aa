"""Assembly of the parts of a sweep into one flat table of breaks with an offset for every line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .dense.sweep import SweepLimits, SweepPart


@dataclass
class Assembler:
    """Collects parts on the CPU, and stops the sweep once it has ``max_breaks`` breaks."""

    lines: int
    shapes: list[tuple[int, ...]] | None  # of the outputs; None: values are not kept
    max_breaks: int | None
    limits: SweepLimits
    parts: list[SweepPart] = field(default_factory=list)
    breaks: int = 0

    def collect(self, parts: Iterator[SweepPart]) -> BreakTable:
        """Collect all parts into one table."""
        for part in parts:
            self._add(part)
            if self.limits.stopped:
                break
        return self._concatenate()

    def stream(self, parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
        """Yield the parts one by one, each after the next part has updated the point they share."""
        for part in parts:
            self._add(part)
            if len(self.parts) > 1:
                yield self.parts.pop(0)
            if self.limits.stopped:
                break
        yield from self.parts
        self.parts = []

    def _add(self, part: SweepPart) -> None:
        if part.continues and self.parts:
            merge_shared_point(self.parts[-1], part)
        part = trim(part, self.shapes is not None)
        count = len(part.alphas)
        if self.max_breaks is not None and self.breaks + count > self.max_breaks:
            part = part.head(self.max_breaks - self.breaks)
            self.limits.stopped = "max_breaks"
        self.breaks += len(part.alphas)
        self.parts.append(part)

    def _concatenate(self) -> BreakTable:
        def concatenate(tensors: list[Tensor], empty: Tensor) -> Tensor:
            return torch.cat(tensors) if tensors else empty

        line = concatenate([p.line for p in self.parts], torch.zeros(0, dtype=torch.int64))
        offsets = torch.zeros(self.lines + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(line, minlength=self.lines).cumsum(0)
        alphas = concatenate([p.alphas for p in self.parts], torch.zeros(0, dtype=torch.float64))
        origins = concatenate([p.origins for p in self.parts], torch.zeros(0, 3, dtype=torch.int64))
        ambiguous = concatenate([p.ambiguous for p in self.parts], torch.zeros(0, dtype=torch.int64))
        values = None
        if self.shapes is not None:
            empty = [torch.zeros(0, *shape, dtype=torch.float64) for shape in self.shapes]
            values = tuple(concatenate([p.values[k] for p in self.parts], none) for k, none in enumerate(empty))
        return BreakTable(offsets, alphas, origins, ambiguous, values, self.limits.stopped)


@dataclass(frozen=True)
class BreakTable:
    """The breaks of all lines in one flat table; line ``i`` has rows ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Tensor  # (lines + 1,)
    alphas: Tensor  # (breaks,)
    origins: Tensor  # (breaks, 3) node or -1, unit, count
    ambiguous: Tensor  # (breaks,) number of ambiguous units on the piece that starts here
    values: tuple[Tensor, ...] | None  # (breaks, *out) each
    stopped: str  # why the sweep ended early; empty if it did not
    errors: Tensor | None = None  # (breaks,) estimated errors of the values, where the network is not known


def trim(part: SweepPart, keep_values: bool) -> SweepPart:
    """A part on the CPU, without the point that it repeats from the previous part."""
    skip = 1 if part.continues else 0
    values = tuple(v[skip:].cpu() for v in part.values) if keep_values else ()
    line, alphas, origins, ambiguous = (
        t[skip:].cpu().contiguous() for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    return SweepPart(line, alphas, origins, ambiguous, values, False, part.edge_units)


def merge_shared_point(last: SweepPart, part: SweepPart) -> None:
    """Update the last point of one part, in place, with what the next part knows about that point.

    The piece that starts at the point and the crossings on its right side belong to the next part.
    """
    last.ambiguous[-1] = part.ambiguous[0].cpu()
    last.origins[-1, 2] += (
        int(part.origins[0, 2]) - part.shared_crossings + _count_passing_units(last.edge_units[1], part.edge_units[0])
    )


def _count_passing_units(before: dict[int, Tensor], after: dict[int, Tensor]) -> int:
    """Count units on a knot at a shared point that are on opposite sides of it before and after the point."""
    total = 0
    for node, rows in before.items():
        side_before = {(knot, unit): side for knot, unit, side in rows.tolist()}
        for knot, unit, side_after in after.get(node, rows[:0]).tolist():
            total += side_before.get((knot, unit), 0) * side_after < 0
    return total


def link_parts(parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
    """Parts of one line, changed so that each starts with the last point of the previous one."""
    last: SweepPart | None = None
    for part in parts:
        if last is not None and not part.continues:
            line, alphas, origins, ambiguous = (
                torch.cat([getattr(last, name)[-1:], getattr(part, name)])
                for name in ("line", "alphas", "origins", "ambiguous")
            )
            values = tuple(torch.cat([a[-1:], b]) for a, b in zip(last.values, part.values, strict=True))
            part = replace(
                part, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=values, continues=True
            )
        yield part
        last = part
