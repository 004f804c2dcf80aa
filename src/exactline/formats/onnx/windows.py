"""The padding and the output sizes of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence

from .. import limits
from .values import OnnxNode


def resolve_padding(
    node: OnnxNode, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The padding before and after each spatial dimension, from ``pads`` or ``auto_pad``.

    Args:
        node: the convolution or pool.
        size: of the input, one number for each spatial dimension, as in all other arguments.
        kernel: its sizes.
        strides: of the windows.
        dilations: of the kernel.
    """
    spatial = len(kernel)
    pads, mode = node.get_ints("pads", [0] * (2 * spatial)), node.get_attribute("auto_pad", "NOTSET") or "NOTSET"
    lists = (strides, dilations, size)
    if any(len(v) != spatial for v in lists) or len(pads) != 2 * spatial:
        raise node.make_error("strides, dilations, pads and the kernel differ in their number of dimensions.")
    if any(v < 1 for v in (*kernel, *strides, *dilations)) or any(p < 0 for p in pads):
        raise node.make_error("A kernel, stride or dilation is less than 1, or a padding less than 0.")
    if any(v > limits.MAX_VALUE_ELEMENTS for v in (*kernel, *strides, *dilations, *pads)):
        raise node.make_error("A kernel, stride, dilation or padding is too large.")
    if mode == "NOTSET":
        return pads[:spatial], pads[spatial:]
    if mode == "VALID":
        return [0] * spatial, [0] * spatial
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.make_error(f"auto_pad {str(mode)[:40]!r} does not exist.")
    total = [
        max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    half, rest = [t // 2 for t in total], [t - t // 2 for t in total]
    return (half, rest) if mode == "SAME_UPPER" else (rest, half)


def compute_pool_sizes(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    ceil: bool,
) -> list[int]:
    """The output sizes of a pool; a window must begin inside the input or the padding before it."""
    sizes: list[int] = []
    for n, k, s, d, p, q in zip(size, kernel, strides, dilations, before, after, strict=True):
        last = n + p + q - (k - 1) * d - 1  # where the last window may begin
        count = (-(-last // s) if ceil else last // s) + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        sizes.append(count)
    return sizes
