"""Memory that torch.empty made: NaN stands for elements that nothing has written to, until they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..ops.affine import Rearrange, Reshape
from .builder import Value
from .graph import Node
from .scalar_functions import SourceOperator


def find_unwritten_reads(nodes: list[Node], outputs: list[int]) -> Iterator[SourceOperator]:
    """Find the operators and outputs that read elements which nothing has written to.

    All other such elements are set to 0 in ``nodes``.
    """
    unwritten: dict[int, Tensor] = {}  # (elements,) masks, by node
    for i, node in enumerate(nodes):
        masks = [
            unwritten.get(j, torch.zeros(torch.Size(nodes[j].shape).numel(), dtype=torch.bool)) for j in node.inputs
        ]
        if isinstance(node.op, Rearrange):
            mask = (node.op.index >= 0) & torch.cat(masks)[node.op.index.clamp(min=0)]
            if node.op.constant is not None:
                mask |= (node.op.index < 0) & node.op.constant.isnan()
                nodes[i] = replace(node, op=replace(node.op, constant=node.op.constant.nan_to_num(nan=0.0)))
        elif isinstance(node.op, Reshape):
            (mask,) = masks
        else:
            if any(bool(m.any()) for m in masks):
                yield SourceOperator(node.op.title, node.path)
            continue
        unwritten[i] = mask
    for number, i in enumerate(outputs):
        if i in unwritten and bool(unwritten[i].any()):
            yield SourceOperator(f"output {number}", "")


def to_written(value: Value) -> Value:
    """A constant with 0 where nothing has been written."""
    return value.nan_to_num(nan=0.0) if isinstance(value, Tensor) and value.is_floating_point() else value
