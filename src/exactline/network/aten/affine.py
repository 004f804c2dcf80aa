"""Rules for affine operators: products with constants, sums, averages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import gemm
from ...ops.affine import Average, Combine, Product, Scale
from .. import curves
from ..builder import Barred, Builder, Data, Refused, Value
from ..curves import Curve, NotLinear
from .registry import Args, rule


def const(value: Value, what: str = "an operand") -> Tensor:
    """A constant as a float64 tensor."""
    if isinstance(value, (Data, Curve)):
        raise Refused(f"multiplies data by data ({what})")
    return value.to(torch.float64) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def is_data(value: Value) -> bool:
    return isinstance(value, (Data, Curve))


def dims_of(a: Args, x: Data, key: str = "dim") -> list[int]:
    """The dims an operator reduces, counted from 0; touching the batch dimension is refused."""
    value = a[key]
    rank = len(x.shape) + 1
    dims = [value] if isinstance(value, int) else list(value or range(rank))
    found = [d % rank for d in dims]
    if 0 in found:
        raise Refused("mixes the batch dimension")
    return found


@rule("linear")
def linear(b: Builder, a: Args) -> Value:
    x, weight = b.data(a["input"]), const(a["weight"], "its weight")
    bias = None if a["bias"] is None else const(a["bias"]).view(1, *[1] * (len(x.shape) - 1), -1)
    if weight.dim() == 1:
        return b.add(Product(torch.matmul, weight, bias, "linear"), [x])
    return b.add(Product(F.linear, weight, bias, "linear", F.linear), [x])


CONVS: dict[str, Callable[..., Tensor]] = {
    "conv1d": F.conv1d,
    "conv2d": F.conv2d,
    "conv3d": F.conv3d,
    "conv_transpose1d": F.conv_transpose1d,
    "conv_transpose2d": F.conv_transpose2d,
    "conv_transpose3d": F.conv_transpose3d,
}


@rule(*CONVS)
def convolution(b: Builder, a: Args) -> Value:
    x, weight = b.data(a["input"]), const(a["weight"], "its kernel")
    spatial = weight.dim() - 2
    if len(x.shape) != spatial + 1:
        raise Refused(f"expects {spatial + 1} dims after the batch dimension, found {len(x.shape)}")
    keys = ("stride", "padding", "output_padding", "dilation", "groups")
    settings: dict[str, Any] = {k: a[k] for k in keys if k in a}
    name = f"conv_transpose{spatial}d" if "output_padding" in a else f"conv{spatial}d"
    function = CONVS[name]

    known = _conv_settings(a, weight)

    def fused(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        made = gemm.convolve_by_gemm(x, w, bias, known)
        return function(x, w, bias, **settings) if made is None else made

    def call(x: Tensor, w: Tensor) -> Tensor:
        return fused(x, w, None)

    bias = None if a["bias"] is None else const(a["bias"]).view(1, -1, *[1] * spatial)
    return b.add(Product(call, weight, bias, name, fused, settings=known), [x])


def _conv_settings(a: Args, weight: Tensor) -> dict[str, Any]:
    """A convolution's settings, one number for each spatial dim; ``padding_end`` differs where it is "same"."""
    spatial = weight.dim() - 2
    dilation = each(a["dilation"], spatial)
    padding = a["padding"]
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilation, weight.shape[2:], strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        before = after = each(padding, spatial)
    return {
        "stride": each(a["stride"], spatial),
        "padding": before,
        "padding_end": after,
        "dilation": dilation,
        "groups": int(a["groups"]),
        "output_padding": each(a.get("output_padding", 0), spatial),
        "transposed": "output_padding" in a,
    }


def each(value: int | list[int], count: int) -> list[int]:
    """One number for each spatial dim."""
    values = [value] if isinstance(value, int) else [int(v) for v in value]
    return values * count if len(values) == 1 else values


@rule("_native_batch_norm_legit_no_training", "batch_norm")
def batch_norm(b: Builder, a: Args) -> Value:
    if a.get("training") or a.get("running_mean") is None:
        raise Refused("uses the statistics of the batch")
    x = b.data(a["input"])
    shape = (1, -1, *[1] * (len(x.shape) - 1))
    mean, var = const(a["running_mean"]), const(a["running_var"])
    weight = torch.ones_like(mean) if a["weight"] is None else const(a["weight"])
    bias = torch.zeros_like(mean) if a["bias"] is None else const(a["bias"])
    scale = weight / torch.sqrt(var + a["eps"])
    shift = bias - mean * scale
    known = {"mean": mean, "var": var, "weight": weight, "bias": bias, "eps": float(a["eps"])}
    made = b.add(Scale(scale.view(shape), None, shift.view(shape), "batch_norm", settings=known), [x], x.shape)
    statistics = Barred("uses the statistics of a batch norm")
    return (made, statistics, statistics) if isinstance(b.shape[0], tuple) else made


