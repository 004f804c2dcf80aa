"""Fit an array to the input shape of a network: its layout, size and range are changed only where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import ArgumentError, LineError
from ..humanize import count_noun
from ..tolerances import MIN_RANGE_NUMBERS

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = NDArray[Any]

LAYOUTS = ("chw", "hwc", "flat")
CHANNEL_COUNTS = (1, 3, 4)  # of images
MAX_BYTE = 255  # the white of an image of 8 bits
PIXEL_TYPES = ("uint8", "uint16")  # types of arrays that hold pixels rather than the numbers a network takes


@dataclass(frozen=True)
class PointOptions:
    """The conversions that a user asks for; see `read_point`."""

    resize: bool = False
    layout: str | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @staticmethod
    def check(
        *, resize: bool = False, layout: Any = None, scale: Any = None, mean: Any = None, std: Any = None
    ) -> PointOptions:
        """Validate the options.

        Raises ArgumentError.
        """
        if layout is not None and layout not in LAYOUTS:
            raise ArgumentError(
                f"There is no layout {layout!r}.", where="--layout", hint=f"Give one of {', '.join(LAYOUTS)}."
            )
        if scale is not None and not (_is_finite_number(scale) and scale > 0):
            raise ArgumentError(
                f"The scale must be a number above 0, not {scale!r}.", where="--scale", hint="Give 255, or 1."
            )
        means, stds = _check_numbers(mean, "--mean"), _check_numbers(std, "--std")
        if stds is not None and not all(value > 0 for value in stds):
            raise ArgumentError("A standard deviation is not above 0.", where="--std", hint="Give 0.229,0.224,0.225.")
        return PointOptions(bool(resize), layout, None if scale is None else float(scale), means, stds)


@dataclass
class ConvertedPoint:
    """A point in the shape of a network's input, and every conversion that was made, in order."""

    values: Array  # (*in) float64 at the end
    conversions: list[str] = field(default_factory=list[str])


def fit_array(values: Array, shape: Shape, options: PointOptions, where: str) -> ConvertedPoint:
    """Fit an array to the shape of a network's input.

    An array in another layout, of another size or with pixels of 0 to 255 is refused unless the options say what is
    meant. Dimensions of one do not matter, a list of numbers takes any shape, and a vector takes a table row by row.

    Args:
        values: The array.
        shape: Of the network's input.
        options: The conversions that are asked for.
        where: What the point is for, for error messages.

    Raises LineError.
    """
    if values.dtype.kind not in "fiu":
        raise LineError(
            f"The point has type {values.dtype}, which does not hold real numbers.",
            where=where,
            hint="Give real numbers.",
        )
    largest = _find_white(values, shape)
    if options.scale is None and largest is not None and values.max(initial=0) > 1:
        raise LineError(
            f"The array has type {values.dtype} and values up to {values.max()}: these are pixels of 0 to {largest}, "
            "and the range that the network takes is not known.",
            where=where,
            hint=f"Divide them with --scale {largest}, or take them as they are with --scale 1.",
        )
    _check_integers(values, where)
    point = ConvertedPoint(_as_floats(values))
    _arrange(point, shape, options, where)
    if options.scale not in (None, 1.0):
        point.values = point.values / options.scale
        point.conversions.append(f"divided by {options.scale:g}")
    normalize_point(point, shape, options, where)
    return point


def _find_white(values: Array, shape: Shape) -> int | None:
    """The largest value of the pixels that an array seems to hold; None where it holds other numbers.

    Unsigned integers of 8 and 16 bits are pixels, and so are other integers from 0 to 255 for a network of images.
    """
    if values.dtype.name in PIXEL_TYPES:
        return int(np.iinfo(values.dtype).max)
    layout = find_image_layout(shape)
    is_image = layout is not None and layout[0] != "hw" and values.size >= MIN_RANGE_NUMBERS
    if is_image and values.dtype.kind in "iu" and values.min() >= 0 and values.max() <= MAX_BYTE:
        return MAX_BYTE
    return None


