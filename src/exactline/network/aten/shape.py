"""Rules for operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...ops.affine import Reshape
from ..builder import Builder, Data, Refused, Value
from ..constants import doubled
from ..curves import Curve
from .affine import is_data
from .registry import Args, rule


@rule(
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
    shaped=True,
)
def reshape(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    return x if x.shape == tuple(b.shape) else b.add(Reshape(tuple(b.shape)), [x])


MOVES = (
    *("permute", "transpose", "t", "movedim", "swapaxes", "moveaxis", "expand", "expand_as", "repeat", "tile"),
    *("slice", "select", "narrow", "index", "index_select", "gather", "take_along_dim", "diagonal", "unfold"),
    *("cat", "concat", "stack", "hstack", "vstack", "flip", "roll", "rot90", "repeat_interleave"),
    *("split", "split_with_sizes", "unbind", "unsafe_split"),
    *("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d", "_pad_circular"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "tril", "triu", "diag_embed"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("select_scatter", "slice_scatter", "diagonal_scatter", "index_put", "index_copy", "fill", "copy"),
)


@rule(*MOVES, shaped=True)
def move(b: Builder, a: Args) -> Value:
    if a.get("accumulate"):
        raise Refused("adds into places, which we do not support")
    a = {k: _materialised(b, v) for k, v in a.items()}
    data = b.data_args(a)
    _apart(b.target.split(".")[0], a, data)
    call, name = b.call_with_data(a), b.target.split(".")[0]
    if b.shape and isinstance(b.shape[0], tuple):
        return tuple(b.rearranged(_item(call, i), data, name) for i in range(len(b.shape)))
    return b.rearranged(call, data, name)


@rule(
    *("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "lift", "positive", "nan_to_num"),
    *("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
)
def identity(b: Builder, a: Args) -> Value:
    if a.get("train") and a.get("p", 1.0) > 0:
        raise Refused("drops units at random")
    return a.get("self", a.get("input"))


@rule("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other")
def cast(b: Builder, a: Args) -> Value:
    value, dtype = a["self"], a.get("dtype")
    if isinstance(a.get("other"), Tensor):
        dtype = a["other"].dtype
    if dtype is not None and dtype not in (torch.float32, torch.float64) and not isinstance(value, Curve):
        raise Refused(f"rounds to {str(dtype).removeprefix('torch.')} inside forward")
    if isinstance(value, Data) and dtype is not None:
        b.notes.append(f"{b.name}: a cast to {str(dtype).removeprefix('torch.')} inside forward is read as exact")
    if isinstance(value, Curve) and dtype in (torch.float32, torch.float64):
        return Curve(value.root, value.knots, value.straights, value.at_knots)
    return value


@rule("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", shaped=True)
def filled(b: Builder, a: Args) -> Value:
    if is_data(a.get("fill_value")):
        raise Refused("fills a tensor with data")
    like = torch.zeros(1, *(b.shape if "like" in b.target else ()), dtype=torch.float64, device="cpu")
    return doubled(b.call_with_data({**a, "self": like, "device": None, "pin_memory": None})())


def _apart(name: str, a: Args, data: list[Data]) -> None:
    """Refuse what moves elements from point to point; a slice of the whole batch is none of it."""
    rank = len(data[0].shape) + 1
    dims = a.get("dims", a.get("dim"))
    listed = dims if isinstance(dims, (list, tuple)) else [] if dims is None else [dims]
    everywhere = name == "roll" and not listed
    below = name in ("tril", "triu") and rank < 3
    batch = name in ("flip", "roll", "gather", "index_select", "rot90") and any(d % rank == 0 for d in listed)
    if everywhere or below or batch:
        raise Refused("mixes the batch dimension")


def _materialised(b: Builder, value: Value) -> Value:
    if isinstance(value, (list, tuple)):
        return type(value)(_materialised(b, v) for v in value)
    return b.data(value) if isinstance(value, Curve) else value


def _item(call: Callable[..., Any], i: int) -> Callable[..., Tensor]:
    return lambda *numbers: call(*numbers)[i]