@rule("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor")
def add(b: Builder, a: Args) -> Value:
    left, right = a["self"], a["other"]
    factor = float(a["alpha"]) * (1 if b.target.startswith("add") else -1)
    if b.target.startswith("rsub"):
        left, right = right, left
    if isinstance(left, Curve) or isinstance(right, Curve):
        try:
            one, two = b.together(left, right)
        except Refused:
            left, right = (b.data(v) if is_data(v) else v for v in (left, right))
        else:
            return curves.add(one, two, curves.Fraction(factor))
    if is_data(left) and is_data(right):
        return b.add(Combine((1.0, factor)), [b.data(left), b.data(right)])
    if is_data(left):
        return b.add(Scale(None, None, const(right) * factor, "add"), [b.data(left)])
    weight = None if factor == 1 else torch.tensor(factor, dtype=torch.float64)
    return b.add(Scale(weight, None, const(left), "sub"), [b.data(right)])


@rule("mul.Tensor", "mul.Scalar")
def mul(b: Builder, a: Args) -> Value:
    left, right = a["self"], a["other"]
    if is_data(left) and is_data(right):
        try:
            return curves.multiply(*b.together(left, right))
        except (NotLinear, Refused):
            raise Refused("multiplies two branches of data") from None
    x, factor = (left, right) if is_data(left) else (right, left)
    if isinstance(x, Curve):
        return curves.multiply(*b.together(x, factor))
    return b.add(Scale(const(factor), None, None, "mul"), [b.data(x)])


@rule("div.Tensor", "div.Scalar")
def div(b: Builder, a: Args) -> Value:
    if a.get("rounding_mode") is not None:
        raise Refused("rounds, which jumps")
    if is_data(a["other"]):
        raise Refused("divides by data")
    divisor = const(a["other"])
    if not bool((divisor != 0).all()):
        raise Refused("divides by zero")
    return b.add(Scale(None, divisor, None, "div"), [b.data(a["self"])])


@rule("neg")
def neg(b: Builder, a: Args) -> Value:
    if isinstance(a["self"], Curve):
        return curves.multiply(*b.together(a["self"], -1.0))
    return b.add(Scale(torch.tensor(-1.0, dtype=torch.float64), None, None, "neg"), [b.data(a["self"])])


@rule("matmul", "bmm", "mm", "mv", "dot")
def matmul(b: Builder, a: Args) -> Value:
    left = a["self"]
    right = next(a[k] for k in ("other", "mat2", "vec", "tensor") if k in a)
    if is_data(left) and is_data(right):
        raise Refused("multiplies two branches of data")
    if is_data(left):
        x, weight = b.data(left), const(right)
        if weight.dim() == 2:
            return b.add(Product(F.linear, weight.T.contiguous(), None, "matmul"), [x])
        return b.add(Product(torch.matmul, weight, None, "matmul"), [x])
    x, weight = b.data(right), const(left)
    if len(x.shape) < 2:
        raise Refused("mixes the batch dimension")
    return b.add(Product(_left_product, weight, None, "matmul"), [x])


def _left_product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(weight, x)


@rule("addmm", "baddbmm", "addmv")
def addmm(b: Builder, a: Args) -> Value:
    keys = ("mat1", "mat2") if "mat1" in a else ("batch1", "batch2") if "batch1" in a else ("mat", "vec")
    product = matmul(b, {"self": a[keys[0]], "other": a[keys[1]]})
    if float(a["alpha"]) != 1:
        product = b.add(Scale(const(a["alpha"]), None, None, "mul"), [product])
    if is_data(a["self"]):
        return b.add(Combine((1.0, float(a["beta"]))), [product, b.data(a["self"])])
    return b.add(Scale(None, None, const(a["self"]) * float(a["beta"]), "add"), [product])


@rule("einsum")
def einsum(b: Builder, a: Args) -> Value:
    equation, operands = a["equation"], list(a["tensors"])
    data = [i for i, v in enumerate(operands) if is_data(v)]
    if len(data) > 1:
        raise Refused("multiplies two branches of data")
    if len(operands) > 2:
        raise Refused("takes more than two operands, which we do not support")
    x = b.data(operands[data[0]])
    if len(operands) == 1:
        count = prod(x.shape) // max(prod(b.shape), 1) or 1
        known = {"equation": equation}
        return b.add(Average(partial(torch.einsum, equation), max(count, 1), "einsum", settings=known), [x])
    weight = const(operands[1 - data[0]])
    first = data[0] == 0

    def call(x: Tensor, w: Tensor) -> Tensor:
        return torch.einsum(equation, x, w) if first else torch.einsum(equation, w, x)

    return b.add(Product(call, weight, None, "einsum", settings={"equation": equation, "data_first": first}), [x])


