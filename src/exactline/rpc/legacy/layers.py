"""The nine kinds of layers of the legacy protocol, checked: what each takes and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ArgumentError
from ...formats import limits

MAX_CONCAT_DEPTH = 16  # of nested concatenations
ALONG_CHANNELS, ALONG_FLAT = 1, 2  # how a concatenation joins outputs


@dataclass(frozen=True)
class ActivationShape:
    """How many numbers an activation has, and its shape as an image (height, width, channels) if that is known."""

    size: int
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True, eq=False)
class LegacyLayer:
    """A layer; ReLU, HardTanh and ArgMax have no data beyond this."""

    kind: str  # the name in error messages, such as "Conv2D"
    where: str  # its position in the request, for error messages

    def output_shape(self, shape: ActivationShape) -> ActivationShape:
        """Return the shape of the output.

        Raises ArgumentError if the layer does not fit the input.
        """
        return ActivationShape(1, (1, 1, 1)) if self.kind == "ArgMax" else shape

    def input_size(self) -> int | None:
        """Return how many numbers the layer takes, if it determines that."""
        return None

    def check_input(self, shape: ActivationShape, expected: int) -> None:
        """Raise ArgumentError if the input has another size than the layer takes."""
        if shape.size != expected:
            raise request_error(
                f"{self.kind} takes {expected:,} numbers, but its input has {shape.size:,}.",
                self.where,
                "Each layer must fit the one before it, and lines and polytopes the first.",
            )


@dataclass(frozen=True, eq=False)
class FullyConnectedLayer(LegacyLayer):
    """A fully connected layer."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)

    def input_size(self) -> int | None:
        return self.weight.shape[1]

    def output_shape(self, shape: ActivationShape) -> ActivationShape:
        self.check_input(shape, self.weight.shape[1])
        return ActivationShape(len(self.bias))


@dataclass(frozen=True, eq=False)
class WindowLayer(LegacyLayer):
    """A convolution or a pooling layer."""

    image: tuple[int, int, int]  # (height, width, channels) of the input
    out: tuple[int, int, int]  # (height, width, channels) of the output
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    weight: Tensor | None = None  # (out, in, height, width) of a convolution
    bias: Tensor | None = None  # (out,)

    def input_size(self) -> int | None:
        return prod(self.image)

    def output_shape(self, shape: ActivationShape) -> ActivationShape:
        self.check_input(shape, prod(self.image))
        return ActivationShape(prod(self.out), self.out)


@dataclass(frozen=True, eq=False)
class NormalizeLayer(LegacyLayer):
    """(x - mean) / deviation, for each channel."""

    mean: Tensor  # (channels,)
    deviation: Tensor  # (channels,)

    def output_shape(self, shape: ActivationShape) -> ActivationShape:
        if shape.size % len(self.mean):
            raise request_error(
                f"Normalize has {len(self.mean):,} means, but its input has {shape.size:,} numbers.",
                self.where,
                "Give one mean and one deviation for each channel.",
            )
        return shape


