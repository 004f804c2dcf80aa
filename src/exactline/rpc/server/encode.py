"""Answers as streams of messages: a head, arrays in pieces of bounded size, a tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..codec import WIRE_DTYPES, encode_bytes
from ..protos.exactline.v1 import exactline_pb2 as pb

if TYPE_CHECKING:
    from ...network import Network

MAX_JOINED_BYTES = 1 << 18  # of a message that another one may be joined to
PROGRESS_SECONDS = 0.1  # between two progress messages


def encode_head(
    arrays: Mapping[str, Tensor],  # (rows, *shape) each
    network: Network,
    checksum: str,
    lines: int = 0,
    *,
    joined: bool = False,  # whether more may follow in the same message
) -> bytes:
    """Encode the names, types and row shapes of the arrays of an answer, and the names of the network's nodes."""
    head = pb.Head(
        fields=[
            pb.Field(name=name, dtype=WIRE_DTYPES[array.dtype], shape=array.shape[1:]) for name, array in arrays.items()
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
    return (pb.Answer(first_head=head) if joined else pb.Answer(head=head)).SerializeToString()


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


def encode_tail(*, joined: bool = False, **fields: Any) -> bytes:
    """Encode the end of an answer, joined to what comes before or not; the fields are those of the message Tail."""
    tail = pb.Tail(**fields)
    return (pb.Answer(last_tail=tail) if joined else pb.Answer(tail=tail)).SerializeToString()


def encode_part_end(seconds: float, stopped: str, error: float, engine: str) -> bytes:
    """Encode the end of a part of a sweep."""
    end = pb.PartEnd(seconds=seconds, stopped=stopped, error=error, engine=engine)
    return pb.Answer(part_end=end).SerializeToString()


class AnswerWriter:
    """Sends the messages of an answer; a small one is a single message if the client allows it.

    Args:
        send: sends a message at once.
        hold: sends a message together with the next one.
        joined: whether the client takes a head and a tail with other parts.
    """

    def __init__(self, send: Callable[[bytes], None], hold: Callable[[bytes], None], joined: bool) -> None:
        self._send, self._hold, self._joined = send, hold, joined
        self._pending, self._has_rows = b"", False

    def head(
        self,
        arrays: Mapping[str, Tensor],  # (rows, *shape) each
        network: Network,
        checksum: str,
        lines: int = 0,
    ) -> None:
        """Write the head; see `encode_head`."""
        self._pending = encode_head(arrays, network, checksum, lines, joined=self._joined)

    @property
    def has_head(self) -> bool:
        """Whether the head was written."""
        return bool(self._pending)

    def rows(self, messages: Iterable[bytes]) -> None:
        """Write messages of rows; the last one waits for what follows."""
        for message in messages:
            if self._joined and not self._has_rows and len(self._pending) <= MAX_JOINED_BYTES:
                self._pending += message  # protobuf merges messages whose bytes are joined
            else:
                self._send(self._pending)
                self._pending = message
            self._has_rows = True

    def tail(self, **fields: Any) -> None:
        """Write the tail; see `encode_tail`."""
        if self._joined and len(self._pending) <= MAX_JOINED_BYTES:
            self._hold(self._pending + encode_tail(joined=True, **fields))
        else:
            self._hold(self._pending)
            self._hold(encode_tail(**fields))


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
