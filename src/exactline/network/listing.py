"""The layers of a network as one lists them: name, operator, kind, shape and units of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from ..ops.base import Breaking, Input
from .graph import Network


@dataclass(frozen=True)
class Layer:
    """One node, as it is shown."""

    name: str
    operator: str
    kind: str  # input, affine, breaking, tail
    shape: tuple[int, ...]
    units: int


def layers(network: Network) -> list[Layer]:
    """The nodes of a network and its tails, in the order they are evaluated."""
    found: list[Layer] = []
    for node in network.nodes:
        if isinstance(node.op, Breaking):
            units = node.op.units(network.nodes[node.inputs[0]].shape)
            found.append(Layer(node.name, node.op.title, "breaking", node.shape, units))
        elif isinstance(node.op, Input):
            found.append(Layer(node.name, node.op.title.lower(), "input", node.shape, 0))
        else:
            found.append(Layer(node.name, node.op.title, "affine", node.shape, 0))
    for place, tail in zip(network.outputs, network.tails, strict=True):
        if tail is not None:
            node = network.nodes[place]
            found.append(Layer(f"{node.name}.{tail.name}", tail.name, "tail", node.shape, 0))
    return found


def weights(network: Network) -> int:
    """How many numbers the layers hold."""
    held = (getattr(node.op, field.name) for node in network.nodes for field in fields(node.op))
    return sum({id(v): v.numel() for v in held if isinstance(v, Tensor) and v.is_floating_point()}.values())


def shaped(shape: tuple[int, ...] | tuple[tuple[int, ...], ...]) -> str:
    """A shape, or several, as people write them: 5, 1x28x28.

    >>> shaped((1, 28, 28)), shaped(((5,), (2, 3))), shaped(())
    ('1x28x28', '5, 2x3', '1')
    """
    if shape and isinstance(shape[0], tuple):
        return ", ".join(shaped(part) for part in shape if isinstance(part, tuple))
    return "x".join(map(str, shape)) or "1"
