"""A summary of a network's layers for tables: name, operator, kind, shape and units of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from ..ops.base import Breaking, Input
from ..ops.smooth import Smooth
from .graph import Network


@dataclass(frozen=True)
class LayerSummary:
    """One node of a network, or one tail."""

    name: str
    operator: str
    kind: str  # input, affine, breaking, smooth, tail
    shape: tuple[int, ...]  # of the output for one point
    units: int  # that can break


def list_layers(network: Network) -> list[LayerSummary]:
    """List the nodes of a network and its tails in evaluation order."""
    summaries: list[LayerSummary] = []
    for node in network.nodes:
        if isinstance(node.op, Breaking):
            units = node.op.units(network.nodes[node.inputs[0]].shape)
            summaries.append(LayerSummary(node.name, node.op.title, "breaking", node.shape, units))
        elif isinstance(node.op, Input):
            summaries.append(LayerSummary(node.name, node.op.title.lower(), "input", node.shape, 0))
        elif isinstance(node.op, Smooth):
            summaries.append(LayerSummary(node.name, node.op.title, "smooth", node.shape, 0))
        else:
            summaries.append(LayerSummary(node.name, node.op.title, "affine", node.shape, 0))
    for index, tail in zip(network.outputs, network.tails, strict=True):
        if tail is not None:
            node = network.nodes[index]
            summaries.append(LayerSummary(f"{node.name}.{tail.name}", tail.name, "tail", node.shape, 0))
    return summaries


def count_weights(network: Network) -> int:
    """Count the floating-point numbers in a network; a tensor that several nodes share counts once."""
    values = (getattr(node.op, field.name) for node in network.nodes for field in fields(node.op))
    return sum({id(v): v.numel() for v in values if isinstance(v, Tensor) and v.is_floating_point()}.values())


def format_shape(shape: tuple[int, ...] | tuple[tuple[int, ...], ...]) -> str:
    """Format a shape, or a tuple of shapes, as in 5 or 1x28x28.

    >>> format_shape((1, 28, 28)), format_shape(((5,), (2, 3))), format_shape(())
    ('1x28x28', '5, 2x3', '1')
    """
    if shape and isinstance(shape[0], tuple):
        return ", ".join(format_shape(part) for part in shape if isinstance(part, tuple))
    return "x".join(map(str, shape)) or "1"
