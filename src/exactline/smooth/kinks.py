"""Operators that are not analytic: a table from operator to where it has kinks, and a recorder of arguments.

Arguments of smooth operators with narrow `features` are recorded too.

A recorder is active while a model runs. It sees every torch operator that the model calls, whether the model was
captured, read from a file, or is a black box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..network.aten.registry import bind_arguments
from ..network.traced_node import operator_name
from .features import (
    BEND,
    KINK,
    NORMS,
    POLE,
    SOFT_SELECTIONS,
    Args,
    Closeness,
    has_features,
    read_argument,
    select_softly,
)
from .program import describe_running_node

# The knots of functions of one number: where they change from one analytic piece to another.
KNOTS: dict[str, Callable[[Args], Sequence[Any]]] = {
    **dict.fromkeys(
        ("relu", "leaky_relu", "_prelu_kernel", "prelu", "abs", "elu", "celu", "selu", "rrelu_with_noise"),
        lambda a: (0.0,),
    ),
    "relu6": lambda a: (0.0, 6.0),
    "hardtanh": lambda a: (a["min_val"], a["max_val"]),
    **dict.fromkeys(("hardsigmoid", "hardswish"), lambda a: (-3.0, 3.0)),
    "softshrink": lambda a: (-a["lambd"], a["lambd"]),
    "threshold": lambda a: (a["threshold"],),
    "softplus": lambda a: (a["threshold"] / a["beta"],),  # above its threshold torch returns the argument itself
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), lambda a: (a.get("min"), a.get("max"))),
}
# Functions of two values that change where the values are equal.
COMPARISONS = ("maximum", "minimum", "fmax", "fmin", "gt", "lt", "ge", "le")
# Operators whose result is the largest, smallest or k-th element along a dimension, or in a window.
POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")
INDEXED_SELECTIONS = ("max", "min", "sort", "topk", "median", "kthvalue", "mode")  # they return indices too
EXTREMES = {"amax": torch.argmax, "amin": torch.argmin}
JUMPS = (
    *("sign", "sgn", "round", "floor", "ceil", "trunc", "fix", "frac", "fmod", "remainder", "heaviside", "hardshrink"),
    *("argmax", "argmin", "argsort", "floor_divide", "bucketize", "searchsorted", "signbit", "nonzero", "unique"),
)


@dataclass(frozen=True)
class Signs:
    """The arguments of an operator with knots, less a knot: a kink is where one of them changes its sign."""

    node: str
    values: Tensor  # (points, units)
    closeness: Closeness = KINK


@dataclass(frozen=True)
class Leaders:
    """The members among which an operator selects: a kink is where it selects another one."""

    node: str
    values: Tensor  # (points, groups, members)
    selected: Tensor  # (points, groups, units) index of the selected member
    closeness: Closeness = KINK


Watched: TypeAlias = Signs | Leaders


def enclose_points(inner: Watched, ends: Watched, intervals: int) -> Watched:
    """Put the values at both ends of each interval around those at its inner points.

    Args:
        inner: (intervals * points, ...) values.
        ends: (intervals * 2, ...) values.
        intervals: the number of intervals.
    """

    def join(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.reshape(intervals, -1, *x.shape[1:]), y.reshape(intervals, 2, *y.shape[1:])
        return torch.cat([y[:, :1], x, y[:, 1:]], 1).flatten(0, 1)

    if isinstance(inner, Leaders) and isinstance(ends, Leaders):
        return replace(inner, values=join(inner.values, ends.values), selected=join(inner.selected, ends.selected))
    return replace(inner, values=join(inner.values, ends.values))


@dataclass
class OperatorTrace:
    """What a model calls, in order, for a number of points: learnt once, before the first piece."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of the argument of each operator with kinks
    jumps: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)  # node and shape of each discontinuous one
    random: list[str] = field(default_factory=list)  # nodes that draw random numbers
    elements: int = 0  # numbers in the results of all operators


