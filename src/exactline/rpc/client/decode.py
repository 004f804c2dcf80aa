"""Answers as they come in, message by message, until they are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from ...errors import ExactlineError, ServiceError
from ...progress import ProgressCallback
from ..codec import rows_of
from ..protos.exactline.v1 import exactline_pb2 as pb


@dataclass
class Reader:
    """Gathers the arrays of an answer."""

    report: ProgressCallback | None = None
    head: pb.Head = field(default_factory=pb.Head)
    tail: pb.Tail | None = None
    part: pb.PartEnd | None = None  # the end of a part, where the last message was one
    counts: dict[int, int] = field(default_factory=dict[int, int])  # breaks by line
    pieces: list[list[bytes]] = field(default_factory=list[list[bytes]])

    def take(self, data: bytes) -> None:
        """One more message."""
        try:
            answer = pb.Answer.FromString(data)
        except DecodeError as problem:
            raise _odd() from problem
        kind = answer.WhichOneof("part")
        self.part = None
        if kind == "rows":
            self._rows(answer.rows)
        elif kind == "progress":
            if self.report is not None:
                self.report(answer.progress.share, answer.progress.count)
        elif kind == "head":
            self.head = answer.head
            self.pieces = [[] for _ in answer.head.fields]
        elif kind == "part_end":
            self.part = answer.part_end
        elif kind == "tail":
            self.tail = answer.tail

    def _rows(self, rows: pb.Rows) -> None:
        for line, count in enumerate(rows.counts, rows.first_line):
            self.counts[line] = self.counts.get(line, 0) + count
        for piece in rows.pieces:
            if piece.field >= len(self.pieces):
                raise _odd()
            self.pieces[piece.field].append(piece.data)

    @property
    def names(self) -> list[str]:
        """Of the arrays."""
        return [f.name for f in self.head.fields]

    def array(self, name: str, rows: int = -1) -> Tensor:
        """A whole array; ``rows`` where their number is known."""
        try:
            place = self.names.index(name)
            kind = self.head.fields[place]
            return rows_of(self.pieces[place], kind.dtype, [rows, *kind.shape], "answer")
        except (ValueError, KeyError, IndexError, ExactlineError) as problem:
            raise _odd() from problem

    def group(self, prefix: str, rows: int = -1) -> tuple[Tensor, ...]:
        """The arrays prefix.0, prefix.1 and so on."""
        return tuple(self.array(name, rows) for name in self.names if name.startswith(f"{prefix}."))

    @property
    def breaks(self) -> int:
        """Rows of all lines."""
        return sum(self.counts.values())

    def offsets(self, lines: int) -> Tensor:
        """(lines + 1,) where the breaks of each line begin."""
        if self.counts and max(self.counts) >= lines:
            raise _odd()
        counts = [0, *(self.counts.get(line, 0) for line in range(lines))]
        return torch.tensor(counts, dtype=torch.int64).cumsum(0)

    def forget(self) -> None:
        """Rows are read; the next part begins."""
        self.counts = {}
        self.pieces = [[] for _ in self.pieces]

    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Of the outputs."""
        return [tuple(shape.dims) for shape in self.head.output_shapes]

    def whole(self) -> pb.Tail:
        """The tail, which an answer that was cut off has not."""
        if self.tail is None:
            raise _odd()
        return self.tail


def _odd() -> ServiceError:
    return ServiceError(
        "The server's answer is not what it should be.", where="answer", hint="Are client and server of one version?"
    )
