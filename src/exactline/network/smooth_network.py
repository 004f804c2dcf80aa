"""A network from a file that is not piecewise linear: it can be evaluated and approximated, but not restricted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .graph import Network, Shape
from .prefix import Prefix


class GraphFunction(Protocol):
    """A graph that can be evaluated and copied to a device."""

    @property
    def network(self) -> Network:
        """The nodes, those of smooth operators included."""
        ...

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Evaluate one batch (n, *in) for each input."""
        ...

    def to(self, device: torch.device | str) -> GraphFunction:
        """Copy the graph to a device."""
        ...


@dataclass(frozen=True, eq=False)
class SmoothNetwork:
    """A network read from a file with smooth operators, such as GELU or softmax inside of attention.

    Call it on a batch x (n, *in) to evaluate it in float64. `exactline.approximate` follows it along a line;
    `exactline.restrict` refuses it and names the smooth operators.
    """

    function: GraphFunction  # takes one batch (n, *in) for each input
    shapes: tuple[Shape, ...]  # of one point, for each input
    output_shapes: tuple[Shape, ...]
    output_names: tuple[str, ...]
    prefix: Prefix  # the piecewise-linear part before the first smooth operator
    refusal: UnsupportedError  # why the network is not piecewise linear
    operators: dict[str, int] = field(default_factory=dict)  # number of nodes by operator

    @property
    def input_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of one input point; a tuple of shapes for a network of several inputs."""
        return self.shapes if self.several_inputs else self.shapes[0]

    @property
    def output_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of the output for one point; a tuple of shapes for a network of several outputs."""
        return self.output_shapes if self.several_outputs else self.output_shapes[0]

    @property
    def several_inputs(self) -> bool:
        """Whether points are tuples of tensors."""
        return len(self.shapes) > 1

    @property
    def several_outputs(self) -> bool:
        """Whether values are tuples of tensors."""
        return len(self.output_shapes) > 1

    def __call__(self, *xs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Evaluate batches (n, *in), one for each input, in float64."""
        outputs = self.function(*(torch.as_tensor(x).to(torch.float64) for x in xs))
        return outputs if self.several_outputs else outputs[0]

    def to(self, device: torch.device | str) -> SmoothNetwork:
        """Copy the network to a device.

        Args:
            device: Where the copy's constants are.
        """
        return replace(self, function=self.function.to(device))

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.operators.items()))
        return f"<SmoothNetwork {self.input_shape} -> {self.output_shape}: {counts}>"


def list_nodes(network: Network | SmoothNetwork) -> Network:
    """The nodes of a network, those of smooth operators included: for listings, not for restrictions."""
    return network.function.network if isinstance(network, SmoothNetwork) else network


def require_piecewise_linear(network: Network | SmoothNetwork) -> Network:
    """The network, if it is piecewise linear; raises UnsupportedError naming the smooth operators otherwise."""
    if isinstance(network, SmoothNetwork):
        raise network.refusal
    return network
