"""Answers as streams of messages: a head, rows in pieces of bounded size, a tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..codec import KINDS, raw
from ..protos.exactline.v1 import exactline_pb2 as pb

if TYPE_CHECKING:
    from ...network import Network

OFTEN = 0.1  # seconds between two words on progress


@dataclass(frozen=True)
class Column:
    """An array of an answer."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] = ()  # of one row

    @property
    def bytes(self) -> int:
        """Of one row."""
        return prod(self.shape) * torch.empty(0, dtype=self.dtype).element_size()


def head(columns: Sequence[Column], network: Network, checksum: str, lines: int = 0) -> bytes:
    """What the arrays are, and what the network is called."""
    return pb.Answer(
        head=pb.Head(
            fields=[pb.Field(name=c.name, dtype=KINDS[c.dtype], shape=c.shape) for c in columns],
            names=[node.name for node in network.nodes],
            units=[pb.Unit(operator=name, count=count) for name, count in network.units.items()],
            several_inputs=network.several_inputs,
            several_outputs=network.several_outputs,
            checksum=checksum,
            outputs=network.outputs,
            output_shapes=[pb.Shape(dims=network.nodes[i].shape) for i in network.outputs],
            lines=lines,
        )
    ).SerializeToString()


def breaks(columns: Sequence[Column], tensors: Sequence[Tensor], line: Tensor, most: int) -> Iterator[bytes]:
    """Rows that are breaks, all arrays side by side, at most so many bytes in one message."""
    row = sum(c.bytes for c in columns)
    if row > most:
        for at in range(len(line)):
            single = [(i, raw(t[at])) for i, t in enumerate(tensors)]
            pieces = [(i, data[k : k + most]) for i, data in single for k in range(0, len(data), most)]
            yield from (_rows([piece], int(line[at]), [1] if n == 0 else []) for n, piece in enumerate(pieces))
        return
    step = max(1, most // max(row, 1))
    for at in range(0, len(line), step):
        here = line[at : at + step]
        counts = torch.bincount(here - here[0]).tolist()
        yield _rows([(i, raw(t[at : at + step])) for i, t in enumerate(tensors)], int(here[0]), counts)


def arrays(tensors: Sequence[Tensor], most: int, first: int = 0) -> Iterator[bytes]:
    """Whole arrays, one after another; small ones share a message. ``first`` is the place of the first of them."""
    waiting: list[tuple[int, bytes]] = []
    size = 0
    for i, tensor in enumerate(tensors, first):
        data = memoryview(raw(tensor))
        for at in range(0, len(data), most):
            piece = bytes(data[at : at + most])
            if size + len(piece) > most:
                yield _rows(waiting)
                waiting, size = [], 0
            waiting.append((i, piece))
            size += len(piece)
    if waiting:
        yield _rows(waiting)


def _rows(pieces: Sequence[tuple[int, bytes]], first: int = 0, counts: Sequence[int] = ()) -> bytes:
    made = [pb.Piece(field=i, data=data) for i, data in pieces]
    return pb.Answer(rows=pb.Rows(pieces=made, first_line=first, counts=counts)).SerializeToString()


def tail(**facts: float | str) -> bytes:
    """The end of an answer."""
    return pb.Answer(tail=pb.Tail(**facts)).SerializeToString()  # pyright: ignore[reportArgumentType]


def part_end(seconds: float, stopped: str, error: float, engine: str) -> bytes:
    """The end of a part of a sweep."""
    end = pb.PartEnd(seconds=seconds, stopped=stopped, error=error, engine=engine)
    return pb.Answer(part_end=end).SerializeToString()


class Teller:
    """Tells progress, not more often than anybody reads it."""

    def __init__(self, say: Callable[[bytes], None], wanted: bool) -> None:
        self._say, self._wanted = say, wanted
        self._last = 0.0

    def __call__(self, share: float, count: int) -> None:
        now = time.monotonic()
        if self._wanted and (now - self._last > OFTEN or share >= 1):
            self._last = now
            self._say(pb.Answer(progress=pb.Progress(share=share, count=count)).SerializeToString())
