"""Graph rewrites that keep the function: remove dead nodes, fuse ReLU with a neighbouring maximum."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..ops.affine import Rearrange, Reshape
from ..ops.base import Input, Op
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from .graph import Network, Node


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


def fuse_relu_with_maximum(network: Network) -> Network:
    """Turn max(relu(..)) and relu(max(..)) into one maximum in which the constant 0 takes part.

    Operators that only move elements, such as permute and reshape, may stand between the two.
    """
    nodes = list(network.nodes)
    for i in range(len(nodes)):
        node = nodes[i]
        if isinstance(node.op, Maximum) and node.op.sign > 0 and not node.op.floor:
            _fuse_preceding_relu(nodes, i, _list_readers(nodes, network.outputs))
        elif _is_relu(node.op):
            _fuse_preceding_maximum(nodes, i, _list_readers(nodes, network.outputs))
    return replace(network, nodes=tuple(nodes))


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
    readers: dict[int, list[int]],
    source: int,
    reader: int,
    relus: set[tuple[int, int]],  # gets the ReLUs that were found
) -> Tensor:
    """Which elements of a node's output, (elements,), come from a ReLU through operators that only move elements."""
    node = nodes[source]
    if set(readers[source]) == {reader}:
        if _is_relu(node.op):
            relus.add((source, reader))
            return torch.ones(torch.Size(node.shape).numel(), dtype=torch.bool)
        if isinstance(node.op, Reshape):
            return _find_rectified(nodes, readers, node.inputs[0], source, relus)
        if isinstance(node.op, Rearrange):
            parts = [_find_rectified(nodes, readers, j, source, relus) for j in node.inputs]
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


def _is_relu(op: Op) -> bool:
    if not isinstance(op, Pointwise) or any(isinstance(v, Tensor) for v in (*op.knots, *op.slopes, op.value)):
        return False
    return bool(op.knots == (0,) and op.slopes == (0, 1) and op.value == 0)
