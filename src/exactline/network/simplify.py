"""Graph rewrites that keep the function: dead code goes, ReLU and maximum become one envelope."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..ops.affine import Rearrange, Reshape
from ..ops.base import Input, Op
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from .graph import Network, Node


def simplified(network: Network, rewrite: bool = True) -> Network:
    """Without what no output needs and, where ``rewrite``, with every ReLU next to a maximum fused."""
    network = without_dead(network)
    return without_dead(fused(network)) if rewrite else network


def without_dead(network: Network) -> Network:
    """Only inputs and what the outputs need."""
    needed = network.last_use(network.outputs)
    kept = [i for i, node in enumerate(network.nodes) if i in needed or isinstance(node.op, Input)]
    place = {old: new for new, old in enumerate(kept)}
    nodes = tuple(replace(network.nodes[i], inputs=tuple(place[j] for j in network.nodes[i].inputs)) for i in kept)
    return replace(network, nodes=nodes, outputs=tuple(place[i] for i in network.outputs))


def fused(network: Network) -> Network:
    """max(relu(..)) and relu(max(..)) as one maximum with the constant 0 as a rival."""
    nodes = list(network.nodes)
    for i in range(len(nodes)):
        node = nodes[i]
        if isinstance(node.op, Maximum) and node.op.sign > 0 and not node.op.floor:
            _absorb_before(nodes, i, _readers(nodes, network.outputs))
        elif _is_relu(node.op):
            j = node.inputs[0]
            inner = nodes[j]
            if not isinstance(inner.op, Maximum) or inner.op.sign < 0:
                continue
            if _readers(nodes, network.outputs)[j] == [i]:
                nodes[i] = Node(inner.name, replace(inner.op, floor=True), inner.inputs, node.shape, inner.path)
                nodes[j] = replace(inner, name=f"{inner.name}.before")
    return replace(network, nodes=tuple(nodes))


def _absorb_before(nodes: list[Node], i: int, readers: dict[int, list[int]]) -> None:
    """Drop ReLUs in front of maximum ``i`` if every window then holds one of their elements."""
    node, op = nodes[i], nodes[i].op
    feed = node.inputs[0]
    if not isinstance(op, Maximum) or readers[feed] != [i]:
        return
    if _is_relu(nodes[feed].op):
        nodes[i] = replace(node, op=replace(op, floor=True), inputs=nodes[feed].inputs)
        return
    inner = nodes[feed].op
    if isinstance(inner, Reshape):
        source = nodes[feed].inputs[0]
        if _is_relu(nodes[source].op) and readers[source] == [feed]:
            nodes[i] = replace(node, op=replace(op, floor=True))
            nodes[feed] = replace(nodes[feed], inputs=nodes[source].inputs)
    elif isinstance(inner, Rearrange):
        sources = nodes[feed].inputs
        bare = [_is_relu(nodes[s].op) and set(readers[s]) == {feed} for s in sources]
        if any(bare) and _every_window(op.table, inner, [nodes[s].shape for s in sources], bare):
            nodes[i] = replace(node, op=replace(op, floor=True))
            inputs = tuple(nodes[s].inputs[0] if b else s for s, b in zip(sources, bare, strict=True))
            nodes[feed] = replace(nodes[feed], inputs=inputs)


def _every_window(table: Tensor, inner: Rearrange, shapes: list[tuple[int, ...]], bare: list[bool]) -> bool:
    marks = torch.cat([torch.full((torch.Size(s).numel(),), b) for s, b in zip(shapes, bare, strict=True)])
    rectified = (inner.index >= 0) & marks[inner.index.clamp(min=0)]
    return bool(rectified[table].any(1).all())


def _readers(nodes: list[Node], outputs: tuple[int, ...]) -> dict[int, list[int]]:
    """Who reads each node; being an output counts as a reader of its own."""
    found: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for i, node in enumerate(nodes):
        for j in node.inputs:
            found[j].append(i)
    for i in outputs:
        found[i].append(-1)
    return found


def _is_relu(op: Op) -> bool:
    if not isinstance(op, Pointwise) or any(isinstance(v, Tensor) for v in (*op.knots, *op.slopes, op.value)):
        return False
    return bool(op.knots == (0,) and op.slopes == (0, 1) and op.value == 0)
