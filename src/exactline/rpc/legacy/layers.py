"""The nine kinds of layers of the old protocol, checked: what each takes, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ArgumentError
from ...formats import limits

DEEPEST = 16  # concatenations within each other
CHANNELS, FLAT = 1, 2  # how outputs are put together
SIZES = "Sizes, windows and strides are at least 1."


@dataclass(frozen=True)
class Extent:
    """How many numbers there are, and as which image (height, width, channels) if that is known."""

    size: int
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer as it was read; ReLU, hardtanh and argmax are no more than this."""

    title: str  # as messages call it
    where: str  # which of the layers it is

    def after(self, before: Extent) -> Extent:
        """What it gives; raises ArgumentError where it does not fit what comes in."""
        return Extent(1, (1, 1, 1)) if self.title == "ArgMax" else before

    def takes(self) -> int | None:
        """How many numbers it takes, if it says so."""
        return None

    def fits(self, before: Extent, wanted: int) -> None:
        """Refuse what comes in unless there is as much as is wanted."""
        if before.size != wanted:
            raise bad(
                f"{self.title} takes {wanted:,} numbers, and {before.size:,} come in.",
                self.where,
                "See that each layer fits the one before it, and lines and polytopes the first.",
            )


@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """A fully connected layer."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)

    def takes(self) -> int | None:
        return self.weight.shape[1]

    def after(self, before: Extent) -> Extent:
        self.fits(before, self.weight.shape[1])
        return Extent(len(self.bias))


@dataclass(frozen=True, eq=False)
class Window(Layer):
    """A convolution or a pool."""

    image: tuple[int, int, int]  # (height, width, channels) that come in
    out: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    weight: Tensor | None = None  # (out, in, height, width) of a convolution
    bias: Tensor | None = None  # (out,)

    def takes(self) -> int | None:
        return prod(self.image)

    def after(self, before: Extent) -> Extent:
        self.fits(before, prod(self.image))
        return Extent(prod(self.out), self.out)


@dataclass(frozen=True, eq=False)
class Normalize(Layer):
    """(x - mean) / deviation, channel by channel."""

    mean: Tensor  # (channels,)
    deviation: Tensor  # (channels,)

    def after(self, before: Extent) -> Extent:
        if before.size % len(self.mean):
            raise bad(
                f"Normalize has {len(self.mean):,} means, and {before.size:,} numbers come in.",
                self.where,
                "Give one mean and one deviation for each channel.",
            )
        return before


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """Several layers on the same input, their outputs put together."""

    parts: tuple[Layer, ...]
    along: int

    def takes(self) -> int | None:
        return next((size for part in self.parts if (size := part.takes()) is not None), None)

    def after(self, before: Extent) -> Extent:
        made = [part.after(before) for part in self.parts]
        size = sum(extent.size for extent in made)
        limits.within(size, limits.WIDTH, "units in one layer", self.where)
        if self.along == FLAT:
            return Extent(size)
        height, width = self.rows(made)
        return Extent(size, (height, width, size // (height * width)))

    def rows(self, made: Sequence[Extent]) -> tuple[int, int]:
        """Height and width of the outputs, which all must have; vectors are images of one pixel."""
        known = {extent.image[:2] for extent in made if extent.image is not None}
        height, width = known.pop() if known else (1, 1)
        if known or any(extent.size % (height * width) for extent in made):
            raise bad(
                "The outputs that are put together by channels have different heights or widths.",
                self.where,
                "Give layers whose outputs have one height and one width, or concatenate flat.",
            )
        return height, width


def read_layer(message: Any, where: str, depth: int = 0) -> Layer:
    """A Layer message, checked by itself; whether it fits what comes in is asked of the result.

    Raises ArgumentError, FileError where something is too large.
    """
    kind: str = message.WhichOneof("layer_data") or ""
    if kind not in READERS:
        raise bad("The layer is of no kind.", where, "Set one of the nine kinds of layer_data.")
    title, read = READERS[kind]
    return read(getattr(message, kind), title, f"{where}: {title}", depth)


def bad(problem: str, where: str, hint: str) -> ArgumentError:
    """What a client is told of a message that cannot be right."""
    return ArgumentError(problem, where=where, hint=hint)


def numbers(field: Any, what: str, where: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A repeated field as an array, without a list of objects in between; refused unless finite."""
    found = np.fromiter(field, np.float32, len(field))
    if not np.isfinite(found).all():
        raise bad(f"The {what} hold NaN or infinite numbers.", where, "Give finite numbers.")
    return found


def _plain(message: Any, title: str, where: str, depth: int) -> Layer:
    if title == "ArgMax" and depth:
        raise bad("ArgMax is inside of a concatenation.", where, "ArgMax may only be the last layer.")
    return Layer(title, where)


