"""The service that existing clients speak: a network layer by layer, then lines and polytopes to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from ..limits import Limits
from ..protos import syrenn_server_pb2 as wire
from .answers import Answerer, ends_of
from .layers import Extent, Layer, bad, read_layer
from .network import network_of
from .polygon import polytopes_of

if TYPE_CHECKING:
    from ..server.worker import Task


def work(task: Task) -> Iterator[bytes]:
    """A worker's part: nothing for a layer, the answer for a line or a polytope, as bytes in and out."""
    transformer = Transformer(task.limits)
    for data in task.inputs():
        made = transformer.take(read_request(data))
        task.facts = {"lines": transformer.asked, "breaks": transformer.breaks}
        yield b"" if made is None else made.SerializeToString()


def read_request(data: bytes) -> Any:
    """A TransformRequest out of its bytes."""
    try:
        return wire.TransformRequest.FromString(data)
    except DecodeError:
        raise bad("A message cannot be read.", "the call", "Send messages of syrenn_server.TransformRequest.") from None


def transform(requests: Iterable[Any], limits: Limits) -> Iterator[Any]:
    """One answer for each line and each polytope among a call's messages.

    Raises ArgumentError, LineError, PlaneError, NumberError; LimitError where a limit ends the call.
    """
    transformer = Transformer(limits)
    for request in requests:
        answer = transformer.take(request)
        if answer is not None:
            yield answer


@dataclass
class Transformer:
    """One call, as far as it got."""

    limits: Limits
    layers: list[Layer] = field(default_factory=list[Layer])
    extent: Extent | None = None  # what the last layer gives, as far as it is known
    asked: int = 0
    breaks: int = 0  # in all answers
    answerer: tuple[int, Answerer] | None = None  # the network, for points of so many numbers

    def take(self, request: Any) -> Any:
        """The next message: None for a layer, the answer to a line or a polytope."""
        kind = request.WhichOneof("request_data")
        if kind == "layer":
            self._layer(request.layer)
            return None
        if kind is None:
            raise bad("The message holds no layer, no line and no polytope.", self._here, "Set one of request_data.")
        self.asked += 1
        self.limits.within("lines_per_call", self.asked, "lines and polytopes")
        if kind == "line":
            start, end = ends_of(request.line, f"line {self.asked}")
            made = self._answerer(len(start)).line(start, end, request.include_post)
            self.breaks += len(made.transformed_line.endpoints)
            return made
        asked = request.upolytope
        polytopes = polytopes_of(asked, f"polytope {self.asked}")
        return self._answerer(asked.space_dimensions).upolytope(polytopes, asked.subspace_dimensions)

    @property
    def _here(self) -> str:
        return f"message {len(self.layers) + self.asked + 1}"

    def _layer(self, message: Any) -> None:
        if self.asked:
            raise bad("A layer comes after a line or a polytope.", self._here, "Send all layers first.")
        if self.layers and self.layers[-1].title == "ArgMax":
            raise bad("A layer comes after ArgMax.", self._here, "ArgMax may only be the last layer.")
        self.limits.within("layers", len(self.layers) + 1, "layers")
        layer = read_layer(message, f"layer {len(self.layers) + 1}")
        known = self.extent if self.extent is not None else None if (n := layer.takes()) is None else Extent(n)
        self.extent = None if known is None else layer.after(known)
        self.layers.append(layer)

    def _answerer(self, size: int) -> Answerer:
        if self.answerer is None or self.answerer[0] != size:
            decides = bool(self.layers) and self.layers[-1].title == "ArgMax"
            self.answerer = (size, Answerer(network_of(self.layers, size), decides, self.limits))
        return self.answerer[1]
