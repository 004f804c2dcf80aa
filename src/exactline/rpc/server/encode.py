"""Answers as streams of messages: a head, arrays in pieces of bounded size, a tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..codec import WIRE_DTYPES, encode_bytes
from ..protos.exactline.v1 import exactline_pb2 as pb

if TYPE_CHECKING:
    from ...network import Network

PROGRESS_SECONDS = 0.1  # between two progress messages


def encode_head(
    arrays: Mapping[str, Tensor],  # (rows, *shape) each
    network: Network,
    checksum: str,
    lines: int = 0,
) -> bytes:
    """Encode the names, types and row shapes of the arrays of an answer, and the names of the network's nodes."""
    return pb.Answer(
        head=pb.Head(
            fields=[
                pb.Field(name=name, dtype=WIRE_DTYPES[array.dtype], shape=array.shape[1:])
                for name, array in arrays.items()
            ],
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


def encode_breaks(
    arrays: Sequence[Tensor],  # (breaks, *shape) each
    line: Tensor,  # (breaks,) which line each break is on, ascending
    max_bytes: int,
) -> Iterator[bytes]:
    """Encode arrays whose rows are breaks, side by side, with at most so many bytes of arrays in one message."""
    row_bytes = sum(array[:1].numel() * array.element_size() for array in arrays) if len(line) else 0
    if row_bytes > max_bytes:
        for row in range(len(line)):
            data = [encode_bytes(array[row]) for array in arrays]
            pieces = [(i, d[at : at + max_bytes]) for i, d in enumerate(data) for at in range(0, len(d), max_bytes)]
            yield from (_encode_rows([piece], int(line[row]), [1] if n == 0 else []) for n, piece in enumerate(pieces))
        return
    step = max(1, max_bytes // max(row_bytes, 1))
    for at in range(0, len(line), step):
        lines = line[at : at + step]
        counts = torch.bincount(lines - lines[0]).tolist()
        pieces = [(i, encode_bytes(array[at : at + step])) for i, array in enumerate(arrays)]
        yield _encode_rows(pieces, int(lines[0]), counts)


def encode_arrays(arrays: Sequence[Tensor], max_bytes: int, first_field: int = 0) -> Iterator[bytes]:
    """Encode whole arrays, one after another; small ones share a message.

    Args:
        arrays: the arrays, of any shapes.
        max_bytes: of arrays in one message.
        first_field: the index of the first array among the fields of the head.
    """
    pieces: list[tuple[int, bytes]] = []
    size = 0
    for i, array in enumerate(arrays, first_field):
        data = memoryview(encode_bytes(array))
        for at in range(0, len(data), max_bytes):
            piece = bytes(data[at : at + max_bytes])
            if size + len(piece) > max_bytes:
                yield _encode_rows(pieces)
                pieces, size = [], 0
            pieces.append((i, piece))
            size += len(piece)
    if pieces:
        yield _encode_rows(pieces)


def _encode_rows(
    pieces: Sequence[tuple[int, bytes]],  # field and bytes
    first_line: int = 0,
    counts: Sequence[int] = (),  # rows of the first line, of the next one, and so on
) -> bytes:
    messages = [pb.Piece(field=field, data=data) for field, data in pieces]
    return pb.Answer(rows=pb.Rows(pieces=messages, first_line=first_line, counts=counts)).SerializeToString()


def encode_tail(**fields: float | str) -> bytes:
    """Encode the end of an answer; the fields are those of the message Tail."""
    return pb.Answer(tail=pb.Tail(**fields)).SerializeToString()  # pyright: ignore[reportArgumentType]


def encode_part_end(seconds: float, stopped: str, error: float, engine: str) -> bytes:
    """Encode the end of a part of a sweep."""
    end = pb.PartEnd(seconds=seconds, stopped=stopped, error=error, engine=engine)
    return pb.Answer(part_end=end).SerializeToString()


class ProgressSender:
    """A progress callback that sends messages, at most one per PROGRESS_SECONDS, if the client asks for them."""

    def __init__(self, send: Callable[[bytes], None], wanted: bool) -> None:
        self._send, self._wanted = send, wanted
        self._last = 0.0

    def __call__(self, share: float, count: int) -> None:
        now = time.monotonic()
        if self._wanted and (now - self._last > PROGRESS_SECONDS or share >= 1):
            self._last = now
            self._send(pb.Answer(progress=pb.Progress(share=share, count=count)).SerializeToString())
