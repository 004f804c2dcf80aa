"""Parts of a sweep put together: one flat list of breaks with an offset for every line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .dense.sweep import SweepLimits, SweepPart


@dataclass
class Assembler:
    """Gathers parts on the CPU and stops the sweep when there are breaks enough."""

    lines: int
    shapes: list[tuple[int, ...]] | None  # of the outputs; None where values are not kept
    max_breaks: int | None  # breaks to keep at the most
    limits: SweepLimits
    parts: list[SweepPart] = field(default_factory=list)
    breaks: int = 0

    def collect(self, parts: Iterator[SweepPart]) -> BreakTable:
        for part in parts:
            self._add(part)
            if self.limits.stopped:
                break
        return self._concatenate()

    def stream(self, parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
        """The parts one by one: each when the next has had its say about the point they share."""
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
            part = part.first(self.max_breaks - self.breaks)
            self.limits.stopped = "max_breaks"
        self.breaks += len(part.alphas)
        self.parts.append(part)

    def _concatenate(self) -> BreakTable:
        def join(pieces: list[Tensor], empty: Tensor) -> Tensor:
            return torch.cat(pieces) if pieces else empty

        line = join([p.line for p in self.parts], torch.zeros(0, dtype=torch.int64))
        offsets = torch.zeros(self.lines + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(line, minlength=self.lines).cumsum(0)
        alphas = join([p.alphas for p in self.parts], torch.zeros(0, dtype=torch.float64))
        origins = join([p.origins for p in self.parts], torch.zeros(0, 3, dtype=torch.int64))
        ambiguous = join([p.ambiguous for p in self.parts], torch.zeros(0, dtype=torch.int64))
        values = None
        if self.shapes is not None:
            empty = [torch.zeros(0, *shape, dtype=torch.float64) for shape in self.shapes]
            values = tuple(join([p.values[k] for p in self.parts], none) for k, none in enumerate(empty))
        return BreakTable(offsets, alphas, origins, ambiguous, values, self.limits.stopped)


@dataclass(frozen=True)
class BreakTable:
    """Breaks of all lines, flat."""

    offsets: Tensor  # (lines + 1,)
    alphas: Tensor  # (breaks,)
    origins: Tensor  # (breaks, 3)
    ambiguous: Tensor  # (breaks,)
    values: tuple[Tensor, ...] | None  # (breaks, *out) each
    stopped: str


def trim(part: SweepPart, values: bool) -> SweepPart:
    """A part on the CPU, without the point it shares with the one before it."""
    skip = 1 if part.continues else 0
    kept = tuple(v[skip:].cpu() for v in part.values) if values else ()
    line, alphas, origins, ambiguous = (
        t[skip:].cpu().contiguous() for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    return SweepPart(line, alphas, origins, ambiguous, kept, False, part.edge_units)


def merge_shared_point(last: SweepPart, part: SweepPart) -> None:
    """A shared point ends one part and starts a piece of the other, which knows that piece: the first is told."""
    last.ambiguous[-1] = part.ambiguous[0].cpu()
    last.origins[-1, 2] += (
        int(part.origins[0, 2]) - part.shared_crossings + _count_passing_units(last.edge_units[1], part.edge_units[0])
    )


def _count_passing_units(before: dict[int, Tensor], after: dict[int, Tensor]) -> int:
    """Units on a knot at a shared point that come from one side of it and go to the other."""
    total = 0
    for node, coming in before.items():
        sides = {(knot, unit): side for knot, unit, side in coming.tolist()}
        for knot, unit, side in after.get(node, coming[:0]).tolist():
            total += sides.get((knot, unit), 0) * side < 0
    return total


def link_parts(parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
    """Parts of one line, each beginning with the point that ended the one before it."""
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