class TraceRecorder(TorchDispatchMode):
    """Records an `OperatorTrace` while a model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.trace = OperatorTrace()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, first = operator_name(func).removesuffix("_"), args[0] if args else None
        if isinstance(first, Tensor):
            if name in JUMPS or _rounds(func, first, kwargs):
                self.trace.jumps.append((describe_running_node(name), tuple(first.shape)))
            elif _is_watched(name):
                self.trace.shapes.append(tuple(first.shape))
        if draws_random_numbers(func, args, kwargs):
            self.trace.random.append(describe_running_node(name))
        out = func(*args, **kwargs)
        self.trace.elements += sum(t.numel() for t in _tensors(out))
        return out


class KinkRecorder(TorchDispatchMode):
    """Records the `Watched` values of operators with kinks while a model runs.

    Args:
        batch_dims: for each call of an operator with kinks, the dimension of its argument that counts points, or None
            for a call whose argument does not depend on the input.
        points: the number of points in the batch.
    """

    def __init__(self, batch_dims: Sequence[int | None], points: int) -> None:
        super().__init__()
        self.batch_dims, self.points = batch_dims, points
        self.calls = 0
        self.found: list[Watched] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = operator_name(func).removesuffix("_")
        if not (_is_watched(name) and args and isinstance(args[0], Tensor)) or name in JUMPS:
            return func(*args, **kwargs)
        dim = self.batch_dims[self.calls] if self.calls < len(self.batch_dims) else None
        self.calls += 1
        if dim is None or args[0].shape[dim] % self.points:
            return func(*args, **kwargs)
        bound, node = bind_arguments(func, args, kwargs), describe_running_node(name)
        # arguments are read before the call, which may overwrite them
        if name in KNOTS or name in COMPARISONS:
            self.found += [Signs(node, v) for v in _signed_values(name, bound, dim, self.points)]
        if argument := read_argument(name, bound, func._schema.is_mutable):
            closeness, values = argument
            self.found += [Signs(node, v, closeness) for v in _rows(args[0], [values], dim, self.points)]
        out = func(*args, **kwargs)
        if name in NORMS:
            norms = NORMS[name](out).detach()
            if dim == 0 and len(norms) == len(args[0]):
                self.found.append(Signs(node, norms.reshape(self.points, -1), POLE))
        elif name in SOFT_SELECTIONS:
            self.found += _soft_leaders(bound, dim, self.points, node)
        elif name not in KNOTS and name not in COMPARISONS:
            self.found += _leaders(name, bound, out, dim, self.points, node)
        return out


def find_batch_dims(two: OperatorTrace, three: OperatorTrace) -> list[int | None]:
    """The dimension that counts points in the argument of each call, from traces of two and of three points.

    >>> find_batch_dims(OperatorTrace([(2, 5), (4, 4)]), OperatorTrace([(3, 5), (4, 4)]))
    [0, None]
    """
    if len(two.shapes) != len(three.shapes):
        return []
    return [batch_dim(a, b) for a, b in zip(two.shapes, three.shapes, strict=True)]


def batch_dim(two: tuple[int, ...], three: tuple[int, ...]) -> int | None:
    """The one dimension whose size grows with the number of points, from the shapes for two and for three points."""
    differing = [d for d, (a, b) in enumerate(zip(two, three, strict=False)) if a != b]
    if len(two) != len(three) or len(differing) != 1:
        return None
    d = differing[0]
    return d if 3 * two[d] == 2 * three[d] else None


def _is_watched(name: str) -> bool:
    """Whether the arguments of an operator are watched."""
    selects = name in POOLS or name in INDEXED_SELECTIONS or name in EXTREMES
    return selects or name in KNOTS or name in COMPARISONS or has_features(name)


def _rounds(func: Any, x: Tensor, kwargs: Any) -> bool:
    """Whether a cast rounds its argument to fewer digits, or to whole numbers."""
    dtype = kwargs.get("dtype")
    if operator_name(func) != "_to_copy" or not isinstance(dtype, torch.dtype) or not x.is_floating_point():
        return False
    return not dtype.is_floating_point or torch.finfo(dtype).eps > torch.finfo(torch.float32).eps


def draws_random_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call of an operator draws random numbers: dropout in evaluation mode does not."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    bound = bind_arguments(func, args, kwargs)
    if "train" in bound:
        return bool(bound["train"]) and bound.get("p", 1.0) > 0
    if "training" in bound:
        return bool(bound["training"])
    if "dropout_p" in bound:
        return bound["dropout_p"] > 0
    return True


def _tensors(out: Any) -> list[Tensor]:
    return [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, Tensor)]


def _flatten(x: Tensor, dim: int, points: int) -> Tensor:  # (points, units)
    """The values of each point as one row."""
    return x.detach().movedim(dim, 0).reshape(points, -1)


def _signed_values(name: str, args: Args, dim: int, points: int) -> list[Tensor]:  # (points, units) each
    x = args["self"]
    if name in COMPARISONS:
        knots: Sequence[Any] = (args["other"],)
    else:
        knots = [k for k in KNOTS[name](args) if k is not None]
    if not x.is_floating_point() and not any(isinstance(k, Tensor) and k.is_floating_point() for k in knots):
        return []
    return _rows(x, [x - k for k in knots], dim, points)


def _rows(x: Tensor, values: Sequence[Tensor], dim: int, points: int) -> list[Tensor]:  # (points, units) each
    """Values of the points of an argument as one row for each point; those of other shapes are left out."""
    kept = [v for v in values if v.dim() == x.dim() and v.shape[dim] == x.shape[dim]]
    return [_flatten(v, dim, points) for v in kept]


def _soft_leaders(args: Args, dim: int, points: int, node: str) -> list[Leaders]:
    found = select_softly(args)
    if found is None or found[1] == dim:
        return []
    x, along = found
    values = x.movedim((dim, along), (0, -1)).reshape(points, -1, x.shape[along])
    return [Leaders(node, values, values.argmax(-1, keepdim=True), BEND)]


def _leaders(name: str, args: Args, out: Any, dim: int, points: int, node: str) -> list[Leaders]:
    if name not in POOLS and name not in INDEXED_SELECTIONS and name not in EXTREMES:
        return []
    x = args["self"].detach()
    if name in POOLS:
        spatial = 3 if "3d" in name else 2
        if dim != 0 or x.dim() != spatial + 2:
            return []
        return [Leaders(node, x.flatten(-spatial), out[1].flatten(-spatial))]
    along = args.get("dim")
    if isinstance(along, (list, tuple)):
        along = along[0] if len(along) == 1 else None
    if along is None or along % x.dim() == dim or not x.is_floating_point():
        return []
    if name in EXTREMES:
        selected = EXTREMES[name](x, dim=along, keepdim=True)
    else:
        selected = out[1] if out[1].dim() == x.dim() else out[1].unsqueeze(along)
    members, units = x.shape[along], selected.shape[along]
    values = x.movedim((dim, along), (0, -1)).reshape(points, -1, members)
    return [Leaders(node, values, selected.movedim((dim, along), (0, -1)).reshape(points, -1, units))]
