"""A network from a file as a torch module, whose submodules are the nodes: so that errors can name them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...errors import ArgumentError
from ...network.graph import Network
from ...network.smooth_network import SmoothNetwork, list_nodes
from ...ops.base import Input


class NetworkModule(nn.Module):
    """Evaluates the nodes of a network one after another, and the smooth operators behind its outputs.

    Args:
        network: The network.
        output: Which output, by its name or index, if the network has several.

    Raises ArgumentError if there is no such output, or if it is not said which of several.
    """

    def __init__(self, network: Network | SmoothNetwork, output: str | int | None = None) -> None:
        super().__init__()
        nodes = list_nodes(network)
        if output is None and nodes.several_outputs:
            raise ArgumentError(
                "A proven bound is for one output.",
                where="argument output",
                hint=f"Give output=, one of {', '.join(nodes.list_output_names())}.",
            )
        self.network = (nodes if output is None else nodes.output(output)).to("cpu")
        self.names: dict[int, str] = {}  # of the submodules, by index of the node
        for i, node in enumerate(self.network.nodes):
            if not isinstance(node.op, Input):
                self.names[i] = f"{node.name.replace('.', '/')}:{i}"
                self.add_module(self.names[i], _Operator(node.op.evaluate))
        tail = self.network.tails[0]
        self.tail = nn.Identity() if tail is None else _Operator(tail.apply)

    def forward(self, *xs: Tensor) -> Tensor:
        values = dict(zip(self.network.inputs, xs, strict=True))
        for i, name in self.names.items():
            values[i] = self.get_submodule(name)(*(values[j] for j in self.network.nodes[i].inputs))
        return self.tail(values[self.network.outputs[0]])


class _Operator(nn.Module):
    """One operator of a network."""

    def __init__(self, evaluate: Any) -> None:
        super().__init__()
        self.evaluate = evaluate

    def forward(self, *xs: Tensor) -> Tensor:
        return self.evaluate(*xs)
