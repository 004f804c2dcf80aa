"""The networks that a worker keeps in memory, up to a number of bytes; the least recently used are dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from ...errors import FileError
from ...network.smooth_network import list_nodes
from .ipc import ModelKey

if TYPE_CHECKING:
    from ...network import Network, SmoothNetwork

NetworkT = TypeVar("NetworkT", bound="Network | SmoothNetwork")
NODE_BYTES = 1024  # counted for each node besides its tensors


class NetworkCache:
    """Networks by the digest of their file, or of the layers of a legacy call, and how it is read."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.entries: OrderedDict[ModelKey, tuple[Network | SmoothNetwork, int]] = OrderedDict()  # with their bytes
        self.bytes = self.hits = self.misses = 0
        self._checksums: dict[ModelKey, str] = {}

    def network(self, model: ModelKey, fetch: Callable[[], bytes]) -> Network | SmoothNetwork:
        """Return the network of a model; ``fetch`` returns its file if it is not cached."""
        return self.get_or_build(model, lambda: read_network(model, fetch()))

    def get_or_build(self, model: ModelKey, build: Callable[[], NetworkT]) -> NetworkT:
        """Return the network of a model; ``build`` makes it if it is not cached."""
        if model in self.entries:
            self.hits += 1
            self.entries.move_to_end(model)
            found: Any = self.entries[model][0]
            return found
        self.misses += 1
        network = build()
        self.add(model, network, _network_bytes(network))
        return network

    def add(self, model: ModelKey, network: Network | SmoothNetwork, size: int) -> None:
        """Cache a network unless it is too large by itself, and drop others until all fit."""
        if size > self.max_bytes:
            return
        self.entries[model] = network, size
        self.bytes += size
        while self.bytes > self.max_bytes:
            dropped, (_, dropped_bytes) = self.entries.popitem(last=False)
            self.bytes -= dropped_bytes
            self._checksums.pop(dropped, None)

    def checksum(self, model: ModelKey, network: Network | SmoothNetwork) -> str:
        """Return the checksum of a network, computed once for cached ones."""
        checksum = self._checksums.get(model) or list_nodes(network).checksum()
        if model in self.entries:
            self._checksums[model] = checksum
        return checksum

    def counters(self) -> dict[str, Any]:
        """Return how many models and bytes are cached, and how often the cache was hit."""
        return {"models": len(self.entries), "bytes": self.bytes, "hits": self.hits, "misses": self.misses}


def read_network(model: ModelKey, data: bytes) -> Network | SmoothNetwork:
    """Read a network from the bytes of a file; data that the file keeps elsewhere is not fetched.

    Raises FileError if it is damaged or its format is unknown, UnsupportedError as exactline.load does.
    """
    if model.suffix == ".onnx":
        from ...formats.onnx import read_onnx

        return read_onnx(data, "model", folder=None, shape=model.shape)
    if model.suffix == ".nnet":
        from ...formats.nnet import read_nnet

        return read_nnet(data, "model", normalize=model.normalize)
    if model.suffix == ".eran":
        from ...formats.eran import read_eran

        return read_eran(data, "model")
    raise FileError(
        f"{model.suffix!r} is not a supported format.", where="model", hint="Give a file of .onnx, .nnet or .eran."
    )


def _network_bytes(network: Network | SmoothNetwork) -> int:
    nodes = list_nodes(network).nodes
    values = [getattr(node.op, field.name) for node in nodes for field in fields(node.op)]
    tensors = [
        v for value in values for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Tensor)
    ]
    sizes = {id(t): t.numel() * t.element_size() for t in tensors}
    return sum(sizes.values()) + NODE_BYTES * len(nodes)
