"""Graph rewrites that keep the function: remove dead nodes, fuse ReLU with a neighbouring maximum."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..ops.affine import Rearrange, Reshape
from ..ops.base import Input
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from ..ops.windows import distinct_members
from .calls import ComposedPool
from .graph import Network, Node

MAX_COMPOSED_WINDOW = 64  # members of a window that a maximum of maxima may have


def simplify_network(network: Network, rewrite: bool = True) -> Network:
    """Remove the nodes that no output needs and, with ``rewrite``, fuse each ReLU with a neighbouring maximum."""
    network = remove_dead_nodes(network)
    return remove_dead_nodes(fuse_relu_with_maximum(network)) if rewrite else network


def remove_dead_nodes(network: Network) -> Network:
    """Keep only the inputs and the nodes that an output depends on."""
    needed = network.last_use(network.outputs)
    kept = [i for i, node in enumerate(network.nodes) if i in needed or isinstance(node.op, Input)]
    new_index = {old: new for new, old in enumerate(kept)}
    old_nodes = (network.nodes[i] for i in kept)
    nodes = tuple(replace(node, inputs=tuple(new_index[j] for j in node.inputs)) for node in old_nodes)
    return replace(network, nodes=nodes, outputs=tuple(new_index[i] for i in network.outputs))


def fuse_relu_with_maximum(network: Network, passes_outputs: bool = True) -> Network:
    """Turn max(relu(..)) and relu(max(..)) into one maximum in which the constant 0 takes part.

    Operators that only move elements, such as permute and reshape, may stand between the two.

    Args:
        network: The network.
        passes_outputs: Whether a maximum may read the inputs of an operator whose result is also an output. Otherwise
            whatever reads an output still reads it, so that gradients at outputs stay the same.
    """
    nodes = list(network.nodes)
    for i in range(len(nodes)):
        node = nodes[i]
        if isinstance(node.op, Maximum) and node.op.sign > 0 and not node.op.floor:
            _fuse_preceding_relu(nodes, i, _list_readers(nodes, network.outputs))
        elif isinstance(node.op, Pointwise) and node.op.is_relu:
            _fuse_preceding_maximum(nodes, i, _list_readers(nodes, network.outputs))
    kept = frozenset[int]() if passes_outputs else frozenset(network.outputs)
    return _compose_maxima(_bypass_shared_relus(replace(network, nodes=tuple(nodes)), kept), passes_outputs)


def _compose_maxima(network: Network, passes_outputs: bool) -> Network:
    """Let a maximum of maxima read the elements of the inner windows, of which neighbouring ones share some.

    Otherwise two members of an outer window tie wherever the inner ones have the same leader.
    """
    nodes = list(network.nodes)
    for i, node in enumerate(nodes):
        inner = nodes[node.inputs[0]] if node.inputs else node
        if not isinstance(node.op, Maximum) or not isinstance(inner.op, Maximum) or node.op.sign != inner.op.sign:
            continue
        if not passes_outputs and node.inputs[0] in network.outputs:
            continue
        table = distinct_members(inner.op.table[node.op.table].flatten(1))
        if table.shape[1] <= MAX_COMPOSED_WINDOW:
            both = inner.op.native, node.op.native
            native = None if both[0] is None or both[1] is None else ComposedPool(both[0], both[1], inner.op.shape)
            op = replace(node.op, table=table, floor=node.op.floor or inner.op.floor, native=native)
            nodes[i] = replace(node, op=op, inputs=inner.inputs)
    return replace(network, nodes=tuple(nodes))


def _bypass_shared_relus(network: Network, kept: frozenset[int]) -> Network:
    """Let a maximum of ReLUs that other nodes read as well read the inputs of these ReLUs, and the constant 0.

    Otherwise all units that are off would tie in its windows. The nodes in ``kept`` are not passed by.
    """
    nodes, new_index = list[Node](), dict[int, int]()

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def copy_before_relus(i: int) -> int:
        """The index of a copy of node ``i`` that reads the inputs of ReLUs; the node itself where there are none."""
        node = network.nodes[i]
        if isinstance(node.op, Pointwise) and node.op.is_relu:
            return new_index[node.inputs[0]]
        if not isinstance(node.op, (Reshape, Rearrange)):
            return new_index[i]
        inputs = tuple(copy_before_relus(j) for j in node.inputs)
        is_copy = inputs != tuple(new_index[j] for j in node.inputs)
        return add(replace(node, name=f"{node.name}.before_relu", inputs=inputs)) if is_copy else new_index[i]

    for i, node in enumerate(network.nodes):
        inputs = tuple(new_index[j] for j in node.inputs)
        if isinstance(node.op, Maximum) and node.op.sign > 0 and not node.op.floor:
            is_rectified = _find_rectified(list(network.nodes), None, node.inputs[0], i, set(), kept)
            if bool(is_rectified[node.op.table].any(1).all()):
                node, inputs = replace(node, op=replace(node.op, floor=True)), (copy_before_relus(node.inputs[0]),)
        new_index[i] = add(replace(node, inputs=inputs))
    return replace(
        network,
        nodes=tuple(nodes),
        outputs=tuple(new_index[i] for i in network.outputs),
    )


def _fuse_preceding_maximum(nodes: list[Node], i: int, readers: dict[int, list[int]]) -> None:
    """Move ReLU ``i`` into the maximum in front of it."""
    last, reader = nodes[i].inputs[0], i
    source = last
    while _only_moves(nodes[source]) and readers[source] == [reader]:
        source, reader = nodes[source].inputs[0], source
    inner = nodes[source]
    if not isinstance(inner.op, Maximum) or inner.op.sign < 0 or readers[source] != [reader]:
        return
    nodes[source] = replace(inner, op=replace(inner.op, floor=True))
    kept = nodes[last]
    nodes[i] = Node(kept.name, kept.op, kept.inputs, nodes[i].shape, kept.path)
    nodes[last] = replace(kept, name=f"{kept.name}.before")  # no node reads it any more


def _only_moves(node: Node) -> bool:
    """Whether a node moves the elements of one tensor and adds no constants."""
    is_rearrangement = isinstance(node.op, Rearrange) and node.op.constant is None and len(node.inputs) == 1
    return isinstance(node.op, Reshape) or is_rearrangement


def _fuse_preceding_relu(nodes: list[Node], i: int, readers: dict[int, list[int]]) -> None:
    """Drop the ReLUs in front of maximum ``i`` if every window contains an element of one of them."""
    op = nodes[i].op
    if not isinstance(op, Maximum):
        return
    source = nodes[i].inputs[0]
    relus: set[tuple[int, int]] = set()  # each with its reader
    is_rectified = _find_rectified(nodes, readers, source, i, relus)
    if not relus or not bool(is_rectified[op.table].any(1).all()):
        return
    for relu, reader in relus:
        inputs = tuple(nodes[relu].inputs[0] if j == relu else j for j in nodes[reader].inputs)
        nodes[reader] = replace(nodes[reader], inputs=inputs)
    nodes[i] = replace(nodes[i], op=replace(op, floor=True))


def _find_rectified(
    nodes: list[Node],
    readers: dict[int, list[int]] | None,
    source: int,
    reader: int,
    relus: set[tuple[int, int]],  # gets the ReLUs that were found
    kept: frozenset[int] = frozenset(),
) -> Tensor:
    """Which elements of a node's output, (elements,), come from a ReLU through operators that only move elements.

    With ``readers``, only nodes that no other node reads count; the nodes in ``kept`` do not.
    """
    node = nodes[source]
    if source not in kept and (readers is None or set(readers[source]) == {reader}):
        if isinstance(node.op, Pointwise) and node.op.is_relu:
            relus.add((source, reader))
            return torch.ones(torch.Size(node.shape).numel(), dtype=torch.bool)
        if isinstance(node.op, Reshape):
            return _find_rectified(nodes, readers, node.inputs[0], source, relus, kept)
        if isinstance(node.op, Rearrange):
            parts = [_find_rectified(nodes, readers, j, source, relus, kept) for j in node.inputs]
            index = node.op.index.flatten()
            return (index >= 0) & torch.cat(parts)[index.clamp(min=0)]
    return torch.zeros(torch.Size(node.shape).numel(), dtype=torch.bool)


def _list_readers(nodes: list[Node], outputs: tuple[int, ...]) -> dict[int, list[int]]:
    """The indices of the nodes that read each node; -1 stands for an output of the network."""
    readers: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for i, node in enumerate(nodes):
        for j in node.inputs:
            readers[j].append(i)
    for i in outputs:
        readers[i].append(-1)
    return readers
