"""Check the arguments of the rational oracle: the ends of a line, and a model."""

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


def read_ends(start: Point, end: Point) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Convert both ends of a line to tuples of tensors (*in), one for each input.

    >>> read_ends([0.0, 1.0], [2.0, 3.0])[1]
    (tensor([2., 3.], dtype=torch.float64),)

    Raises LineError where the ends are not finite or differ in shape.
    """
    starts, ends = _to_tensors(start, "start"), _to_tensors(end, "end")
    if len(starts) != len(ends):
        raise LineError(
            f"start has {len(starts)} parts and end has {len(ends)}.",
            where="arguments start, end",
            hint="Give one tensor for each input.",
        )
    for a, b in zip(starts, ends, strict=True):
        if a.shape != b.shape:
            raise LineError(
                f"start has shape {tuple(a.shape)} and end has shape {tuple(b.shape)}.",
                where="arguments start, end",
                hint="Both ends of a line need the same shape.",
            )
    return starts, ends


def to_network(
    model: nn.Module | ExportedProgram | Network,
    points: tuple[Tensor, ...],  # each (*in)
    *,
    rewrite: bool,
    until: str | None,
) -> Network:
    """Convert a model to a network on the CPU in float64, which holds every weight exactly."""
    from ..network import as_network  # at the first use, because it loads torch.export

    network = as_network(model, points, rewrite=rewrite, until=until).to()
    check_shapes(network, points)
    return network


def check_shapes(network: Network, points: tuple[Tensor, ...]) -> None:
    """Raise LineError where points (*in) do not fit the inputs of a network."""
    shapes = [tuple(network.nodes[i].shape) for i in network.inputs]
    point_shapes = [tuple(point.shape) for point in points]
    if shapes != point_shapes:
        raise LineError(
            f"The network takes {_format_shapes(shapes)}, but start and end have {_format_shapes(point_shapes)}.",
            where="arguments start, end",
            hint="Give points without a batch dimension, and a tuple of points for several inputs.",
        )


def _format_shapes(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes)) or "no input"


def _to_tensors(point: Point, name: str) -> tuple[Tensor, ...]:
    several = isinstance(point, tuple) and any(isinstance(part, Tensor | np.ndarray | list) for part in point)
    parts = point if several and isinstance(point, tuple) else (point,)
    return tuple(_to_tensor(part, name) for part in parts)


def _to_tensor(part: object, name: str) -> Tensor:
    try:  # a list of floats goes through numpy, because torch would round it to float32
        tensor = part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
    except (TypeError, ValueError) as problem:
        raise LineError(f"{name} is not an array of numbers.", where=f"argument {name}", hint=str(problem)) from problem
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise LineError(f"{name} holds {tensor.dtype}.", where=f"argument {name}", hint="Give real numbers.")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise LineError(f"{name} holds NaN or infinity.", where=f"argument {name}", hint="Give finite points.")
    return tensor
