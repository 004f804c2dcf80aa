"""Lines in input space: validated end points, interpolation between them, and its rounding error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .errors import LineError

PointLike: TypeAlias = Any  # a tensor, an array or nested numbers; a tuple of these for several inputs


@dataclass(frozen=True)
class Lines:
    """Many line segments, with one tensor for each input of the network."""

    starts: tuple[Tensor, ...]  # (lines, *in) each: the points at alpha 0
    ends: tuple[Tensor, ...]  # (lines, *in) each: the points at alpha 1

    def __len__(self) -> int:
        return len(self.starts[0])

    def at(self, line: Tensor, alphas: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Points on some lines and bounds on their rounding errors, (k, *in) each.

        ``line`` and ``alphas`` are (k,). Both results are lists with one tensor for each input.
        """
        points, errors = [], []
        for start, end in zip(self.starts, self.ends, strict=True):
            shape = (-1, *[1] * (start.dim() - 1))
            a, b = start[line], end[line]
            part = alphas.to(a.dtype).view(shape)
            points.append(interpolate(a, b, part))
            # the step from the nearer end is rounded, then the sum; the ends themselves are exact
            distance = torch.minimum(part, 1 - part)
            step = a.abs() * distance + b.abs() * distance
            rounding = (distance > 0).to(a.dtype) * torch.finfo(a.dtype).eps
            errors.append((points[-1].abs() + step) * rounding)
        return points, errors

    def at_alphas(self, alphas: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """`at` for the first line, at alphas (k,)."""
        return self.at(torch.zeros(len(alphas), dtype=torch.int64), alphas)

    def to(self, device: torch.device, dtype: torch.dtype) -> Lines:
        """Copy the lines to another device or precision."""
        starts, ends = (tuple(t.to(device, dtype) for t in side) for side in (self.starts, self.ends))
        return Lines(starts, ends)


def interpolate(a: Tensor, b: Tensor, part: Tensor, *, cannot_overflow: bool = False) -> Tensor:
    """Interpolate linearly, a + part (b - a): exact at both ends and where a equals b, and without overflow.

    Args:
        a: The values at part 0.
        b: The values at part 1, of the same shape.
        part: The fraction of the way from a to b, broadcastable to a.
        cannot_overflow: The caller knows that no difference b - a overflows. This saves a check, which on a GPU
            synchronises.

    >>> interpolate(torch.tensor([0.1]), torch.tensor([0.1]), torch.tensor([0.3]))
    tensor([0.1000])
    """
    if a.dim() == 2 and a.device.type == "cpu":  # written out, because the rounding of lerp depends on the batch
        near_a = part < 0.5
        out = (b - a).mul_(torch.where(near_a, part, part - 1)).add_(torch.where(near_a, a, b))
    else:
        out = torch.lerp(a, b, part)
    # the sum is a fast test for non-finite elements; it may overflow where none is
    if not cannot_overflow and not bool(torch.isfinite(out.sum())):
        out = torch.where(torch.isfinite(out), out, (1 - part) * a + part * b)
    return out


def as_points(value: PointLike, name: str) -> tuple[Tensor, ...]:
    """Convert a user's point to float64 CPU tensors, one for each input; raises LineError naming argument ``name``."""
    return tuple(_as_tensor(v, name) for v in value) if isinstance(value, tuple) else (_as_tensor(value, name),)


def as_lines(starts: PointLike, ends: PointLike, names: tuple[str, str], *, many: bool) -> Lines:
    """Convert a user's end points to lines.

    Args:
        starts: The points at alpha 0.
        ends: The points at alpha 1.
        names: The names of both arguments in error messages.
        many: Whether the first dim of the points counts lines.

    Raises LineError.
    """
    where = f"arguments {names[0]}, {names[1]}"
    start_points, end_points = as_points(starts, names[0]), as_points(ends, names[1])
    if len(start_points) != len(end_points):
        raise LineError(
            f"{names[0]} has {len(start_points)} inputs and {names[1]} has {len(end_points)}.",
            where=where,
            hint="Give both as tuples of the same length, one tensor for each input.",
        )
    for a, b in zip(start_points, end_points, strict=True):
        if a.shape != b.shape:
            raise LineError(
                f"{names[0]} has shape {tuple(a.shape)} and {names[1]} has shape {tuple(b.shape)}.",
                where=where,
                hint="Both ends of a line need the same shape.",
            )
    if not many:
        start_points, end_points = tuple(a[None] for a in start_points), tuple(b[None] for b in end_points)
    elif any(a.dim() == 0 for a in start_points) or len({len(a) for a in start_points}) > 1:
        raise LineError(
            "The number of lines is missing or differs between inputs.",
            where=where,
            hint="Give tensors of shape (lines, *in).",
        )
    return Lines(start_points, end_points)


def check_shapes(lines: Lines, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise LineError if the points of lines do not have the input shapes of the network."""
    if len(shapes) != len(lines.starts):
        raise LineError(
            f"The network takes {len(shapes)} inputs, the line has {len(lines.starts)}.",
            where="end points",
            hint="Give a tuple with one tensor for each input.",
        )
    for start, shape in zip(lines.starts, shapes, strict=True):
        actual = tuple(start.shape[1:])
        if actual != tuple(shape):
            extra = " Drop the batch dimension." if actual[1:] == tuple(shape) else ""
            raise LineError(
                f"The network takes points of shape {tuple(shape)}, not {actual}.",
                where="end points",
                hint=f"Give points of shape {tuple(shape)}.{extra}",
            )


def _as_tensor(value: Any, name: str) -> Tensor:
    """Convert one input of a point to float64; raises LineError unless it is a dense array of finite real numbers."""
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as problem:
        raise LineError(
            f"{name} is not an array of numbers: {problem}",
            where=f"argument {name}",
            hint="Give a tensor, a NumPy array or nested lists of numbers; a tuple for several inputs.",
        ) from problem
    is_plain = tensor.layout == torch.strided and not (tensor.is_complex() or tensor.is_quantized or tensor.is_meta)
    if not is_plain or tensor.dtype == torch.bool:
        raise LineError(
            f"{name} is {'a meta tensor' if tensor.is_meta else _describe_type(tensor)}.",
            where=f"argument {name}",
            hint="Give a dense tensor of real numbers.",
        )
    point = tensor.cpu().to(torch.float64)
    if not tensor.is_floating_point() and not bool((point.to(tensor.dtype) == tensor.cpu()).all()):
        raise LineError(
            f"{name} holds integers that float64 cannot represent.",
            where=f"argument {name}",
            hint="Keep integers below 2**53.",
        )
    if not bool(torch.isfinite(point).all()):
        raise LineError(f"{name} holds NaN or infinite numbers.", where=f"argument {name}", hint="Give finite points.")
    return point.contiguous().clone()  # the caller may overwrite its tensor later


def _describe_type(tensor: Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return f"of type {str(tensor.dtype).removeprefix('torch.')}{layout}"
