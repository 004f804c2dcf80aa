"""Where the windows of convolutions and pools lie: paddings, sizes of outputs."""

from __future__ import annotations

from collections.abc import Sequence

from .values import Call


def paddings(
    c: Call, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after, for each spatial dim."""
    spatial = len(kernel)
    pads, mode = c.ints("pads", [0] * (2 * spatial)), c.get("auto_pad", "NOTSET") or "NOTSET"
    lists = (strides, dilations, size)
    if any(len(v) != spatial for v in lists) or len(pads) != 2 * spatial:
        raise c.damaged("strides, dilations, pads and the kernel do not have the same number of dims.")
    if any(v < 1 for v in (*kernel, *strides, *dilations)) or any(p < 0 for p in pads):
        raise c.damaged("A kernel, stride or dilation is less than 1, or a padding less than 0.")
    if any(v > 1 << 24 for v in (*kernel, *strides, *dilations, *pads)):
        raise c.damaged("A kernel, stride, dilation or padding is absurdly large.")
    if mode == "NOTSET":
        return pads[:spatial], pads[spatial:]
    if mode == "VALID":
        return [0] * spatial, [0] * spatial
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise c.damaged(f"auto_pad {str(mode)[:40]!r} does not exist.")
    total = [
        max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    half, rest = [t // 2 for t in total], [t - t // 2 for t in total]
    return (half, rest) if mode == "SAME_UPPER" else (rest, half)


def pooled(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    ceil: bool,
) -> list[int]:
    """Sizes of a pool's output; a window must begin inside the input or the padding before it."""
    out: list[int] = []
    for n, k, s, d, p, q in zip(size, kernel, strides, dilations, before, after, strict=True):
        room = n + p + q - (k - 1) * d - 1
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        out.append(count)
    return out
