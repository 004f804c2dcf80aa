"""Operators that only move units: coefficients and errors move alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from .error_bound import ErrorBound, euclidean
from .taylor_model import TaylorModel


def reshape(node: Node, x: TaylorModel, *args: Any, **kwargs: Any) -> TaylorModel:
    """Operators that keep the order of the units."""
    shape = node.meta["val"].shape
    moved = x.move(lambda rows: rows.reshape(len(rows), *shape))
    error = x.error
    if error.norm is None or not shape:
        return moved
    tail = list(x.shape[error.axis :])
    if list(shape[error.axis :]) == tail:  # the axis and those behind it stay
        norm, axis = error.norm.reshape(-1, *shape[: error.axis], 1, *tail[1:]), error.axis
    elif error.axis == -1 and tail[0] % shape[-1] == 0:  # parts of one vector are not longer than the vector
        norm = error.norm.expand_as(error.elements)[..., :: shape[-1]].reshape(-1, *shape[:-1], 1)
        axis = -1
    elif error.axis == -1 and shape[-1] % tail[0] == 0:  # several vectors become one
        parts = shape[-1] // tail[0]
        norm, axis = euclidean(error.norm.reshape(-1, *shape[:-1], parts), -1), -1
    else:
        return moved
    return TaylorModel(moved.coefficients, ErrorBound(moved.radius, norm, axis))


def permute(node: Node, x: TaylorModel, dims: Sequence[int]) -> TaylorModel:
    """Reorder the axes; the axis of the error bound moves along."""
    rank = len(x.shape)
    order = [d % rank for d in dims]
    axis = order.index(x.error.axis % rank) - rank
    return x.move(lambda rows: rows.permute(0, *(d + 1 for d in order)), axis)


def transpose(node: Node, x: TaylorModel, a: int = 0, b: int = 1) -> TaylorModel:
    """Swap two axes."""
    rank = len(x.shape)
    order = list(range(rank))
    if rank > 1:
        order[a % rank], order[b % rank] = order[b % rank], order[a % rank]
    return permute(node, x, order)


def take(node: Node, x: TaylorModel, dim: int = 0, *args: Any) -> TaylorModel:
    """Take units along one axis. The axis of the error bound stays, seen from the end, if it is behind that axis."""
    op: Any = node.target
    rank = len(x.shape)
    is_behind = x.error.axis % rank > dim % rank
    return x.move(torch.vmap(lambda row: op(row, dim, *args)), x.error.axis if is_behind else None)


def move_units(node: Node, x: TaylorModel, *args: Any, **kwargs: Any) -> TaylorModel:
    """Any other operator without arithmetic."""
    op: Any = node.target
    return x.move(torch.vmap(lambda row: op(row, *args, **kwargs)))


def insert(node: Node, x: TaylorModel, sizes: Sequence[int], dim: int, *args: Any) -> TaylorModel:
    """The derivative of `take`: units among zeros."""
    op: Any = node.target
    rank = len(sizes)
    is_behind = x.error.axis + rank > dim % rank
    return x.move(torch.vmap(lambda row: op(row, sizes, dim, *args)), x.error.axis if is_behind else None)


def expand(node: Node, x: TaylorModel, sizes: Sequence[int], **kwargs: Any) -> TaylorModel:
    """Repeat units."""
    shape = node.meta["val"].shape
    lead = [1] * (len(shape) - len(x.shape))
    keeps = len(x.shape) > 0 and x.shape[x.error.axis] == shape[x.error.axis]
    return x.move(
        lambda rows: rows.reshape(len(rows), *lead, *rows.shape[1:]).expand(-1, *shape), x.error.axis if keeps else None
    )


def concatenate(node: Node, models: Sequence[TaylorModel | Tensor], dim: int = 0) -> TaylorModel:
    """Concatenate models and constants."""
    parts = [m if isinstance(m, TaylorModel) else TaylorModel.constant(m) for m in models]
    order, discs, rank = max(p.order for p in parts), max(len(p.radius) for p in parts), len(parts[0].shape)
    coefficients = [p.pad(order).expand(order, discs, *p.shape) for p in parts]
    radius = [p.radius.expand(discs, *p.shape) for p in parts]
    return TaylorModel(torch.cat(coefficients, dim % rank + 2), ErrorBound(torch.cat(radius, dim % rank + 1)))


def stack(node: Node, models: Sequence[TaylorModel | Tensor], dim: int = 0) -> TaylorModel:
    """Concatenate along a new axis."""
    parts = [m if isinstance(m, TaylorModel) else TaylorModel.constant(m) for m in models]
    axis = dim % (len(parts[0].shape) + 1)
    return concatenate(node, [part.move(lambda rows: rows.unsqueeze(axis + 1)) for part in parts], axis)


def unbind(node: Node, x: TaylorModel, dim: int = 0) -> list[TaylorModel]:
    """Divide units along an axis, which is removed."""
    axis = dim % len(x.shape) + 1
    return [x.move(lambda rows, k=k: rows.select(axis, k)) for k in range(x.shape[dim])]


def split(node: Node, x: TaylorModel, sizes: int | Sequence[int], dim: int = 0) -> list[TaylorModel]:
    """Divide units into consecutive parts along one axis."""
    rank = len(x.shape)
    axis = x.error.axis if x.error.axis % rank != dim % rank else None
    lengths = [len(part) for part in torch.empty(x.shape[dim]).split(sizes)]
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    return [
        x.move(lambda rows, s=s, n=n: rows.narrow(dim % rank + 1, s, n), axis)
        for s, n in zip(starts, lengths, strict=True)
    ]


SHAPE_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "clone", "detach", "alias"), reshape),
    **dict.fromkeys(("_to_copy", "contiguous", "lift_fresh_copy"), reshape),
    "transpose": transpose,
    "t": transpose,
    "permute": permute,
    "expand": expand,
    "cat": concatenate,
    "stack": stack,
    "unbind": unbind,
    **dict.fromkeys(("split", "split_with_sizes"), split),
    **dict.fromkeys(("select", "slice"), take),
    **dict.fromkeys(("select_backward", "slice_backward"), insert),
    **dict.fromkeys(("constant_pad_nd", "flip", "index_select", "roll"), move_units),
}
