"""What the oracle is given: the ends of a line, finite and of one shape, and a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..errors import LineError
from ..network.graph import Network

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Point: TypeAlias = Tensor | ArrayLike | Sequence[Tensor | ArrayLike]  # several inputs: a tuple of tensors or arrays


def read_ends(Q: Point, R: Point) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Both ends as tuples of tensors without a batch dimension; raises `LineError`.

    >>> read_ends([0.0, 1.0], [2.0, 3.0])[1]
    (tensor([2., 3.], dtype=torch.float64),)
    """
    starts, stops = _tensors(Q, "Q"), _tensors(R, "R")
    if len(starts) != len(stops):
        raise LineError(f"Q has {len(starts)} parts and R has {len(stops)}.", hint="Give one tensor for each input.")
    for q, r in zip(starts, stops, strict=True):
        if q.shape != r.shape:
            raise LineError(f"Q has shape {tuple(q.shape)} and R has {tuple(r.shape)}.", hint="Give equal shapes.")
    return starts, stops


def to_network(
    model: nn.Module | ExportedProgram | Network,
    points: tuple[Tensor, ...],  # each (*in)
    *,
    rewrite: bool,
    until: str | None,
) -> Network:
    """A model as a network on the CPU in float64, which holds every stored weight exactly."""
    from ..network import as_network  # late: capture needs torch.export, a network by hand does not

    network = as_network(model, points, rewrite=rewrite, until=until).to()
    check_shapes(network, points)
    return network


def check_shapes(network: Network, points: tuple[Tensor, ...]) -> None:
    """Raise `LineError` where points do not fit a network's inputs."""
    shapes = [tuple(network.nodes[i].shape) for i in network.inputs]
    given = [tuple(point.shape) for point in points]
    if shapes != given:
        raise LineError(
            f"The network takes {_listed(shapes)}, and Q and R have {_listed(given)}.",
            where="arguments Q and R",
            hint="Give points without a batch dimension, a tuple of them for several inputs.",
        )


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes)) or "no input"


def _tensors(point: Point, name: str) -> tuple[Tensor, ...]:
    several = isinstance(point, tuple) and any(isinstance(part, Tensor | np.ndarray | list) for part in point)
    parts = point if several and isinstance(point, tuple) else (point,)
    return tuple(_tensor(part, name) for part in parts)


def _tensor(part: object, name: str) -> Tensor:
    try:  # a list of floats goes through numpy, because torch would round it to float32
        tensor = part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
    except (TypeError, ValueError) as problem:
        raise LineError(f"{name} is no array of numbers.", where=f"argument {name}", hint=str(problem)) from problem
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise LineError(f"{name} holds {tensor.dtype}.", where=f"argument {name}", hint="Give real numbers.")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise LineError(f"{name} holds NaN or infinity.", where=f"argument {name}", hint="Give finite points.")
    return tensor