def _dense(message: Any, title: str, where: str, depth: int) -> Layer:
    count, out = len(message.weights), len(message.biases)
    if not out or not count or count % out:
        raise bad(
            f"There are {count:,} weights and {out:,} biases.",
            where,
            "Give one bias for each output, and inputs times outputs weights.",
        )
    weight = torch.from_numpy(numbers(message.weights, "weights", where)).view(count // out, out)
    bias = torch.from_numpy(numbers(message.biases, "biases", where))
    return Dense(title, where, weight.T.to(torch.float64).contiguous(), bias.to(torch.float64))


def _window(message: Any, title: str, where: str, depth: int) -> Window:
    w = message.window_data
    image, kernel = (w.in_height, w.in_width, w.in_channels), (w.window_height, w.window_width)
    stride, pad = (w.stride_height, w.stride_width), (w.pad_height, w.pad_width)
    channels = w.out_channels if title == "Conv2D" else w.in_channels
    if min(*image, *kernel, *stride, channels) < 1:
        raise bad(
            f"The input is {_by(image)}, the window {_by(kernel)}, its stride {_by(stride)}, and there are {channels}"
            " channels out.",
            where,
            SIZES,
        )
    if title != "Conv2D" and w.out_channels not in (0, w.in_channels):
        raise bad(f"{w.in_channels} channels come in and {w.out_channels} go out.", where, "A pool keeps its channels.")
    padded = [n + 2 * p for n, p in zip(image, pad, strict=False)]
    if any(n < k for n, k in zip(padded, kernel, strict=True)):
        raise bad(f"The window {_by(kernel)} is larger than the padded input {_by(padded)}.", where, "Correct it.")
    height, width = ((n - k) // s + 1 for n, k, s in zip(padded, kernel, stride, strict=True))
    limits.within(max(prod(padded) * image[2], height * width * channels), limits.WIDTH, "units in one layer", where)
    if title == "MaxPool":
        limits.within(height * width * channels * prod(kernel), limits.TABLES, "places in windows", where)
        if any(p >= k for p, k in zip(pad, kernel, strict=True)):
            raise bad("There are windows wholly in the padding.", where, "Pad by less than the window.")
    return Window(title, where, image, (height, width, channels), kernel, stride, pad)


def _convolution(message: Any, title: str, where: str, depth: int) -> Layer:
    window = _window(message, title, where, depth)
    shape = (*window.kernel, window.image[2], window.out[2])
    if len(message.filters) != prod(shape) or len(message.biases) != shape[3]:
        raise bad(
            f"There are {len(message.filters):,} weights and {len(message.biases):,} biases where the sizes say"
            f" {prod(shape):,} and {shape[3]:,}.",
            where,
            "Filters are height x width x channels in x channels out.",
        )
    weight = torch.from_numpy(numbers(message.filters, "filters", where)).view(shape).permute(3, 2, 0, 1)
    bias = torch.from_numpy(numbers(message.biases, "biases", where))
    sizes = (window.image, window.out, window.kernel, window.stride, window.pad)
    return Window(title, where, *sizes, weight.to(torch.float64).contiguous(), bias.to(torch.float64))


def _normalize(message: Any, title: str, where: str, depth: int) -> Layer:
    mean = numbers(message.means, "means", where)
    deviation = numbers(message.standard_deviations, "deviations", where)
    if not len(mean) or len(mean) != len(deviation) or not deviation.all():
        raise bad(
            f"There are {len(mean)} means and {len(deviation)} deviations, or one of these is 0.",
            where,
            "Give one mean and one deviation other than 0 for each channel.",
        )
    return Normalize(title, where, *(torch.from_numpy(v).to(torch.float64) for v in (mean, deviation)))


def _concat(message: Any, title: str, where: str, depth: int) -> Layer:
    if depth >= DEEPEST:
        raise bad(f"More than {DEEPEST} concatenations are within each other.", where, "Nest them less deeply.")
    if message.concat_along not in (CHANNELS, FLAT):
        raise bad("It is not said how outputs are put together.", where, "Concatenate along channels (1) or flat (2).")
    if not message.layers:
        raise bad("A concatenation has no layers.", where, "Give at least one.")
    parts = [read_layer(layer, f"{where}, part {i + 1}", depth + 1) for i, layer in enumerate(message.layers)]
    return Concat(title, where, tuple(parts), message.concat_along)


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


Read = Callable[[Any, str, str, int], Layer]
READERS: dict[str, tuple[str, Read]] = {
    "fullyconnected_data": ("FullyConnected", _dense),
    "conv2d_data": ("Conv2D", _convolution),
    "relu_data": ("ReLU", _plain),
    "normalize_data": ("Normalize", _normalize),
    "maxpool_data": ("MaxPool", _window),
    "averagepool_data": ("AveragePool", _window),
    "concat_data": ("Concat", _concat),
    "hard_tanh_data": ("HardTanh", _plain),
    "argmax_data": ("ArgMax", _plain),
}
