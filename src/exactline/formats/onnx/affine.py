"""Products with weights: Gemm, MatMul, convolutions, batch normalisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...network.builder import Refused
from .. import limits
from .arithmetic import elementwise
from .values import Call, Held, Value, given, operator
from .windows import paddings


@operator("MatMul")
def matmul(c: Call, inputs: list[Value]) -> Value:
    one, two = inputs[:2]
    if one is None or two is None:
        raise c.damaged("An input is missing.")
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        pair = one.to(torch.float64), two.to(torch.float64)
        limits.sized(torch.matmul(*(t.to("meta") for t in pair)).shape, "the result", c.sketch.where, limits.WIDTH)
        return torch.matmul(*pair)
    if isinstance(one, Held) and isinstance(two, Held):
        raise Refused("multiplies two branches of data")
    held, weight = (one, two) if isinstance(one, Held) else (two, one)
    weight = weight.to(torch.float64)
    if not held.shape or not weight.dim():
        raise c.damaged("It takes matrices and vectors, not single numbers.")
    # the batch dim must not be one that is summed over, nor grow by the weight's own leading dims
    deep = len(held.shape) - (0 if held is one else 1) >= 2
    alone = weight.dim() <= 2 or (weight.dim() <= len(held.shape) and weight.shape[0] == 1)
    if held.leads and deep and alone and weight.dim():
        weight = weight.squeeze(0) if weight.dim() > 2 and weight.dim() == len(held.shape) else weight
        args = (c.data(held), weight) if held is one else (weight, c.data(held))
        return c.led(c.call("matmul", *args))
    if len(held.shape) == 1 and held is two:
        column = c.reshaped(held, (*held.shape, 1))
        made = c.whole_point(c.call("matmul", weight, c.full(column)))
        return c.reshaped(made, made.shape[:-1])
    args = (c.full(held), weight) if held is one else (weight, c.full(held))
    return c.whole_point(c.call("matmul", *args))


@operator("Gemm")
def gemm(c: Call, inputs: list[Value]) -> Value:
    one, two, three = inputs[0], given(inputs, 1), given(inputs, 2)
    alpha, beta = c.number("alpha", 1.0), c.number("beta", 1.0)
    if isinstance(one, Held) and isinstance(two, Tensor) and not c.get("transA", 0) and one.leads:
        if two.dim() != 2 or len(one.shape) != 2:
            raise c.damaged("Gemm takes matrices.")
        weight = (two if c.get("transB", 0) else two.T).to(torch.float64).contiguous()
        bias = None
        if isinstance(three, Tensor):
            bias = (three.to(torch.float64) * beta).broadcast_to(1, len(weight))[0].contiguous()
        made = c.led(c.call("linear", c.data(one), weight if alpha == 1 else weight * alpha, bias))
        return elementwise(c, "add.Tensor", made, _times(c, three, beta)) if isinstance(three, Held) else made
    one = _transposed(c, one) if c.get("transA", 0) else one
    two = _transposed(c, two) if c.get("transB", 0) else two
    product = _times(c, matmul(c, [one, two]), alpha)
    return product if three is None else elementwise(c, "add.Tensor", product, _times(c, three, beta))


def _times(c: Call, value: Value, factor: float) -> Value:
    return value if factor == 1 else elementwise(c, "mul.Tensor", value, torch.tensor(factor, dtype=torch.float64))


def _transposed(c: Call, value: Value) -> Value:
    if isinstance(value, Tensor):
        return value.transpose(0, 1)
    held = c.held(value)
    return c.whole_point(c.call("transpose.int", c.full(held), 1, 2))


@operator("Conv")
def conv(c: Call, inputs: list[Value]) -> Value:
    x, weight = c.leading(inputs[0]), c.constant(inputs[1], "its kernel").to(torch.float64)
    bias = None if given(inputs, 2) is None else c.constant(inputs[2], "its bias").to(torch.float64)
    spatial = weight.dim() - 2
    _ranked(c, spatial, x.shape)
    strides, dilations = c.ints("strides", [1] * spatial), c.ints("dilations", [1] * spatial)
    kernel = list(weight.shape[2:])
    if c.ints("kernel_shape", kernel) != kernel:
        raise c.damaged("kernel_shape is not that of the weight.")
    before, after = paddings(c, x.shape[1:], kernel, strides, dilations)
    padding = before
    if before != after:
        x = c.call("constant_pad_nd", x, _torch_pads(before, after), 0.0)
        padding = [0] * spatial
    _biased(c, bias, weight.shape[0])
    args: list[Any] = [x, weight, bias, strides, padding, dilations, int(c.number("group", 1))]
    return c.led(c.call(f"conv{spatial}d", *args))


@operator("ConvTranspose")
def conv_transpose(c: Call, inputs: list[Value]) -> Value:
    x, weight = c.leading(inputs[0]), c.constant(inputs[1], "its kernel").to(torch.float64)
    bias = None if given(inputs, 2) is None else c.constant(inputs[2], "its bias").to(torch.float64)
    spatial = weight.dim() - 2
    _ranked(c, spatial, x.shape)
    group = int(c.number("group", 1))
    _biased(c, bias, weight.shape[1] * group)
    strides, dilations = c.ints("strides", [1] * spatial), c.ints("dilations", [1] * spatial)
    extra = c.ints("output_padding", [0] * spatial)
    kernel = list(weight.shape[2:])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [s * (n - 1) + o + r for s, n, o, r in zip(strides, x.shape[1:], extra, reach, strict=True)]
    wanted, mode = c.ints("output_shape"), c.get("auto_pad", "NOTSET")
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = wanted[-spatial:] or [n * s for n, s in zip(x.shape[1:], strides, strict=True)]
        totals = [max(w - n, 0) if w > n else w - n for w, n in zip(whole, wanted, strict=True)]
        if any(t < 0 for t in totals):
            raise Refused("asks for an output larger than its kernel reaches")
        half, rest = [t // 2 for t in totals], [t - t // 2 for t in totals]
        before, after = (half, rest) if mode == "SAME_UPPER" else (rest, half)
    else:
        pads = c.ints("pads", [0] * (2 * spatial)) if mode == "NOTSET" else [0] * (2 * spatial)
        before, after = pads[:spatial], pads[spatial:]
    if any(p < 0 for p in (*before, *after)) or any(v < 1 for v in (*strides, *dilations)):
        raise c.damaged("A stride or dilation is less than 1, or a padding less than 0.")
    if any(b + a >= n for b, a, n in zip(before, after, whole, strict=True)):
        raise c.damaged("Its padding cuts away all that it makes.")
    if any(n > limits.WIDTH for n in whole):
        raise c.damaged("A kernel, stride or dilation is absurdly large.")
    # drawn without padding, then cut: output_padding is rows that the kernel may reach
    grow = [max(0, o - (s - 1)) for o, s in zip(extra, strides, strict=True)]
    if any(grow):
        raise Refused("has an output_padding of a stride or more")
    args: list[Any] = [x, weight, bias, strides, [0] * spatial, extra, group, dilations]
    names = {1: "conv_transpose1d", 2: "conv_transpose2d.input", 3: "conv_transpose3d.input"}
    made = c.call(names[spatial], *args)
    for d in range(spatial):
        size = made.shape[d + 1]
        if before[d] or after[d]:
            made = c.call("slice.Tensor", made, d + 2, before[d], size - after[d], 1)
    return c.led(made)


@operator("BatchNormalization")
def batch_norm(c: Call, inputs: list[Value]) -> Value:
    if c.get("training_mode", 0):
        raise Refused("uses the statistics of the batch: the file is in training mode")
    if c.get("spatial", 1) != 1:
        raise Refused("has statistics for every place, which is not supported")
    scale, bias, mean, var = (c.constant(v, "its numbers").to(torch.float64) for v in inputs[1:5])
    held = c.held(inputs[0])
    if held.leads and len(held.shape) >= 2:
        return c.led(
            c.call("batch_norm", c.data(held), scale, bias, mean, var, False, 0.1, c.number("epsilon", 1e-5), False)
        )
    raise Refused(f"expects a batch of one point, not shape {list(held.shape)}")


def _biased(c: Call, bias: Tensor | None, channels: int) -> None:
    if bias is not None and tuple(bias.shape) != (channels,):
        raise c.damaged(f"The bias has shape {list(bias.shape)}, and there are {channels} channels.")


def _ranked(c: Call, spatial: int, shape: tuple[int, ...]) -> None:
    if spatial not in (1, 2, 3):
        raise Refused(f"has {spatial} spatial dims, and 1, 2 or 3 are supported")
    if len(shape) != spatial + 1:
        raise c.damaged(f"The kernel has {spatial} spatial dims and the input {len(shape) - 1}.")


def _torch_pads(before: list[int], after: list[int]) -> list[int]:
    """Paddings in torch's order: the last dim first."""
    return [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