def normalize_point(point: ConvertedPoint, shape: Shape, options: PointOptions, where: str) -> None:
    """Subtract the mean and divide by the standard deviation, of all numbers or of each channel; in place."""
    for numbers, name in ((options.mean, "mean"), (options.std, "std")):
        if numbers is None:
            continue
        factors = _spread_over_channels(numbers, shape, f"--{name}", where)
        point.values = point.values - factors if name == "mean" else point.values / factors
        text = ", ".join(f"{number:g}" for number in numbers)
        point.conversions.append(f"the mean {text} subtracted" if name == "mean" else f"divided by the std {text}")
    if not np.isfinite(point.values).all():
        raise LineError("The point holds NaN or infinite numbers.", where=where, hint="Give finite points.")


def find_image_layout(shape: Shape) -> tuple[str, tuple[int, int, int]] | None:
    """The layout of a network's input if it is an image: chw, hwc or hw, and its channels, height and width."""
    dims = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    if len(dims) == 3 and dims[0] in CHANNEL_COUNTS:
        return "chw", (dims[0], dims[1], dims[2])
    if len(dims) == 3 and dims[2] in CHANNEL_COUNTS:
        return "hwc", (dims[2], dims[0], dims[1])
    if len(dims) == 2 and min(dims) > 1:
        return "hw", (1, dims[0], dims[1])
    return None


def resize_array(pixels: Array, height: int, width: int) -> Array:  # (C, H, W) -> (C, height, width)
    """Resize an image bilinearly, as Pillow does: pixels are averaged where it becomes smaller."""
    batch = torch.from_numpy(np.ascontiguousarray(pixels))[None]
    resized = torch.nn.functional.interpolate(batch, (height, width), mode="bilinear", antialias=True)
    return resized[0].numpy()


def _arrange(point: ConvertedPoint, shape: Shape, options: PointOptions, where: str) -> None:
    """Bring an array to the shape of the input, in place."""
    actual, image = point.values.shape, find_image_layout(shape)
    has_count = prod(actual) == prod(shape)
    if image is not None and options.layout in ("chw", "hwc"):
        _arrange_image(point, shape, image, options, where)
    elif has_count and (len(actual) <= 1 or drop_ones(actual) == drop_ones(shape)):
        point.values = point.values.reshape(shape)
    elif has_count and (options.layout == "flat" or _is_table_for_vector(actual, shape)):
        point.values = point.values.reshape(shape)
        point.conversions.append(f"reshaped from {actual} to {shape}, in the order of its numbers")
    elif image is None or options.layout == "flat":
        hint = "If its numbers are in the order that the network takes, say so with --layout flat."
        raise _shape_error(actual, shape, where, hint if has_count else f"Give {prod(shape):,} numbers.")
    else:
        _arrange_image(point, shape, image, options, where)


def _is_table_for_vector(actual: Shape, shape: Shape) -> bool:
    return len(drop_ones(shape)) <= 1 and len(drop_ones(actual)) == 2


