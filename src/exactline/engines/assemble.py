"""Parts of a sweep put together: one flat list of breaks with an offset for every line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .dense.sweep import Limits, Part


@dataclass
class Collector:
    """Gathers parts on the CPU and stops the sweep when there are breaks enough."""

    lines: int
    shapes: list[tuple[int, ...]] | None  # of the outputs; None where values are not kept
    most: int | None  # breaks to keep at the most
    limits: Limits
    parts: list[Part] = field(default_factory=list)
    breaks: int = 0

    def take(self, parts: Iterator[Part]) -> Collected:
        for part in parts:
            self._add(part)
            if self.limits.stopped:
                break
        return self._joined()

    def settled(self, parts: Iterator[Part]) -> Iterator[Part]:
        """The parts one by one: each when the next has had its say about the point they share."""
        for part in parts:
            self._add(part)
            if len(self.parts) > 1:
                yield self.parts.pop(0)
            if self.limits.stopped:
                break
        yield from self.parts
        self.parts = []

    def _add(self, part: Part) -> None:
        if part.continues and self.parts:
            share(self.parts[-1], part)
        part = trimmed(part, self.shapes is not None)
        count = len(part.alphas)
        if self.most is not None and self.breaks + count > self.most:
            part = part.first(self.most - self.breaks)
            self.limits.stopped = "max_breaks"
        self.breaks += len(part.alphas)
        self.parts.append(part)

    def _joined(self) -> Collected:
        def join(pieces: list[Tensor], empty: Tensor) -> Tensor:
            return torch.cat(pieces) if pieces else empty

        line = join([p.line for p in self.parts], torch.zeros(0, dtype=torch.int64))
        offsets = torch.zeros(self.lines + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(line, minlength=self.lines).cumsum(0)
        alphas = join([p.alphas for p in self.parts], torch.zeros(0, dtype=torch.float64))
        born = join([p.born for p in self.parts], torch.zeros(0, 3, dtype=torch.int64))
        doubts = join([p.doubts for p in self.parts], torch.zeros(0, dtype=torch.int64))
        values = None
        if self.shapes is not None:
            empty = [torch.zeros(0, *shape, dtype=torch.float64) for shape in self.shapes]
            values = tuple(join([p.values[k] for p in self.parts], none) for k, none in enumerate(empty))
        return Collected(offsets, alphas, born, doubts, values, self.limits.stopped)


@dataclass(frozen=True)
class Collected:
    """Breaks of all lines, flat."""

    offsets: Tensor  # (lines + 1,)
    alphas: Tensor  # (breaks,)
    born: Tensor  # (breaks, 3)
    doubts: Tensor  # (breaks,)
    values: tuple[Tensor, ...] | None  # (breaks, *out) each
    stopped: str


def trimmed(part: Part, values: bool) -> Part:
    """A part on the CPU, without the point it shares with the one before it."""
    skip = 1 if part.continues else 0
    kept = tuple(v[skip:].cpu() for v in part.values) if values else ()
    line, alphas, born, doubts = (t[skip:].cpu().contiguous() for t in (part.line, part.alphas, part.born, part.doubts))
    return Part(line, alphas, born, doubts, kept, False, part.edges)


def share(last: Part, part: Part) -> None:
    """A shared point ends one part and starts a piece of the other, which knows that piece: the first is told."""
    last.doubts[-1] = part.doubts[0].cpu()
    last.born[-1, 2] += int(part.born[0, 2]) - part.shared + _through(last.edges[1], part.edges[0])


def _through(before: dict[int, Tensor], after: dict[int, Tensor]) -> int:
    """Units on a knot at a shared point that come from one side of it and go to the other."""
    total = 0
    for node, coming in before.items():
        sides = {(knot, unit): side for knot, unit, side in coming.tolist()}
        for knot, unit, side in after.get(node, coming[:0]).tolist():
            total += sides.get((knot, unit), 0) * side < 0
    return total


def linked(parts: Iterator[Part]) -> Iterator[Part]:
    """Parts of one line, each beginning with the point that ended the one before it."""
    last: Part | None = None
    for part in parts:
        if last is not None and not part.continues:
            line, alphas, born, doubts = (
                torch.cat([getattr(last, name)[-1:], getattr(part, name)])
                for name in ("line", "alphas", "born", "doubts")
            )
            values = tuple(torch.cat([a[-1:], b]) for a, b in zip(last.values, part.values, strict=True))
            part = replace(part, line=line, alphas=alphas, born=born, doubts=doubts, values=values, continues=True)
        yield part
        last = part
