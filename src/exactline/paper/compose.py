"""Networks with another network in front of or behind them, as one graph."""

from __future__ import annotations

import torch

from ..formats.graph_builder import OperatorRecorder
from ..network import Network, Node
from ..network.builder import Value


def compose_networks(first: Network, second: Network) -> Network:
    """Join two networks: the single output of the first is the single input of the second."""
    (entry,) = second.inputs
    index_of = {entry: first.outputs[0]}
    nodes, names = list(first.nodes), {node.name for node in first.nodes}
    for i, node in enumerate(second.nodes):
        if i == entry:
            continue
        name = node.name
        while name in names:
            name = f"{name}.next"
        names.add(name)
        index_of[i] = len(nodes)
        nodes.append(Node(name, node.op, tuple(index_of[j] for j in node.inputs), node.shape, node.path))
    outputs = tuple(index_of[i] for i in second.outputs)
    return Network(tuple(nodes), outputs, second.tails, several_outputs=second.several_outputs)


def prepend_normalization(network: Network, mean: float, deviation: float) -> Network:
    """Return the network with ``(x - mean) / deviation`` in front of its input."""
    front = OperatorRecorder("the study")
    x: Value = front.add_input("image", network.nodes[network.inputs[0]].shape)
    for name, operator, number in (("mean", "sub.Tensor", mean), ("std", "div.Tensor", deviation)):
        front.begin_node(f"normalize.{name}")
        x = front.call(operator, x, torch.full((1, *x.shape), number, dtype=torch.float64))
    return compose_networks(front.build_network([x]), network)