def _arrange_image(
    point: ConvertedPoint, shape: Shape, image: tuple[str, tuple[int, int, int]], options: PointOptions, where: str
) -> None:
    """Bring an array that is an image to the layout and the size of the input, in place."""
    actual, (layout, (channels, height, width)) = point.values.shape, image
    source = options.layout or ("chw" if layout == "hw" else layout)
    dims = (channels, height, width) if source == "chw" else (height, width, channels)
    if len(actual) > 1 or prod(actual) != prod(dims):
        dims = actual
    while len(dims) > 3 and dims[0] == 1:
        dims = dims[1:]
    pixels = point.values.reshape(dims)
    if pixels.ndim == 2 and channels == 1:
        pixels = pixels[None]
    elif pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 2, 0) if source == "hwc" else pixels
    if pixels.ndim != 3 or pixels.shape[0] != channels:
        hint = _suggest_layout(dims, shape, channels, options)
        if options.layout is None or pixels.ndim != 3:
            raise _shape_error(actual, shape, where, hint)
        raise LineError(
            f"With --layout {options.layout} the point of shape {actual} has {count_noun(len(pixels), 'channel')}; "
            f"the network takes {channels}.",
            where=where,
            hint=hint,
        )
    if options.layout is not None and layout not in (source, "hw"):
        point.conversions.append(f"turned from ({', '.join(source.upper())}) to ({', '.join(layout.upper())})")
    if pixels.shape[1:] != (height, width):
        if not options.resize:
            raise _shape_error(actual, shape, where, "If it is an image, resize it with --resize.")
        point.conversions.append(describe_resize(pixels.shape[1:], (height, width)))
        pixels = resize_array(pixels, height, width)
    point.values = (np.moveaxis(pixels, 0, 2) if layout == "hwc" else pixels).reshape(shape)


def _suggest_layout(dims: Shape, shape: Shape, channels: int, options: PointOptions) -> str:
    """What to try with an array whose channels are not where, or not as many as, the network expects."""
    if options.layout is None and len(dims) == 3 and channels in (dims[0], dims[2]):
        layout = "hwc" if dims[2] == channels else "chw"
        resize = "" if prod(dims) == prod(shape) else " --resize"
        return f"Say where its channels are with --layout {layout}{resize}."
    if options.layout is not None and len(dims) == 3 and channels in (dims[0], dims[2]):
        first = "first" if options.layout == "hwc" else "last"
        return (
            f"--layout {options.layout} holds for both points, and this one has its channels {first}: store them alike."
        )
    if len(dims) in (2, 3):
        return f"Give an array with {count_noun(channels, 'channel')}: arrays are not recoloured."
    return f"Give {prod(shape):,} numbers."


def _shape_error(actual: Shape, shape: Shape, where: str, hint: str) -> LineError:
    problem = f"The network takes points of shape {shape}, the point has shape {actual}."
    return LineError(problem, where=where, hint=hint)


def describe_resize(before: Sequence[int], after: Sequence[int]) -> str:
    """A change of size in words."""
    return f"resized from {before[0]} by {before[1]} to {after[0]} by {after[1]} pixels (height by width)"


def _spread_over_channels(numbers: tuple[float, ...], shape: Shape, option: str, where: str) -> Array:
    """One number, or one for each channel or each element, as an array that broadcasts to the shape."""
    array, image = np.array(numbers), find_image_layout(shape)
    if len(numbers) == 1:
        return array.reshape([1] * len(shape))
    if image is not None and len(numbers) == image[1][0]:
        axis = len(shape) - 1 if image[0] == "hwc" else len(shape) - 3
        return array.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    if len(numbers) == prod(shape):
        return array.reshape(shape)
    channels = "" if image is None else f", {image[1][0]} for the channels"
    raise LineError(
        f"{len(numbers)} numbers do not fit points of shape {shape}.",
        where=f"{option}, {where}",
        hint=f"Give one number{channels}, or {prod(shape):,}.",
    )


def _check_integers(values: Array, where: str) -> None:
    if values.dtype.kind in "iu" and np.abs(values.astype(np.float64)).max(initial=0) > 2**53:
        raise LineError("The point holds integers that float64 cannot hold.", where=where, hint="Stay below 2**53.")


def _as_floats(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


def drop_ones(shape: Sequence[int]) -> Shape:
    """The dims of a shape that are not one."""
    return tuple(size for size in shape if size != 1)


def _check_numbers(value: Any, option: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value,)
    if not numbers or not all(map(_is_finite_number, numbers)):
        raise ArgumentError(
            f"{value!r} is not a list of finite numbers.",
            where=option,
            hint="Give one number, or one for each channel.",
        )
    return tuple(float(number) for number in numbers)


def _is_finite_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_number and isfinite(value)
