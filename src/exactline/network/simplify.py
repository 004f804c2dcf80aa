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
    """Turn max(relu(..)) and relu(max(..)) into one maximum in which the constant 0 takes part."""
    nodes = list(network.nodes)
    for i in range(len(nodes)):
        node = nodes[i]
        if isinstance(node.op, Maximum) and node.op.sign > 0 and not node.op.floor:
            _fuse_preceding_relu(nodes, i, _list_readers(nodes, network.outputs))
        elif _is_relu(node.op):
            j = node.inputs[0]
            inner = nodes[j]
            if not isinstance(inner.op, Maximum) or inner.op.sign < 0:
                continue
            if _list_readers(nodes, network.outputs)[j] == [i]:
                nodes[i] = Node(inner.name, replace(inner.op, floor=True), inner.inputs, node.shape, inner.path)
                nodes[j] = replace(inner, name=f"{inner.name}.before")
    return replace(network, nodes=tuple(nodes))


def _fuse_preceding_relu(nodes: list[Node], i: int, readers: dict[int, list[int]]) -> None:
    """Drop the ReLUs in front of maximum ``i`` if every window contains an element of one of them."""
    node, op = nodes[i], nodes[i].op
    source = node.inputs[0]
    if not isinstance(op, Maximum) or readers[source] != [i]:
        return
    if _is_relu(nodes[source].op):
        nodes[i] = replace(node, op=replace(op, floor=True), inputs=nodes[source].inputs)
        return
    inner = nodes[source].op
    if isinstance(inner, Reshape):
        relu = nodes[source].inputs[0]
        if _is_relu(nodes[relu].op) and readers[relu] == [source]:
            nodes[i] = replace(node, op=replace(op, floor=True))
            nodes[source] = replace(nodes[source], inputs=nodes[relu].inputs)
    elif isinstance(inner, Rearrange):
        parts = nodes[source].inputs
        is_relu = [_is_relu(nodes[p].op) and set(readers[p]) == {source} for p in parts]
        if any(is_relu) and _covers_every_window(op.table, inner, [nodes[p].shape for p in parts], is_relu):
            nodes[i] = replace(node, op=replace(op, floor=True))
            inputs = tuple(nodes[p].inputs[0] if relu else p for p, relu in zip(parts, is_relu, strict=True))
            nodes[source] = replace(nodes[source], inputs=inputs)


def _covers_every_window(
    table: Tensor,  # (windows, size) of the maximum
    inner: Rearrange,
    shapes: list[tuple[int, ...]],  # of the inputs of the rearrangement
    is_relu: list[bool],  # for each of them
) -> bool:
    """Whether every window of a maximum contains an element that comes from a ReLU."""
    from_relu = torch.cat([torch.full((torch.Size(s).numel(),), r) for s, r in zip(shapes, is_relu, strict=True)])
    rectified = (inner.index >= 0) & from_relu[inner.index.clamp(min=0)]
    return bool(rectified[table].any(1).all())


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
