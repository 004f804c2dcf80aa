"""Rules for operators that rearrange elements without changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...ops.affine import Reshape
from .. import scalar_functions
from ..builder import MIXES_BATCH, READS_UNINITIALIZED, GraphBuilder, NodeOutput, UnsupportedOperator, Value
from ..constants import to_float64
from ..scalar_functions import ScalarFunction
from .affine import depends_on_input
from .registry import Args, rule


@rule(
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
    reads_batch_size=True,
)
def reshape(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    return x if x.shape == tuple(graph.shape) else graph.add_node(Reshape(tuple(graph.shape)), [x])


REARRANGING_OPERATORS = (
    *("permute", "transpose", "t", "movedim", "swapaxes", "moveaxis", "expand", "expand_as", "repeat", "tile"),
    *("slice", "select", "narrow", "index", "index_select", "gather", "take_along_dim", "diagonal", "unfold"),
    *("cat", "concat", "stack", "hstack", "vstack", "flip", "roll", "rot90", "repeat_interleave"),
    *("split", "split_with_sizes", "unbind", "unsafe_split", "chunk", "unsafe_chunk"),
    *("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d", "_pad_circular"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "tril", "triu", "diag_embed"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("select_scatter", "slice_scatter", "diagonal_scatter", "index_copy", "fill", "copy"),
)


@rule(*REARRANGING_OPERATORS, reads_batch_size=True)
def rearrange(graph: GraphBuilder, args: Args) -> Value:
    if args.get("accumulate"):
        raise UnsupportedOperator("accumulates into elements, which is not supported")
    args = {k: _materialize(graph, v) for k, v in args.items()}
    xs = graph.list_node_outputs(args)
    call, name = graph.bind_constants(args), graph.target.split(".")[0]
    _check_batch_dimension(name, args, rank=len(xs[0].shape) + 1)
    if graph.shape and isinstance(graph.shape[0], tuple):
        return tuple(graph.rearrange(_select_output(call, i), xs, name) for i in range(len(graph.shape)))
    return graph.rearrange(call, xs, name)


@rule("index_put")
def index_put(graph: GraphBuilder, args: Args) -> Value:
    mask, *others = args["indices"]
    if not isinstance(mask, ScalarFunction):
        return rearrange(graph, args)
    if others or args.get("accumulate") or depends_on_input(args["values"]):
        raise UnsupportedOperator("writes to elements that depend on the input")
    return scalar_functions.where(*graph.as_functions_of_one_node(mask, args["values"], args["self"]))


@rule("broadcast_tensors")
def broadcast_tensors(graph: GraphBuilder, args: Args) -> Value:
    values = [_materialize(graph, v) for v in args["tensors"]]
    shapes = [(1, *v.shape) if isinstance(v, NodeOutput) else tuple(v.shape) for v in values]
    shape = torch.broadcast_shapes(*shapes)
    return tuple(
        graph.expand(v, shape[1:]) if isinstance(v, NodeOutput) else v.expand(shape).contiguous() for v in values
    )


@rule(
    *("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "lift", "positive", "nan_to_num"),
    *("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
)
def identity(graph: GraphBuilder, args: Args) -> Value:
    if args.get("train") and args.get("p", 1.0) > 0:
        raise UnsupportedOperator("drops units at random")
    return args.get("self", args.get("input"))


@rule("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other")
def cast(graph: GraphBuilder, args: Args) -> Value:
    value, dtype = args["self"], args.get("dtype")  # the reader refuses casts that round
    if isinstance(args.get("other"), Tensor):
        dtype = args["other"].dtype
    if isinstance(value, NodeOutput) and dtype is not None:
        kind = str(dtype).removeprefix("torch.")
        graph.notes.append(f"{graph.name}: a cast to {kind} inside forward is treated as exact")
    if isinstance(value, ScalarFunction) and dtype in (torch.float32, torch.float64):
        return ScalarFunction(value.node, value.knots, value.pieces, value.knot_values)
    return value


@rule("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", reads_batch_size=True)
def fill_like(graph: GraphBuilder, args: Args) -> Value:
    if depends_on_input(args.get("fill_value")):
        raise UnsupportedOperator("fills a tensor with a value that depends on the input")
    like = torch.zeros(1, *(graph.shape if "like" in graph.target else ()), dtype=torch.float64, device="cpu")
    return to_float64(graph.bind_constants({**args, "self": like, "device": None, "pin_memory": None})())


@rule("empty_like", "new_empty", reads_batch_size=True)
def empty_like(graph: GraphBuilder, args: Args) -> Value:
    dtype = args.get("dtype")
    if dtype is not None and not dtype.is_floating_point:
        raise UnsupportedOperator(READS_UNINITIALIZED)
    graph.may_be_uninitialized = True
    shape = (1, *graph.shape) if "like" in graph.target else tuple(args["size"])
    return torch.full(shape, torch.nan, dtype=torch.float64)


def _check_batch_dimension(name: str, args: Args, rank: int) -> None:
    """Raise UnsupportedOperator for an operator that would move elements between points and seems fine on one point."""
    dims = args.get("dims", args.get("dim"))
    listed = dims if isinstance(dims, (list, tuple)) else [] if dims is None else [dims]
    rolls_all = name == "roll" and not listed
    masks_batch = name in ("tril", "triu") and rank < 3
    moves_batch = name in ("flip", "roll", "gather", "index_select", "rot90") and any(d % rank == 0 for d in listed)
    if rolls_all or masks_batch or moves_batch:
        raise UnsupportedOperator(MIXES_BATCH)


def _materialize(graph: GraphBuilder, value: Value) -> Value:
    """Convert the scalar functions in a value, also inside lists, to node outputs."""
    if isinstance(value, (list, tuple)):
        return type(value)(_materialize(graph, v) for v in value)
    return graph.as_node_output(value) if isinstance(value, ScalarFunction) else value


def _select_output(call: Callable[..., Any], i: int) -> Callable[..., Tensor]:
    """A function that returns output ``i`` of a call."""
    return lambda *xs: call(*xs)[i]