@rule("tensordot")
def tensordot(b: Builder, a: Args) -> Value:
    if not is_data(a["self"]) or is_data(a["other"]):
        raise Refused("needs data on the left and a constant on the right")
    dims = (list(a["dims_self"]), list(a["dims_other"]))
    x = b.data(a["self"])
    dims_of({"dim": dims[0]}, x)

    def call(x: Tensor, w: Tensor) -> Tensor:
        return torch.tensordot(x, w, dims=dims)  # pyright: ignore[reportArgumentType]

    return b.add(Product(call, const(a["other"]), None, "tensordot"), [x])


@rule("addcmul", "addcdiv")
def addcmul(b: Builder, a: Args) -> Value:
    one, two, value = a["tensor1"], a["tensor2"], float(a["value"])
    if b.target.startswith("addcdiv"):
        product = div(b, {"self": one, "other": two})
    else:
        product = mul(b, {"self": one, "other": two})
    product = b.data(product)
    if is_data(a["self"]):
        return b.add(Combine((1.0, value)), [b.data(a["self"]), product])
    return b.add(Scale(torch.tensor(value, dtype=torch.float64), None, const(a["self"])), [product])


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(b: Builder, a: Args) -> Value:
    if is_data(a["weight"]):
        raise Refused("multiplies two branches of data")
    weight = const(a["weight"])
    if not (is_data(a["self"]) and is_data(a["end"])):
        raise Refused("interpolates with a constant, which we do not support")
    start, end = b.data(a["self"]), b.data(a["end"])
    rest = b.add(Scale(1 - weight, None, None, "mul"), [start])
    part = b.add(Scale(weight, None, None, "mul"), [end])
    return b.add(Combine((1.0, 1.0)), [rest, part])


@rule("mean.dim", "sum.dim_IntList", "cumsum", "nansum")
def reduce(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    dims = dims_of(a, x)
    count = prod(x.shape[d - 1] for d in dims)
    name = b.target.split(".")[0]
    if not count:
        raise Refused("reduces an empty dim")
    known: dict[str, Any] = {"dims": [d - 1 for d in dims]}
    if name == "cumsum":
        return b.add(Average(partial(torch.cumsum, dim=dims[0]), count, name, settings=known), [x])
    function, keepdim = torch.mean if name == "mean" else torch.sum, bool(a["keepdim"])
    call = partial(function, dim=dims, keepdim=keepdim)
    return b.add(Average(call, count, name, settings={**known, "keepdim": keepdim}), [x])


@rule("diff")
def diff(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    if a["n"] != 1 or a["prepend"] is not None or a["append"] is not None:
        raise Refused("takes differences in a way we do not support")
    (dim,) = dims_of(a, x)
    length = x.shape[dim - 1] - 1
    later = b.rearranged(lambda n: n.narrow(dim, 1, length), [x], "slice")
    earlier = b.rearranged(lambda n: n.narrow(dim, 0, length), [x], "slice")
    return b.add(Combine((1.0, -1.0)), [later, earlier])


AVERAGES = (
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "col2im",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
)


@rule(*AVERAGES)
def average(b: Builder, a: Args) -> Value:
    x = b.data(a.get("self", a.get("input")))
    call, name = b.call_with_data(a), b.target.split(".")[0]
    kernel = a.get("kernel_size")
    if kernel is not None:
        count = prod(kernel) if len(kernel) > 1 else kernel[0] ** max(len(x.shape) - 1, 1)
    else:
        count = max(1, -(-prod(x.shape) // max(prod(b.shape), 1))) * 4
    # the weights of an interpolation are whatever floats the scale gives, those of a mean are 1/k
    return b.add(Average(call, count, name, fractions="upsample" not in name, settings=_pool_settings(a, name)), [x])


def _pool_settings(a: Args, name: str) -> dict[str, Any]:
    """An average pool's settings, one number for each spatial dim; nothing for the others."""
    if "count_include_pad" not in a:
        return {}
    spatial = int(name[-2])
    kernel = each(a["kernel_size"], spatial)
    return {
        "kernel": kernel,
        "stride": each(a["stride"] or kernel, spatial),
        "padding": each(a["padding"], spatial),
        "ceil_mode": bool(a["ceil_mode"]),
        "count_include_pad": bool(a["count_include_pad"]),
        "divisor": a.get("divisor_override"),
    }
