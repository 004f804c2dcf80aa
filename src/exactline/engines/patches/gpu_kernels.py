"""Triton kernels of the patch engine: one pass over all entries of a pixel instead of many torch operations.

Every program follows a tile of channels of one pixel along the segment, `ENTRIES` pieces at a time. The entries of a
pixel are ``order[first : first + count]``; a piece lies between two of them, and there is one more of them than
entries. Sums are carried from tile to tile in twice the precision. Triton makes 32-bit floats of Python's numbers,
therefore alphas, knots and slopes are passed as tensors.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnusedFunction=false

from __future__ import annotations

import triton
import triton.language as tl

ENTRIES = tl.constexpr(32)  # pieces that a program handles at a time
CHANNELS = tl.constexpr(32)  # channels of a program
POSITIONS = tl.constexpr(16)  # outputs of a program of a convolution

SIZES = ["channels", "pixels"]  # numbers for whose values no kernel is specialized


@triton.jit
def _add_pairs(sum_before, sum_through, next_before, next_through):
    """Join two ranges of terms, each given by the sum before its last term and the sum of all."""
    return sum_through + next_before, sum_through + next_through


@triton.jit
def _add_exactly(high, low, term):
    """Add a term to a sum of two numbers, the second of which is its rounding error."""
    total = high + term
    rounded = total - high
    return total, low + ((high - (total - rounded)) + (term - rounded))


@triton.jit
def _piece_alphas(piece, count, first, order, alphas, ends):
    """The alphas at which pieces start and stop; pieces behind the last one have no width."""
    start, stop = tl.load(ends), tl.load(ends + 1)
    entry_before = tl.load(order + first + piece - 1, mask=(piece > 0) & (piece <= count), other=0)
    entry_after = tl.load(order + first + piece, mask=piece < count, other=0)
    before = tl.load(alphas + entry_before)
    before = tl.where(piece == 0, start, tl.where(piece <= count, before, stop))
    return entry_before, before, tl.where(piece < count, tl.load(alphas + entry_after), stop)


@triton.jit
def _follow_pieces(jump, width, slope_high, slope_low, value_high, value_low):
    """Slopes on pieces, values at both of their ends, and the sums to carry on with."""
    slope = slope_high[None, :] + (tl.cumsum(jump, 0) + slope_low[None, :])
    step = slope * width[:, None]
    sum_before, sum_through = tl.associative_scan((tl.zeros_like(step), step), 0, _add_pairs)
    at_start = value_high[None, :] + (sum_before + value_low[None, :])
    at_stop = value_high[None, :] + (sum_through + value_low[None, :])
    slope_high, slope_low = _add_exactly(slope_high, slope_low, tl.sum(jump, 0))
    value_high, value_low = _add_exactly(value_high, value_low, tl.sum(step, 0))
    return slope, at_start, at_stop, slope_high, slope_low, value_high, value_low


@triton.jit
def _load_jumps(rows, entry, piece, count, channel, channels, in_channels):
    """The jumps with which pieces start, zero for the first one and behind the last one."""
    place = entry.to(tl.int64)[:, None] * channels + channel[None, :]
    is_jump = ((piece > 0) & (piece <= count))[:, None] & in_channels[None, :]
    return place, is_jump, tl.load(rows + place, mask=is_jump, other=0.0)


@triton.jit(do_not_specialize=SIZES)
def find_ranges(rows, order, alphas, starts, counts, left, right, slopes, ends, low, high, drift, channels):
    """Write the smallest and the largest value of every element (pixels, channels), and its drift at the stop."""
    pixel = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    in_channels = channel < channels
    element = pixel * channels + channel
    first, count = tl.load(starts + pixel), tl.load(counts + pixel)
    value_high = tl.load(left + element, mask=in_channels, other=0.0)
    slope_high = tl.load(slopes + element, mask=in_channels, other=0.0)
    value_low, slope_low = tl.zeros_like(value_high), tl.zeros_like(value_high)
    lowest, highest = value_high, value_high
    for begin in range(0, count + 1, ENTRIES):
        piece = begin + tl.arange(0, ENTRIES)
        entry, before, after = _piece_alphas(piece, count, first, order, alphas, ends)
        _, _, jump = _load_jumps(rows, entry, piece, count, channel, channels, in_channels)
        _, _, at_stop, slope_high, slope_low, value_high, value_low = _follow_pieces(
            jump, after - before, slope_high, slope_low, value_high, value_low
        )
        lowest = tl.minimum(lowest, tl.min(at_stop, 0))
        highest = tl.maximum(highest, tl.max(at_stop, 0))
    tl.store(low + element, lowest, mask=in_channels)
    tl.store(high + element, highest, mask=in_channels)
    at_right = tl.load(right + element, mask=in_channels, other=0.0)
    tl.store(drift + element, tl.abs(at_right - (value_high + value_low)), mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def count_crossings(
    rows, order, alphas, starts, counts, left, right, slopes, ends, knots, crossings, distance, drift, channels, pixels,
    KNOTS: tl.constexpr,
):  # fmt: skip
    """Write the crossings of every knot (knots, pixels, channels), the smallest distance to a knot, and the drift."""
    pixel = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    in_channels = channel < channels
    element = pixel * channels + channel
    first, count = tl.load(starts + pixel), tl.load(counts + pixel)
    value_high = tl.load(left + element, mask=in_channels, other=0.0)
    slope_high = tl.load(slopes + element, mask=in_channels, other=0.0)
    value_low, slope_low = tl.zeros_like(value_high), tl.zeros_like(value_high)
    nearest = tl.abs(value_high - tl.load(knots))
    for k in tl.static_range(1, KNOTS):
        nearest = tl.minimum(nearest, tl.abs(value_high - tl.load(knots + k)))
    passed = tl.zeros([CHANNELS], tl.int32)  # crossings of the first knot
    passed_upper = tl.zeros([CHANNELS], tl.int32)  # and of the second one
    for begin in range(0, count + 1, ENTRIES):
        piece = begin + tl.arange(0, ENTRIES)
        entry, before, after = _piece_alphas(piece, count, first, order, alphas, ends)
        _, _, jump = _load_jumps(rows, entry, piece, count, channel, channels, in_channels)
        _, at_start, at_stop, slope_high, slope_low, value_high, value_low = _follow_pieces(
            jump, after - before, slope_high, slope_low, value_high, value_low
        )
        for k in tl.static_range(KNOTS):
            knot = tl.load(knots + k)
            crosses = ((at_start > knot) != (at_stop > knot)) & (piece <= count)[:, None]
            nearest = tl.minimum(nearest, tl.min(tl.abs(at_stop - knot), 0))
            if k == 0:
                passed += tl.sum(crosses.to(tl.int32), 0)
            else:
                passed_upper += tl.sum(crosses.to(tl.int32), 0)
    tl.store(crossings + element, passed, mask=in_channels)
    if KNOTS > 1:
        tl.store(crossings + pixels * channels + element, passed_upper, mask=in_channels)
    tl.store(distance + element, nearest, mask=in_channels)
    at_right = tl.load(right + element, mask=in_channels, other=0.0)
    tl.store(drift + element, tl.abs(at_right - (value_high + value_low)), mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def apply_branches(
    rows, order, alphas, starts, counts, left, slopes, ends, knots, factors, ranks, out_slopes,
    crossing_alpha, crossing_element, crossing_slope, channels, pixels,
    KNOTS: tl.constexpr,
):  # fmt: skip
    """Multiply jumps by the slope of their branch, in place, and write the crossings, in order of pixel and channel.

    ``factors`` (KNOTS + 1, channels) are the slopes of the branches, ``ranks`` (knots, pixels, channels) how many
    crossings there are before an element's first one.
    """
    pixel = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    in_channels = channel < channels
    element = pixel * channels + channel
    first, count = tl.load(starts + pixel), tl.load(counts + pixel)
    value_high = tl.load(left + element, mask=in_channels, other=0.0)
    slope_high = tl.load(slopes + element, mask=in_channels, other=0.0)
    value_low, slope_low = tl.zeros_like(value_high), tl.zeros_like(value_high)
    first_factor = tl.load(factors + channel, mask=in_channels, other=0.0)
    for k in tl.static_range(KNOTS):
        upper = tl.load(factors + (k + 1) * channels + channel, mask=in_channels, other=0.0)
        first_factor = tl.where(value_high > tl.load(knots + k), upper, first_factor)
    tl.store(out_slopes + element, slope_high * first_factor, mask=in_channels)
    passed = tl.zeros([CHANNELS], tl.int32)  # crossings of the first knot
    passed_upper = tl.zeros([CHANNELS], tl.int32)  # and of the second one
    for begin in range(0, count + 1, ENTRIES):
        piece = begin + tl.arange(0, ENTRIES)
        entry, before, after = _piece_alphas(piece, count, first, order, alphas, ends)
        place, is_jump, jump = _load_jumps(rows, entry, piece, count, channel, channels, in_channels)
        slope, at_start, at_stop, slope_high, slope_low, value_high, value_low = _follow_pieces(
            jump, after - before, slope_high, slope_low, value_high, value_low
        )
        lowest = tl.load(factors + channel, mask=in_channels, other=0.0)
        factor = tl.zeros_like(jump) + lowest[None, :]
        for k in tl.static_range(KNOTS):
            knot = tl.load(knots + k)
            upper = tl.load(factors + (k + 1) * channels + channel, mask=in_channels, other=0.0)
            factor = tl.where(at_start > knot, upper[None, :], factor)
            crosses = ((at_start > knot) != (at_stop > knot)) & (piece <= count)[:, None] & in_channels[None, :]
            number = crosses.to(tl.int32)
            rank = tl.load(ranks + k * pixels * channels + element, mask=in_channels, other=0)
            rank = rank + (passed if k == 0 else passed_upper)
            rank = rank[None, :] + (tl.cumsum(number, 0) - number)
            from_start, from_stop = tl.abs(at_start - knot), tl.abs(at_stop - knot)
            width, total = (after - before)[:, None], from_start + from_stop
            is_near_start = from_start <= from_stop
            share = tl.where(is_near_start, from_start, from_stop) / tl.where(crosses, total, 1.0)
            alpha = tl.where(is_near_start, before[:, None] + width * share, after[:, None] - width * share)
            tl.store(crossing_alpha + rank, alpha, mask=crosses)
            tl.store(crossing_element + rank, tl.zeros_like(rank) + element[None, :], mask=crosses)
            tl.store(crossing_slope + rank, slope, mask=crosses)
            if k == 0:
                passed += tl.sum(number, 0)
            else:
                passed_upper += tl.sum(number, 0)
        tl.store(rows + place, jump * factor, mask=is_jump)


@triton.jit(do_not_specialize=["rows", "columns", "out_rows", "out_columns", "channels"])
def correlate_channels(
    jump, weight, corners, out, rows, columns, out_rows, out_columns, channels,
    KERNEL_ROWS: tl.constexpr, KERNEL_COLUMNS: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    DILATION_Y: tl.constexpr, DILATION_X: tl.constexpr,
):  # fmt: skip
    """Multiply windows of patches (n, rows, columns, channels) by the taps of a depthwise convolution.

    ``corners`` (n, 2) are the first row and column of a patch's first window, relative to the patch.
    """
    patch = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    in_channels = channel < channels
    is_output = position < out_rows * out_columns
    y = tl.load(corners + 2 * patch) + position // out_columns * STRIDE_Y
    x = tl.load(corners + 2 * patch + 1) + position % out_columns * STRIDE_X
    total = tl.zeros([POSITIONS, CHANNELS], tl.float64)
    for i in tl.static_range(KERNEL_ROWS):
        for j in tl.static_range(KERNEL_COLUMNS):
            row, column = y + i * DILATION_Y, x + j * DILATION_X
            is_inside = is_output & (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            place = ((patch * rows + row) * columns + column)[:, None] * channels + channel[None, :]
            tap = tl.load(weight + (i * KERNEL_COLUMNS + j) * channels + channel, mask=in_channels, other=0.0)
            total += tl.load(jump + place, mask=is_inside[:, None] & in_channels[None, :], other=0.0) * tap[None, :]
    place = (patch * out_rows * out_columns + position)[:, None] * channels + channel[None, :]
    tl.store(out + place, total, mask=is_output[:, None] & in_channels[None, :])
