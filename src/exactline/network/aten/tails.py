"""Smooth operators that a network may end in, and all those that are refused by name."""

from __future__ import annotations

import torch

from ..builder import Builder, Refused, Smooth, Value
from ..graph import Tail
from .registry import Args, refuse, rule


@rule("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(b: Builder, a: Args) -> Value:
    name = b.target.split(".")[0].removeprefix("_")
    x, dim = b.data(a["self"]), int(a["dim"])
    if dim % (len(x.shape) + 1) == 0:
        raise Refused("mixes the batch dimension")
    function = torch.softmax if name == "softmax" else torch.log_softmax
    return Smooth(x, Tail(name, lambda t: function(t, dim), dim), b.path)


@rule("sigmoid", "tanh")
def elementwise(b: Builder, a: Args) -> Value:
    name = b.target.split(".")[0]
    return Smooth(b.data(a["self"]), Tail(name, torch.sigmoid if name == "sigmoid" else torch.tanh), b.path)


refuse("is smooth, not piecewise linear", "gelu", "silu", "mish", "elu", "celu", "selu", "softplus", "exp", "expm1")
refuse("is smooth, not piecewise linear", "log", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "log_sigmoid", "erf")
refuse("is smooth, not piecewise linear", "sin", "cos", "tan", "atan", "asin", "acos", "sinh", "cosh", "logsumexp")
refuse("is quadratic", "hardswish", "square", "prod", "cumprod", "var", "std", "var_mean", "std_mean", "bilinear")
refuse("multiplies two branches of data", "glu", "scaled_dot_product_attention", "_native_multi_head_attention")
refuse("is a power, not piecewise linear", "pow")
refuse("divides by a norm of the data", "layer_norm", "native_layer_norm", "group_norm", "native_group_norm")
refuse("divides by a norm of the data", "instance_norm", "rms_norm", "local_response_norm", "normalize")
refuse("is a norm, not supported", "linalg_vector_norm", "norm", "cdist", "pairwise_distance", "cosine_similarity")
refuse("jumps", "hardshrink", "round", "floor", "ceil", "trunc", "frac", "fmod", "remainder", "heaviside", "argmax")
refuse("jumps", "argmin", "argsort", "floor_divide", "max_unpool2d", "max_unpool3d", "bucketize", "searchsorted")
refuse("uses the statistics of the batch", "_native_batch_norm_legit", "_native_batch_norm_legit_functional")
refuse("uses the statistics of the batch", "native_batch_norm")
refuse("draws random numbers", "rand", "randn", "rand_like", "randn_like", "bernoulli", "normal", "multinomial")
refuse("is affine, but not supported yet", "upsample_bicubic2d", "grid_sampler_2d", "grid_sampler_3d", "fft_fft")
refuse("looks rows up by data", "embedding", "embedding_bag")
refuse("is recurrent and smooth", "lstm", "gru", "rnn_tanh")
