"""Lines, validated: finite end points of the right shape, in the precision of the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .errors import LineError

PointLike: TypeAlias = Any  # a tensor, an array or nested numbers; a tuple of them for several inputs


@dataclass(frozen=True)
class Lines:
    """Many segments Q to R, one tensor for each input of the network."""

    starts: tuple[Tensor, ...]  # (lines, *in) each
    ends: tuple[Tensor, ...]  # (lines, *in) each

    def __len__(self) -> int:
        return len(self.starts[0])

    def at(self, line: Tensor, alphas: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Points on some lines, and the rounding error they carry; each (k, *in)."""
        points, errors = [], []
        for start, end in zip(self.starts, self.ends, strict=True):
            shape = (-1, *[1] * (start.dim() - 1))
            a, b = start[line], end[line]
            part = alphas.to(a.dtype).view(shape)
            points.append(interpolate(a, b, part))
            # the step from the nearer end is rounded, then the sum; the ends themselves are exact
            near = torch.minimum(part, 1 - part)
            step = a.abs() * near + b.abs() * near
            inner = (near > 0).to(a.dtype) * torch.finfo(a.dtype).eps
            errors.append((points[-1].abs() + step) * inner)
        return points, errors

    def to(self, device: torch.device, dtype: torch.dtype) -> Lines:
        """The same lines elsewhere or in another precision."""
        starts, ends = (tuple(t.to(device, dtype) for t in side) for side in (self.starts, self.ends))
        return Lines(starts, ends)


def interpolate(a: Tensor, b: Tensor, part: Tensor, *, tame: bool = False) -> Tensor:
    """a + part (b - a): exact at both ends and for equal ends, and without overflow.

    Whoever knows that no difference overflows says so, ``tame``: a device is then not asked.

    >>> interpolate(torch.tensor([0.1]), torch.tensor([0.1]), torch.tensor([0.3]))
    tensor([0.1000])
    """
    if a.dim() == 2 and a.device.type == "cpu":  # in steps that round alike wherever they are taken
        near = part < 0.5
        mixed = (b - a).mul_(torch.where(near, part, part - 1)).add_(torch.where(near, a, b))
    else:
        mixed = torch.lerp(a, b, part)
    # a sum is one quick pass; it may overflow where no element does
    if not tame and not bool(torch.isfinite(mixed.sum())):
        mixed = torch.where(torch.isfinite(mixed), mixed, (1 - part) * a + part * b)
    return mixed


def as_points(value: PointLike, name: str) -> tuple[Tensor, ...]:
    """A user's point as float64 CPU tensors, one for each input."""
    return tuple(_as_tensor(v, name) for v in value) if isinstance(value, tuple) else (_as_tensor(value, name),)


def as_lines(starts: PointLike, ends: PointLike, names: tuple[str, str], *, many: bool) -> Lines:
    """A user's end points as lines; with ``many`` the first dim counts them."""
    first, second = as_points(starts, names[0]), as_points(ends, names[1])
    if len(first) != len(second):
        raise LineError(
            f"{names[0]} has {len(first)} inputs and {names[1]} has {len(second)}.",
            where=f"arguments {names[0]}, {names[1]}",
            hint="Give both as tuples of the same length, one tensor for each input.",
        )
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape:
            raise LineError(
                f"{names[0]} has shape {tuple(a.shape)} and {names[1]} has shape {tuple(b.shape)}.",
                where=f"arguments {names[0]}, {names[1]}",
                hint="Both ends of a line need the same shape.",
            )
    if not many:
        first, second = tuple(a[None] for a in first), tuple(b[None] for b in second)
    elif any(a.dim() == 0 for a in first) or len({len(a) for a in first}) > 1:
        raise LineError(
            "The number of lines is missing or differs between inputs.",
            where=f"arguments {names[0]}, {names[1]}",
            hint="Give tensors of shape (lines, *in).",
        )
    return Lines(first, second)


def check_shapes(lines: Lines, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse lines whose points do not fit the network."""
    if len(shapes) != len(lines.starts):
        raise LineError(
            f"The network takes {len(shapes)} inputs, the line gives {len(lines.starts)}.",
            where="end points",
            hint="Give a tuple with one tensor for each input.",
        )
    for start, shape in zip(lines.starts, shapes, strict=True):
        found = tuple(start.shape[1:])
        if found != tuple(shape):
            extra = " Drop the batch dimension." if found[1:] == tuple(shape) else ""
            raise LineError(
                f"The network takes points of shape {tuple(shape)}, not {found}.",
                where="end points",
                hint=f"Give points of shape {tuple(shape)}.{extra}",
            )


def _as_tensor(value: Any, name: str) -> Tensor:
    """One input of a point, refused unless it is a real, finite, dense array of numbers."""
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as problem:
        raise LineError(
            f"{name} is not an array of numbers: {problem}",
            where=f"argument {name}",
            hint="Give a tensor, a NumPy array or nested lists of numbers; a tuple for several inputs.",
        ) from problem
    odd = tensor.is_complex() or tensor.is_quantized or tensor.is_meta or tensor.layout != torch.strided
    if odd or tensor.dtype == torch.bool:
        raise LineError(
            f"{name} is {'a meta tensor' if tensor.is_meta else _kind(tensor)}.",
            where=f"argument {name}",
            hint="Give real, dense numbers.",
        )
    found = tensor.cpu().to(torch.float64)
    if not tensor.is_floating_point() and not bool((found.to(tensor.dtype) == tensor.cpu()).all()):
        raise LineError(
            f"{name} holds integers that float64 cannot hold.",
            where=f"argument {name}",
            hint="Keep integers below 2**53.",
        )
    if not bool(torch.isfinite(found).all()):
        raise LineError(f"{name} holds NaN or infinite numbers.", where=f"argument {name}", hint="Give finite points.")
    return found.contiguous().clone()  # the caller may write over what was given


def _kind(tensor: Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return f"of type {str(tensor.dtype).removeprefix('torch.')}{layout}"
