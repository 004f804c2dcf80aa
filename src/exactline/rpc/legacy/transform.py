"""One call of the legacy protocol: a network layer by layer, then lines and polytopes to answer."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Floats
from ...errors import ExactlineError
from ..limits import Limits
from ..protos import syrenn_server_pb2
from .layers import ActivationShape, LegacyLayer, read_layer, request_error
from .network import build_network
from .polygon import Vertices, read_polytopes
from .responses import Responder, read_endpoints
from .wire_message import FieldCounter, WireMessage

if TYPE_CHECKING:
    from ...network.graph import Network
    from ..server.cache import NetworkCache
    from ..server.ipc import FrameSocket
    from ..server.worker import JobContext

REQUEST_DESCRIPTOR = syrenn_server_pb2.TransformRequest.DESCRIPTOR
LEGACY_SUFFIX = ".legacy"  # in the cache, where files have that of their names
GATHER_SECONDS = 0.0005  # without a new message, after which those that have arrived are answered
MAX_BATCH_BYTES = 64 << 20  # of messages that are answered together
MAX_BATCH_MESSAGES = 4096
MAX_CACHED_LAYER_BYTES = 16 << 20  # of the layers of a network that is kept for later calls; others are built each time
FLUSH_SECONDS = 0.05  # after which answers are sent before the others of their batch


def handle_transform(context: JobContext) -> Iterator[bytes]:
    """Answer each line or polytope among the inputs of a worker's job, those that have arrived together at once.

    The payload says how much of the call other workers have done: how many layers come first again, and how many
    lines and polytopes were answered.
    """
    from ..server import ipc

    done: dict[str, int] = json.loads(context.payload or b"{}")
    answered, replayed = done.get("answered", 0), done.get("layers", 0)
    session = TransformSession(context.limits, context.cache, queries=answered, replayed=replayed)
    frames, first = context.frames, 0
    for batch in _gather_inputs(frames):
        flushed_at, last = time.monotonic(), -1
        for last, answer in session.answer(batch):
            frames.hold(ipc.ANSWER, (first + last).to_bytes(ipc.NUMBER_BYTES, "little"), answer)
            if time.monotonic() - flushed_at > FLUSH_SECONDS or len(answer) > MAX_BATCH_MESSAGES:
                frames.flush()
                flushed_at = time.monotonic()
        first += len(batch)
        if last < len(batch) - 1:  # tells the front that layers were taken
            frames.hold(ipc.ANSWER, (first - 1).to_bytes(ipc.NUMBER_BYTES, "little"))
        frames.flush()
        context.counters = {"lines": session.queries - answered, "breaks": session.breaks}
    yield from ()


def _gather_inputs(frames: FrameSocket) -> Iterator[list[bytes]]:
    """Yield the inputs of a job, those that arrive together in one list."""
    from ..server import ipc

    is_open = True
    while is_open:
        kind, data = frames.receive()
        if kind != ipc.INPUT:
            return
        batch, size = [data], len(data)
        while size < MAX_BATCH_BYTES and len(batch) < MAX_BATCH_MESSAGES and frames.has_input(GATHER_SECONDS):
            kind, data = frames.receive()
            if kind != ipc.INPUT:
                is_open = False
                break
            batch.append(data)
            size += len(data)
        yield batch


def transform(messages: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    """Yield one response for each line and each polytope among the messages of a call.

    Raises ArgumentError, LineError, PlaneError, NumberError, LimitError.
    """
    for _, answer in TransformSession(limits).answer(list(messages)):
        yield answer


@dataclass(frozen=True)
class Query:
    """A line or the polytopes of one message."""

    index: int  # of the message in its batch
    size: int  # how many numbers a point has
    include_post: bool = False
    ends: tuple[Floats, Floats] | None = None  # (in,) each, of a line
    polytopes: tuple[list[Vertices], int] | None = None  # and the subspace_dimensions


@dataclass
class TransformSession:
    """The state of one call."""

    limits: Limits
    cache: NetworkCache | None = None  # of networks that earlier calls have built
    layers: list[LegacyLayer] = field(default_factory=list[LegacyLayer])
    output_shape: ActivationShape | None = None  # of the last layer, if the layers so far determine it
    layer_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)  # of the messages with layers
    queries: int = 0  # lines and polytopes so far
    replayed: int = 0  # layers that are still to come although lines or polytopes were answered
    breaks: int = 0  # in all responses
    responders: dict[int, Responder] = field(default_factory=dict[int, Responder])  # by the size of the input

    def answer(self, messages: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Take some messages; yields the index of each line or polytope among them, and its response.

        An error comes after the responses to the messages before it.
        """
        queries: list[Query] = []
        failure: ExactlineError | None = None
        for i, data in enumerate(messages):
            try:
                query = self.read_message(i, data)
            except ExactlineError as problem:
                failure = problem
                break
            if query is not None:
                queries.append(query)
        for _, group in groupby(queries, key=lambda q: (q.ends is None, q.size, q.include_post)):
            yield from self._answer_group(list(group))
        if failure is not None:
            raise failure

    def compute(self, queries: Sequence[Query]) -> int:
        """Answer queries that are read already; returns how many bytes the responses have: for measurements."""
        groups = groupby(queries, key=lambda q: (q.ends is None, q.size, q.include_post))
        return sum(len(response) for _, group in groups for _, response in self._answer_group(list(group)))

    def _answer_group(self, group: list[Query]) -> Iterator[tuple[int, bytes]]:
        """Answer queries of one kind together; if one of them fails, the others one by one."""
        answered = 0
        try:
            for query, response in zip(group, self._respond(group), strict=True):
                yield query.index, response
                answered += 1
        except ExactlineError:
            if len(group) == 1:
                raise
            for query in group[answered:]:
                yield from self._answer_group([query])

    def _respond(self, group: list[Query]) -> Iterator[bytes]:
        first = group[0]
        responder = self._responder(first.size)
        if first.ends is None:
            yield from responder.transform_planes([q.polytopes for q in group if q.polytopes is not None])
            return
        starts, ends = (np.stack([q.ends[side] for q in group if q.ends is not None]) for side in (0, 1))
        for breaks, response in responder.transform_lines(starts, ends, first.include_post):
            self.breaks += breaks
            yield response

    def read_message(self, index: int, data: bytes) -> Query | None:
        """Read the next message; returns a line or polytope, None for a layer."""
        request = read_request(data, self.limits)
        kind = request.WhichOneof("request_data")
        if kind == "layer":
            self._add_layer(request.layer, data)
            return None
        if kind is None:
            raise request_error(
                "The message holds no layer, line or polytope.", self._position, "Set one of request_data."
            )
        self.queries += 1
        self.limits.check("lines_per_call", self.queries, "lines and polytopes")
        if kind == "line":
            ends = read_endpoints(request.line, f"line {self.queries}")
            return Query(index, len(ends[0]), request.include_post, ends=ends)
        message = request.upolytope
        polytopes = read_polytopes(message, f"polytope {self.queries}")
        return Query(index, message.space_dimensions, polytopes=(polytopes, message.subspace_dimensions))

    @property
    def _position(self) -> str:
        return f"message {len(self.layers) + self.queries + 1}"

    def _add_layer(self, message: Any, data: bytes) -> None:
        if self.queries and not self.replayed:
            raise request_error("A layer comes after a line or a polytope.", self._position, "Send all layers first.")
        if self._has_argmax():
            raise request_error("A layer comes after ArgMax.", self._position, "ArgMax may only be the last layer.")
        self.replayed = max(0, self.replayed - 1)
        self.limits.check("legacy_layers", len(self.layers) + 1, "layers")
        self.layer_bytes += len(data)
        self.limits.check("legacy_call_bytes", self.layer_bytes, "bytes in all layers")
        layer = read_layer(message, f"layer {len(self.layers) + 1}")
        input_shape = self.output_shape
        if input_shape is None and (input_size := layer.input_size()) is not None:
            input_shape = ActivationShape(input_size)
        self.output_shape = None if input_shape is None else layer.output_shape(input_shape)
        self.layers.append(layer)
        if self.cache is not None and self.layer_bytes <= MAX_CACHED_LAYER_BYTES:
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def _has_argmax(self) -> bool:
        return bool(self.layers) and self.layers[-1].kind == "ArgMax"

    def _responder(self, size: int) -> Responder:
        """Return the responder for inputs of a size; only the last one is kept."""
        if size not in self.responders:
            self.responders = {size: Responder(self._build_network(size), self._has_argmax(), self.limits)}
        return self.responders[size]

    def _build_network(self, size: int) -> Network:
        """Return the network of the layers, from the cache if an earlier call has sent these layers."""
        if self.cache is None or self.layer_bytes > MAX_CACHED_LAYER_BYTES:
            return build_network(self.layers, size)
        from ..server.ipc import ModelKey

        key = ModelKey(self.digest.hexdigest(), LEGACY_SUFFIX, shape=(size,))
        return self.cache.get_or_build(key, lambda: build_network(self.layers, size))


def read_request(data: bytes, limits: Limits) -> WireMessage:
    """Read a TransformRequest."""
    return WireMessage(data, REQUEST_DESCRIPTOR, FieldCounter(limits))
