"""One call of the legacy protocol: a network layer by layer, then lines and polytopes to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from ..limits import Limits
from ..protos import syrenn_server_pb2 as wire
from .layers import ActivationShape, LegacyLayer, read_layer, request_error
from .network import build_network
from .polygon import read_polytopes
from .responses import Responder, read_endpoints

if TYPE_CHECKING:
    from ..server.worker import JobContext


def handle_transform(context: JobContext) -> Iterator[bytes]:
    """Answer each input of a worker's job: with nothing for a layer, with a response for a line or polytope."""
    session = TransformSession(context.limits)
    for data in context.receive_inputs():
        response = session.add_request(read_request(data))
        context.counters = {"lines": session.queries, "breaks": session.breaks}
        yield b"" if response is None else response.SerializeToString()


def read_request(data: bytes) -> Any:
    """Read a TransformRequest."""
    try:
        return wire.TransformRequest.FromString(data)
    except DecodeError:
        raise request_error(
            "A message cannot be decoded.", "the call", "Send messages of syrenn_server.TransformRequest."
        ) from None


def transform(requests: Iterable[Any], limits: Limits) -> Iterator[Any]:
    """Yield one response for each line and each polytope among the requests of a call.

    Raises ArgumentError, LineError, PlaneError, NumberError, LimitError.
    """
    session = TransformSession(limits)
    for request in requests:
        response = session.add_request(request)
        if response is not None:
            yield response


@dataclass
class TransformSession:
    """The state of one call."""

    limits: Limits
    layers: list[LegacyLayer] = field(default_factory=list[LegacyLayer])
    output_shape: ActivationShape | None = None  # of the last layer, if the layers so far determine it
    queries: int = 0  # lines and polytopes so far
    breaks: int = 0  # in all responses
    responders: dict[int, Responder] = field(default_factory=dict[int, Responder])  # by the size of the input

    def add_request(self, request: Any) -> Any:
        """Take the next request; returns the response to a line or polytope, None for a layer."""
        kind = request.WhichOneof("request_data")
        if kind == "layer":
            self._add_layer(request.layer)
            return None
        if kind is None:
            raise request_error(
                "The message holds no layer, line or polytope.", self._position, "Set one of request_data."
            )
        self.queries += 1
        self.limits.check("lines_per_call", self.queries, "lines and polytopes")
        if kind == "line":
            start, end = read_endpoints(request.line, f"line {self.queries}")
            response = self._responder(len(start)).transform_line(start, end, request.include_post)
            self.breaks += len(response.transformed_line.endpoints)
            return response
        message = request.upolytope
        polytopes = read_polytopes(message, f"polytope {self.queries}")
        return self._responder(message.space_dimensions).transform_polytopes(polytopes, message.subspace_dimensions)

    @property
    def _position(self) -> str:
        return f"message {len(self.layers) + self.queries + 1}"

    def _add_layer(self, message: Any) -> None:
        if self.queries:
            raise request_error("A layer comes after a line or a polytope.", self._position, "Send all layers first.")
        if self._has_argmax():
            raise request_error("A layer comes after ArgMax.", self._position, "ArgMax may only be the last layer.")
        self.limits.check("legacy_layers", len(self.layers) + 1, "layers")
        layer = read_layer(message, f"layer {len(self.layers) + 1}")
        input_shape = self.output_shape
        if input_shape is None and (size := layer.input_size()) is not None:
            input_shape = ActivationShape(size)
        self.output_shape = None if input_shape is None else layer.output_shape(input_shape)
        self.layers.append(layer)

    def _has_argmax(self) -> bool:
        return bool(self.layers) and self.layers[-1].kind == "ArgMax"

    def _responder(self, size: int) -> Responder:
        """Return the responder for inputs of a size; only the last one is kept."""
        if size not in self.responders:
            self.responders = {size: Responder(build_network(self.layers, size), self._has_argmax(), self.limits)}
        return self.responders[size]
