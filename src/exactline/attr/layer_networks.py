"""Networks with a watched layer: ReLUs and maxima are fused before and behind the layer, never across it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ..network import Network, Node
from ..network.simplify import fuse_relu_with_maximum, remove_dead_nodes
from ..ops.affine import Scale
from ..ops.base import Input
from ..ops.pointwise import Pointwise
from .inputs import select_first_output

LayerNetworks: TypeAlias = dict[tuple[int, ...], tuple[Network, list[int]]]  # by the nodes of the layer's tensors
_fused_networks: weakref.WeakKeyDictionary[Network, LayerNetworks] = weakref.WeakKeyDictionary()
_networks_before_relus: weakref.WeakKeyDictionary[Network, LayerNetworks] = weakref.WeakKeyDictionary()


def fuse_around_layer(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]]:
    """Fuse ReLUs and maxima of a network, but leave the gradients at some nodes as they are.

    Returns the network with its first output only, and the indices that the nodes have there.
    """
    known = _fused_networks.setdefault(network, {})
    if tuple(nodes) not in known:
        known[tuple(nodes)] = _fuse_between(network, nodes)
    return known[tuple(nodes)]


def watch_before_relus(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]]:
    """Watch the input of each ReLU instead of its result, where both have one reader.

    As much of the output's change flows through either, unit by unit. A max pool behind the ReLU can then be fused with
    it, so that units that are off do not tie there.
    """
    known = _networks_before_relus.setdefault(network, {})
    if tuple(nodes) not in known:
        known[tuple(nodes)] = _move_before_relus(network, nodes)
    return known[tuple(nodes)]


def _fuse_between(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]]:
    outputs, tails = (network.outputs[0], *nodes), (network.tails[0], *(None for _ in nodes))
    opened = replace(network, outputs=outputs, tails=tails, several_outputs=True, output_names=(), device_copies={})
    fused = remove_dead_nodes(fuse_relu_with_maximum(opened, passes_outputs=False))
    return select_first_output(fused), list(fused.outputs[1:])


def _move_before_relus(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]]:
    watched, redirected = list[int](), network
    for i in nodes:
        relu = network.nodes[i].inputs[0] if _is_identity(network.nodes[i]) else i
        is_chain = _is_relu(network.nodes[relu]) and (relu == i or _count_readers(network, relu) == 1)
        source = network.nodes[relu].inputs[0] if is_chain else i
        if not is_chain or isinstance(network.nodes[source].op, Input) or _count_readers(network, source) > 1:
            watched.append(i)
            continue
        redirected = _redirect_readers(redirected, i, relu)
        watched.append(source)
    return (network, list(nodes)) if watched == list(nodes) else _fuse_between(redirected, watched)


def _is_relu(node: Node) -> bool:
    return isinstance(node.op, Pointwise) and node.op.is_relu


def _is_identity(node: Node) -> bool:
    """Whether a node multiplies by one, as that which marks the layer does."""
    op = node.op
    if not isinstance(op, Scale) or op.weight is None or op.divisor is not None or op.offset is not None:
        return False
    return op.weight.numel() == 1 and float(op.weight) == 1.0


def _count_readers(network: Network, i: int) -> int:
    return sum(j == i for node in network.nodes for j in node.inputs) + sum(j == i for j in network.outputs)


def _redirect_readers(network: Network, old: int, new: int) -> Network:
    """Let the readers of one node read another one."""
    if old == new:
        return network
    nodes = (replace(n, inputs=tuple(new if j == old else j for j in n.inputs)) for n in network.nodes)
    return replace(network, nodes=tuple(nodes), outputs=tuple(new if j == old else j for j in network.outputs))
