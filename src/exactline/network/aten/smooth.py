"""Rules for smooth operators, which a network may end in, and the list of operators that are never supported."""

from __future__ import annotations

import torch

from ..builder import MIXES_BATCH, MULTIPLIES_INPUTS, GraphBuilder, SmoothOutput, UnsupportedOperator, Value
from ..calls import Softmax
from ..graph import Tail
from .registry import Args, register_unsupported, rule


@rule("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(graph: GraphBuilder, args: Args) -> Value:
    name = graph.target.split(".")[0].removeprefix("_")
    x, dim = graph.as_node_output(args["self"]), int(args["dim"])
    if dim % (len(x.shape) + 1) == 0:
        raise UnsupportedOperator(MIXES_BATCH)
    return SmoothOutput(x, Tail(name, Softmax(name, dim), dim), graph.path)


@rule("sigmoid", "tanh")
def elementwise(graph: GraphBuilder, args: Args) -> Value:
    name = graph.target.split(".")[0]
    tail = Tail(name, torch.sigmoid if name == "sigmoid" else torch.tanh)
    return SmoothOutput(graph.as_node_output(args["self"]), tail, graph.path)


register_unsupported(
    "is smooth, not piecewise linear",
    *("gelu", "silu", "mish", "elu", "celu", "selu", "softplus", "exp", "expm1", "log", "log1p", "log2", "sqrt"),
    *("rsqrt", "reciprocal", "log_sigmoid", "erf", "sin", "cos", "tan", "atan", "asin", "acos", "sinh", "cosh"),
    "logsumexp",
)
register_unsupported(
    "is quadratic",
    *("hardswish", "square", "prod", "cumprod", "var", "std", "var_mean", "std_mean", "bilinear"),
)
register_unsupported(MULTIPLIES_INPUTS, "glu", "scaled_dot_product_attention", "_native_multi_head_attention")
register_unsupported("is a power, not piecewise linear", "pow")
register_unsupported(
    "divides by a norm of its input",
    *("layer_norm", "native_layer_norm", "group_norm", "native_group_norm"),
    *("instance_norm", "rms_norm", "local_response_norm", "normalize"),
)
register_unsupported(
    "is a norm, not supported",
    *("linalg_vector_norm", "norm", "cdist", "pairwise_distance", "cosine_similarity"),
)
register_unsupported(
    "is discontinuous",
    *("hardshrink", "round", "floor", "ceil", "trunc", "frac", "fmod", "remainder", "heaviside", "argmax", "argmin"),
    *("argsort", "floor_divide", "max_unpool2d", "max_unpool3d", "bucketize", "searchsorted"),
)
register_unsupported(
    "uses the statistics of the batch",
    *("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm"),
)
register_unsupported(
    "draws random numbers",
    *("rand", "randn", "rand_like", "randn_like", "bernoulli", "normal", "multinomial"),
)
register_unsupported(
    "is affine, but not supported yet",
    *("upsample_bicubic2d", "grid_sampler_2d", "grid_sampler_3d", "fft_fft"),
)
register_unsupported("uses its input as indices", "embedding", "embedding_bag")
register_unsupported("is recurrent and smooth", "lstm", "gru", "rnn_tanh")
