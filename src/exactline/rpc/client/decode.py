"""Collects the messages of an answer until it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from ...errors import ExactlineError, ServiceError
from ...progress import ProgressCallback
from ..codec import decode_rows
from ..protos.exactline.v1 import exactline_pb2 as pb


@dataclass
class AnswerReader:
    """Joins the arrays of an answer from its messages.

    Raises ServiceError if the answer is malformed or incomplete.
    """

    report: ProgressCallback | None = None
    head: pb.Head = field(default_factory=pb.Head)
    tail: pb.Tail | None = None
    part_end: pb.PartEnd | None = None  # the last message, if it was the end of a part of a sweep
    break_counts: dict[int, int] = field(default_factory=dict[int, int])  # by line
    pieces: list[list[bytes]] = field(default_factory=list[list[bytes]])  # by field of the head

    def add(self, data: bytes) -> None:
        """Add the next message."""
        try:
            answer = pb.Answer.FromString(data)
        except DecodeError as problem:
            raise _answer_error() from problem
        kind = answer.WhichOneof("part")
        self.part_end = None
        if answer.HasField("first_head"):
            self._add_head(answer.first_head)
        if answer.HasField("last_tail"):
            self.tail = answer.last_tail
        if kind == "rows":
            self._add_rows(answer.rows)
        elif kind == "progress":
            if self.report is not None:
                self.report(answer.progress.share, answer.progress.count)
        elif kind == "head":
            self._add_head(answer.head)
        elif kind == "part_end":
            self.part_end = answer.part_end
        elif kind == "tail":
            self.tail = answer.tail

    def _add_head(self, head: pb.Head) -> None:
        self.head = head
        self.pieces = [[] for _ in head.fields]

    def _add_rows(self, rows: pb.Rows) -> None:
        for line, count in enumerate(rows.counts, rows.first_line):
            self.break_counts[line] = self.break_counts.get(line, 0) + count
        for piece in rows.pieces:
            if piece.field >= len(self.pieces):
                raise _answer_error()
            self.pieces[piece.field].append(piece.data)

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return [f.name for f in self.head.fields]

    def array(self, name: str, rows: int = -1) -> Tensor:
        """Return a whole array (rows, *shape); -1 takes as many rows as there are."""
        try:
            i = self.names.index(name)
            row = self.head.fields[i]
            return decode_rows(self.pieces[i], row.dtype, [rows, *row.shape], "answer")
        except (ValueError, KeyError, IndexError, ExactlineError) as problem:
            raise _answer_error() from problem

    def arrays(self, prefix: str, rows: int = -1) -> tuple[Tensor, ...]:
        """Return the arrays prefix.0, prefix.1 and so on."""
        return tuple(self.array(name, rows) for name in self.names if name.startswith(f"{prefix}."))

    @property
    def break_count(self) -> int:
        """The number of breaks of all lines."""
        return sum(self.break_counts.values())

    def offsets(self, lines: int) -> Tensor:
        """Return where the breaks of each line begin, (lines + 1,)."""
        if self.break_counts and max(self.break_counts) >= lines:
            raise _answer_error()
        counts = [0, *(self.break_counts.get(line, 0) for line in range(lines))]
        return torch.tensor(counts, dtype=torch.int64).cumsum(0)

    def clear_rows(self) -> None:
        """Drop the rows of a part of a sweep, before the next part."""
        self.break_counts = {}
        self.pieces = [[] for _ in self.pieces]

    def output_shapes(self) -> Sequence[tuple[int, ...]]:
        """Return the shapes of the network's outputs."""
        return [tuple(shape.dims) for shape in self.head.output_shapes]

    def require_tail(self) -> pb.Tail:
        """Return the tail; an answer without one is incomplete."""
        if self.tail is None:
            raise _answer_error()
        return self.tail


def _answer_error() -> ServiceError:
    return ServiceError(
        "The server's answer is malformed or incomplete.",
        where="answer",
        hint="Do client and server have the same version?",
    )
