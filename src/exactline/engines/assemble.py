"""Assembly of the parts of a sweep into one flat table of breaks with an offset for every line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .ambiguity import BreakRows
from .dense.sweep import SweepLimits, SweepPart
from .layer_record import LayerRecorder, LayerTable

CountAmbiguous = Callable[[BreakRows], Tensor]  # the number of ambiguous units on the piece that starts at each break
RESERVED_BYTES = 1 << 24  # bytes that are reserved for further rows at most


@dataclass
class RowBuffer:
    """Rows of one shape that are appended block by block, without ever holding a second copy of all of them.

    The blocks are copied at once. Kept ones, however small, would lie between the temporary tensors of a sweep, and
    the allocator could not use the memory between them again.
    """

    shape: tuple[int, ...]  # of a row
    count: int = 0  # of the rows so far
    rows: NDArray[Any] | None = None  # the rows so far, and reserved ones

    def append(self, block: Tensor) -> None:
        """Append rows (n, *shape)."""
        stop = self.count + len(block)
        if self.rows is None and len(block):
            self.rows = np.empty((stop, *self.shape), dtype=block.numpy().dtype)
        if self.rows is not None:
            if stop > len(self.rows):
                reserved = RESERVED_BYTES // max(1, self.rows[:1].nbytes)
                # large arrays grow in place: the system moves their pages instead of copying them
                self.rows.resize((stop + min(stop // 2, reserved), *self.shape), refcheck=False)
            self.rows[self.count : stop] = block.numpy()
        self.count = stop

    def finish(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """All rows, (n, *shape), of some type if there are none."""
        if self.rows is None:
            return torch.zeros(0, *self.shape, dtype=dtype)
        self.rows.resize((self.count, *self.shape), refcheck=False)
        return torch.from_numpy(self.rows)


@dataclass
class Assembler:
    """Collects parts on the CPU, and stops the sweep once it has ``max_breaks`` breaks."""

    lines: int
    shapes: list[tuple[int, ...]] | None  # of the outputs; None: values are not kept
    max_breaks: int | None
    limits: SweepLimits
    recorder: LayerRecorder | None = None  # of units that change their branch where two parts meet
    count: CountAmbiguous | None = None  # counts ambiguous units; None: pieces with some are only marked
    parts: list[SweepPart] = field(default_factory=list)  # the last ones, which the next part may update
    breaks: int = 0

    def collect(self, parts: Iterator[SweepPart]) -> BreakTable:
        """Collect all parts into one table."""
        values = None if self.shapes is None else [RowBuffer(shape) for shape in self.shapes]
        columns = {
            "line": RowBuffer(()),
            "alphas": RowBuffer(()),
            "origins": RowBuffer((3,)),
            "ambiguous": RowBuffer(()),
        }

        def append(part: SweepPart) -> None:
            for name, buffer in columns.items():
                buffer.append(getattr(part, name))

        for part in parts:
            self._add(part)
            for buffer, block in zip(values or (), self.parts[-1].values, strict=True):
                buffer.append(block)
            self.parts[-1] = replace(self.parts[-1], values=())
            del part  # it holds the values
            while len(self.parts) > 1:
                append(self.parts.pop(0))
            if self.limits.stopped:
                break
        while self.parts:
            append(self.parts.pop(0))
        return self._make_table(columns, values)

    def stream(self, parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
        """Yield the parts one by one, each after the next part has updated the point they share."""
        for part in parts:
            self._add(part)
            if len(self.parts) > 1:
                yield self._count_ambiguous(self.parts.pop(0), self.parts[0])
            if self.limits.stopped:
                break
        for part in self.parts:
            yield self._count_ambiguous(part, None)
        self.parts = []

    def _count_ambiguous(self, part: SweepPart, following: SweepPart | None) -> SweepPart:
        """A part with the number of ambiguous units on its pieces; the last one ends in the following part."""
        return part if self.count is None else count_in_part(self.count, part, following)

    def _add(self, part: SweepPart) -> None:
        if part.continues and self.parts:
            merge_shared_point(self.parts[-1], part, self.recorder)
        part = trim(part, self.shapes is not None)
        count = len(part.alphas)
        if self.max_breaks is not None and self.breaks + count > self.max_breaks:
            part = part.head(self.max_breaks - self.breaks)
            self.limits.stopped = "max_breaks"
        self.breaks += len(part.alphas)
        self.parts.append(part)

    def _make_table(self, columns: dict[str, RowBuffer], values: list[RowBuffer] | None) -> BreakTable:
        line, origins, ambiguous = (columns[name].finish(torch.int64) for name in ("line", "origins", "ambiguous"))
        offsets = torch.zeros(self.lines + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(line, minlength=self.lines).cumsum(0)
        alphas = columns["alphas"].finish()
        outputs = None if values is None else tuple(buffer.finish() for buffer in values)
        if self.count is not None:
            ambiguous = self.count(BreakRows(line, alphas, origins[:, 0], ambiguous))
        return BreakTable(offsets, alphas, origins, ambiguous, outputs, self.limits.stopped)


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
    layers: LayerTable | None = None  # what the units of every layer do, if it was recorded


def count_in_part(count: CountAmbiguous, part: SweepPart, following: SweepPart | None = None) -> SweepPart:
    """A part with the number of ambiguous units on its pieces; the last one may end in the following part."""
    parts = [part] if following is None else [part, following.head(1)]
    line, alphas, origins, candidates = (
        torch.cat([getattr(p, name).cpu() for p in parts]) for name in ("line", "alphas", "origins", "ambiguous")
    )
    counts = count(BreakRows(line, alphas, origins[:, 0], candidates))
    return replace(part, ambiguous=counts[: len(part.alphas)].to(part.ambiguous.device))


def trim(part: SweepPart, keep_values: bool) -> SweepPart:
    """A part on the CPU, without the point that it repeats from the previous part."""
    skip = 1 if part.continues else 0
    values = tuple(v[skip:].cpu() for v in part.values) if keep_values else ()
    line, alphas, origins, ambiguous = (
        t[skip:].cpu().contiguous() for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    return SweepPart(line, alphas, origins, ambiguous, values, False, part.edge_units)


def merge_shared_point(last: SweepPart, part: SweepPart, recorder: LayerRecorder | None = None) -> None:
    """Update the last point of one part, in place, with what the next part knows about that point.

    The piece that starts at the point and the crossings on its right side belong to the next part.
    """
    last.ambiguous[-1] = part.ambiguous[0].cpu()
    passing = record_shared_point(last, part, recorder)
    last.origins[-1, 2] += int(part.origins[0, 2]) - part.shared_crossings + passing


def record_shared_point(last: SweepPart, part: SweepPart, recorder: LayerRecorder | None = None) -> int:
    """Count units on a knot at a shared point that are on opposite sides of it before and after the point.

    The recorder collects all units that change their branch there.
    """
    line, alpha = int(part.line[0]), float(part.alphas[0])
    total = 0
    for node, rows in last.edge_units[1].items():
        sides_before = {(knot, unit, member): side for knot, unit, member, side in rows.tolist()}
        sides: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for knot, unit, member, after in part.edge_units[0].get(node, rows[:0]).tolist():
            # a member of a window without a row before the point leads on both sides
            sides.setdefault((knot, unit), []).append((sides_before.get((knot, unit, member), after), after))
        for (_, unit), pairs in sides.items():
            passes = all(before * after < 0 for before, after in pairs)
            total += passes
            if recorder is not None and all((before > 0) != (after > 0) for before, after in pairs):
                recorder.add(line, node, [unit], [alpha], passes)
    if recorder is not None:
        recorder.commit()
    return total


def link_parts(parts: Iterator[SweepPart], recorder: LayerRecorder | None = None) -> Iterator[SweepPart]:
    """Parts of one line, changed so that each starts with the last point of the previous one."""
    last: SweepPart | None = None
    for part in parts:
        if last is not None and part.continues and recorder is not None:
            record_shared_point(last, part, recorder)
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
