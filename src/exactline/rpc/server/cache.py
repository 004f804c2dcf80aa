"""Models that a worker keeps ready, as many as fit a budget of bytes; those not used for longest go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import FileError
from .ipc import Model

if TYPE_CHECKING:
    from ...network import Network


class Cache:
    """Networks by the digest of their file and the way it is read."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: OrderedDict[Model, tuple[Network, int]] = OrderedDict()
        self.bytes = self.hits = self.misses = 0
        self._checksums: dict[Model, str] = {}

    def network(self, model: Model, fetch: Callable[[], bytes]) -> Network:
        """The network of a model, read from its file where it is not at hand."""
        if model in self.held:
            self.hits += 1
            self.held.move_to_end(model)
            return self.held[model][0]
        self.misses += 1
        network = read(model, fetch())
        self.add(model, network, _bytes(network))
        return network

    def add(self, model: Model, network: Network, size: int) -> None:
        """Keep one more, and let others go until all fit; one that never could is not kept."""
        if size > self.most:
            return
        self.held[model] = network, size
        self.bytes += size
        while self.bytes > self.most:
            model, (_, gone) = self.held.popitem(last=False)
            self.bytes -= gone
            self._checksums.pop(model, None)

    def checksum(self, model: Model, network: Network) -> str:
        """A short name for the numbers of a network, worked out once for those that are kept."""
        found = self._checksums.get(model) or network.checksum()
        if model in self.held:
            self._checksums[model] = found
        return found

    def facts(self) -> dict[str, Any]:
        """How full it is."""
        return {"models": len(self.held), "bytes": self.bytes, "hits": self.hits, "misses": self.misses}


def read(model: Model, data: bytes) -> Network:
    """A network out of the bytes of a file; what a file says lies elsewhere is not fetched.

    Raises FileError where it is damaged or of a format we do not know, UnsupportedError as exactline.load does.
    """
    if model.ending == ".onnx":
        from ...formats.onnx import read_onnx

        return read_onnx(data, "model", folder=None, shape=model.shape)
    if model.ending == ".nnet":
        from ...formats.nnet import read_nnet

        return read_nnet(data, "model", normalize=model.normalize)
    if model.ending == ".eran":
        from ...formats.eran import read_eran

        return read_eran(data, "model")
    raise FileError(f"{model.ending!r} is not a format we know.", where="model", hint="Give .onnx, .nnet or .eran.")


def _bytes(network: Network) -> int:
    from dataclasses import fields

    from torch import Tensor

    held = (getattr(node.op, field.name) for node in network.nodes for field in fields(node.op))
    sizes = {id(v): v.numel() * v.element_size() for v in held if isinstance(v, Tensor)}
    return sum(sizes.values()) + 1024 * len(network.nodes)
