"""Networks with a watched layer: ReLUs and maxima are fused before and behind the layer, never across it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from ..network import Network, Node
from ..network.simplify import fuse_relu_with_maximum, remove_dead_nodes
from ..ops.affine import Rearrange, Reshape, Scale
from ..ops.base import Input
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from .inputs import select_first_output

LayerNetworks: TypeAlias = dict[tuple[int, ...], tuple[Network, list[int]]]  # by the nodes of the layer's tensors
# None for the network itself, which must not keep its own entry alive
MovedNetworks: TypeAlias = dict[tuple[int, ...], tuple[Network, list[int]] | None]
PoolNetworks: TypeAlias = dict[tuple[int, ...], tuple[Network, list[list[int]]]]
_fused_networks: weakref.WeakKeyDictionary[Network, LayerNetworks] = weakref.WeakKeyDictionary()
_networks_before_relus: weakref.WeakKeyDictionary[Network, MovedNetworks] = weakref.WeakKeyDictionary()
_networks_with_floors: weakref.WeakKeyDictionary[Network, PoolNetworks] = weakref.WeakKeyDictionary()


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
    return known[tuple(nodes)] or (network, list(nodes))


def watch_before_pools(network: Network, nodes: Sequence[int]) -> tuple[Network, list[list[int]]]:
    """Let max pools behind watched ReLUs read the inputs of these ReLUs, and the constant 0.

    Units that are off then do not tie. While the constant 0 leads, units of the layer still get the gradient, as
    `Maximum.floor_elements` says. Returns the network, whose gradients below the layer are incomplete, and for each
    watched node the nodes whose gradients add up to its own.
    """
    known = _networks_with_floors.setdefault(network, {})
    if tuple(nodes) not in known:
        known[tuple(nodes)] = _FloorRewriter(network, nodes).run()
    return known[tuple(nodes)]


class _FloorRewriter:
    """Rewrites the max pools behind watched ReLUs; see `watch_before_pools`."""

    def __init__(self, network: Network, watched: Sequence[int]) -> None:
        self.network, self.watched = network, watched
        self.nodes: list[Node] = []
        self.new_index: dict[int, int] = {}  # of the nodes as they are
        self.before_relus: dict[int, int] = {}  # of their copies that read the inputs of ReLUs

    def run(self) -> tuple[Network, list[list[int]]]:
        """Copy all nodes, and rewrite the maxima among them."""
        for i, node in enumerate(self.network.nodes):
            op, inputs = node.op, tuple(self.new_index[j] for j in node.inputs)
            if isinstance(op, Maximum) and op.sign > 0 and not op.floor:
                rectified, watched = self._classify(node.inputs[0])
                first, last = op.table[:, 0], op.table.amax(1)
                if bool(rectified[op.table].all()) and bool((watched[first] | watched[last]).any()):
                    floor_elements = torch.stack([torch.where(watched[e], e, -1) for e in (first, last)], 1)
                    node = replace(node, op=replace(op, floor=True, floor_elements=floor_elements))
                    inputs = (self._copy_before_relus(node.inputs[0]),)
            self.new_index[i] = self._add(replace(node, inputs=inputs))
        outputs = tuple(self.new_index[i] for i in self.network.outputs)
        network = replace(self.network, nodes=tuple(self.nodes), outputs=outputs, device_copies={})
        copies = [[self.before_relus[i]] if i in self.before_relus else [] for i in self.watched]
        return network, [[self.new_index[i], *copy] for i, copy in zip(self.watched, copies, strict=True)]

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _find_relu(self, i: int) -> int | None:
        """The ReLU that a node is, or marks as the layer."""
        nodes = self.network.nodes
        relu = nodes[i].inputs[0] if _is_identity(nodes[i]) else i
        return relu if _is_relu(nodes[relu]) else None

    def _classify(self, i: int) -> tuple[Tensor, Tensor]:
        """Which elements of a node, (elements,), come from a ReLU, and which from a watched one, without changes."""
        node = self.network.nodes[i]
        size = torch.Size(node.shape).numel()
        if self._find_relu(i) is not None:
            return torch.ones(size, dtype=torch.bool), torch.full((size,), i in self.watched)
        if isinstance(node.op, Reshape):
            return self._classify(node.inputs[0])
        if isinstance(node.op, Rearrange):
            parts = zip(*(self._classify(j) for j in node.inputs), strict=True)
            index = node.op.index.flatten()
            rectified, watched = ((index >= 0) & torch.cat(part)[index.clamp(min=0)] for part in parts)
            return rectified, watched
        return torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)

    def _copy_before_relus(self, i: int) -> int:
        """The index of a copy of node ``i`` that reads the inputs of ReLUs."""
        if i not in self.before_relus:
            node, relu = self.network.nodes[i], self._find_relu(i)
            name = f"{node.name}.before_relu"
            if relu is None:
                copy = replace(node, name=name, inputs=tuple(map(self._copy_before_relus, node.inputs)))
                self.before_relus[i] = self._add(copy)
            else:
                source = self.new_index[self.network.nodes[relu].inputs[0]]
                mark = Scale(torch.ones((), dtype=self.network.dtype, device=self.network.device), None, None)
                copy = replace(node, name=name, op=mark, inputs=(source,))
                self.before_relus[i] = self._add(copy) if i in self.watched else source
        return self.before_relus[i]


def _fuse_between(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]]:
    outputs, tails = (network.outputs[0], *nodes), (network.tails[0], *(None for _ in nodes))
    opened = replace(network, outputs=outputs, tails=tails, several_outputs=True, output_names=(), device_copies={})
    fused = remove_dead_nodes(fuse_relu_with_maximum(opened, passes_outputs=False))
    return select_first_output(fused), list(fused.outputs[1:])


def _move_before_relus(network: Network, nodes: Sequence[int]) -> tuple[Network, list[int]] | None:
    """The network that watches the inputs of ReLUs, and the nodes there; None if no node can be moved."""
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
    return None if watched == list(nodes) else _fuse_between(redirected, watched)


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
    nodes = tuple(replace(n, inputs=tuple(new if j == old else j for j in n.inputs)) for n in network.nodes)
    outputs = tuple(new if j == old else j for j in network.outputs)
    return replace(network, nodes=nodes, outputs=outputs, device_copies={})