@dataclass(frozen=True, eq=False)
class ConcatLayer(LegacyLayer):
    """Several layers that take the same input; their outputs are joined."""

    parts: tuple[LegacyLayer, ...]
    along: int

    def input_size(self) -> int | None:
        return next((size for part in self.parts if (size := part.input_size()) is not None), None)

    def output_shape(self, shape: ActivationShape) -> ActivationShape:
        outputs = [part.output_shape(shape) for part in self.parts]
        size = sum(output.size for output in outputs)
        limits.check_limit(size, limits.MAX_VALUE_ELEMENTS, "units in one layer", self.where)
        if self.along == ALONG_FLAT:
            return ActivationShape(size)
        height, width = self.common_height_and_width(outputs)
        return ActivationShape(size, (height, width, size // (height * width)))

    def common_height_and_width(self, outputs: Sequence[ActivationShape]) -> tuple[int, int]:
        """Return the height and width that all outputs have; a vector is an image of one pixel."""
        known = {output.image[:2] for output in outputs if output.image is not None}
        height, width = known.pop() if known else (1, 1)
        if known or any(output.size % (height * width) for output in outputs):
            raise request_error(
                "The outputs to join along channels have different heights or widths.",
                self.where,
                "Give layers whose outputs have the same height and width, or concatenate flat.",
            )
        return height, width


def read_layer(message: Any, where: str, depth: int = 0) -> LegacyLayer:
    """Read a Layer message; call `output_shape` of the result to check it against its input.

    Raises ArgumentError, or FileError if something is too large.
    """
    field: str = message.WhichOneof("layer_data") or ""
    if field not in LAYER_READERS:
        raise request_error("The layer has no known kind.", where, "Set one of the nine kinds of layer_data.")
    kind, read = LAYER_READERS[field]
    return read(getattr(message, field), kind, f"{where}: {kind}", depth)


def request_error(problem: str, where: str, hint: str) -> ArgumentError:
    """Create the error for an invalid message."""
    return ArgumentError(problem, where=where, hint=hint)


def read_floats(array: Any, what: str, where: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Check a repeated field, an array of float32.

    Raises ArgumentError if a number is not finite.
    """
    if not np.isfinite(array).all():
        raise request_error(f"The {what} hold NaN or infinite numbers.", where, "Give finite numbers.")
    return array


def _read_activation(message: Any, kind: str, where: str, depth: int) -> LegacyLayer:
    if kind == "ArgMax" and depth:
        raise request_error("ArgMax is inside a concatenation.", where, "ArgMax may only be the last layer.")
    return LegacyLayer(kind, where)


def _read_fully_connected(message: Any, kind: str, where: str, depth: int) -> LegacyLayer:
    count, out = len(message.weights), len(message.biases)
    if not out or not count or count % out:
        raise request_error(
            f"There are {count:,} weights and {out:,} biases.",
            where,
            "Give one bias for each output, and inputs times outputs weights.",
        )
    weight = _as_tensor(read_floats(message.weights, "weights", where)).view(count // out, out)
    bias = _as_tensor(read_floats(message.biases, "biases", where))
    return FullyConnectedLayer(kind, where, weight.T.contiguous(), bias)


def _read_window(message: Any, kind: str, where: str, depth: int) -> WindowLayer:
    w = message.window_data
    image, kernel = (w.in_height, w.in_width, w.in_channels), (w.window_height, w.window_width)
    stride, pad = (w.stride_height, w.stride_width), (w.pad_height, w.pad_width)
    channels = w.out_channels if kind == "Conv2D" else w.in_channels
    if min(*image, *kernel, *stride, channels) < 1:
        raise request_error(
            f"The input is {_format_sizes(image)}, the window {_format_sizes(kernel)}, its stride"
            f" {_format_sizes(stride)}, and the output has {channels} channels.",
            where,
            "Sizes, windows and strides must be at least 1.",
        )
    if kind != "Conv2D" and w.out_channels not in (0, w.in_channels):
        raise request_error(
            f"The input has {w.in_channels} channels and the output {w.out_channels}.",
            where,
            "A pooling layer keeps the number of channels.",
        )
    padded = [n + 2 * p for n, p in zip(image, pad, strict=False)]
    stride = (min(stride[0], padded[0]), min(stride[1], padded[1]))  # one position either way; torch takes only int32
    if any(n < k for n, k in zip(padded, kernel, strict=True)):
        raise request_error(
            f"The window {_format_sizes(kernel)} is larger than the padded input {_format_sizes(padded)}.",
            where,
            "Give a smaller window or more padding.",
        )
    height, width = ((n - k) // s + 1 for n, k, s in zip(padded, kernel, stride, strict=True))
    limits.check_limit(
        max(prod(padded) * image[2], height * width * channels), limits.MAX_VALUE_ELEMENTS, "units in one layer", where
    )
    if kind == "MaxPool":
        limits.check_limit(
            height * width * channels * prod(kernel), limits.MAX_TABLE_ENTRIES, "places in windows", where
        )
        if any(p >= k for p, k in zip(pad, kernel, strict=True)):
            raise request_error("Some windows lie entirely in the padding.", where, "Pad by less than the window.")
    return WindowLayer(kind, where, image, (height, width, channels), kernel, stride, pad)


def _read_convolution(message: Any, kind: str, where: str, depth: int) -> LegacyLayer:
    window = _read_window(message, kind, where, depth)
    shape = (*window.kernel, window.image[2], window.out[2])
    if len(message.filters) != prod(shape) or len(message.biases) != shape[3]:
        raise request_error(
            f"There are {len(message.filters):,} weights and {len(message.biases):,} biases; the sizes need"
            f" {prod(shape):,} and {shape[3]:,}.",
            where,
            "Filters are height x width x input channels x output channels.",
        )
    weight = _as_tensor(read_floats(message.filters, "filters", where)).view(shape).permute(3, 2, 0, 1)
    bias = _as_tensor(read_floats(message.biases, "biases", where))
    return replace(window, weight=weight.contiguous(), bias=bias)


def _read_normalize(message: Any, kind: str, where: str, depth: int) -> LegacyLayer:
    mean = read_floats(message.means, "means", where)
    deviation = read_floats(message.standard_deviations, "deviations", where)
    if not len(mean) or len(mean) != len(deviation) or not deviation.all():
        raise request_error(
            f"There are {len(mean)} means and {len(deviation)} deviations, or a deviation is 0.",
            where,
            "Give one mean and one deviation other than 0 for each channel.",
        )
    return NormalizeLayer(kind, where, *(_as_tensor(v) for v in (mean, deviation)))


def _read_concat(message: Any, kind: str, where: str, depth: int) -> LegacyLayer:
    if depth >= MAX_CONCAT_DEPTH:
        raise request_error(f"More than {MAX_CONCAT_DEPTH} concatenations are nested.", where, "Nest them less deeply.")
    if message.concat_along not in (ALONG_CHANNELS, ALONG_FLAT):
        raise request_error(
            "The concatenation does not say how to join the outputs.",
            where,
            "Concatenate along channels (1) or flat (2).",
        )
    if not message.layers:
        raise request_error("The concatenation has no layers.", where, "Give at least one.")
    parts = [read_layer(layer, f"{where}, part {i + 1}", depth + 1) for i, layer in enumerate(message.layers)]
    return ConcatLayer(kind, where, tuple(parts), message.concat_along)


def _as_tensor(array: np.ndarray[Any, np.dtype[np.float32]]) -> Tensor:
    """Return the numbers of a message as a tensor of its own, in float64."""
    return torch.from_numpy(array.astype(np.float64))


def _format_sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


LayerReader = Callable[[Any, str, str, int], LegacyLayer]
LAYER_READERS: dict[str, tuple[str, LayerReader]] = {
    "fullyconnected_data": ("FullyConnected", _read_fully_connected),
    "conv2d_data": ("Conv2D", _read_convolution),
    "relu_data": ("ReLU", _read_activation),
    "normalize_data": ("Normalize", _read_normalize),
    "maxpool_data": ("MaxPool", _read_window),
    "averagepool_data": ("AveragePool", _read_window),
    "concat_data": ("Concat", _read_concat),
    "hard_tanh_data": ("HardTanh", _read_activation),
    "argmax_data": ("ArgMax", _read_activation),
}
