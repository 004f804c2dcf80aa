"""Builds a network from the layers of the legacy protocol, for lines and polytopes of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from ...formats.graph_builder import OperatorRecorder
from ...network.builder import NodeOutput, UnsupportedOperator
from ...network.graph import Network
from ...ops import windows
from ...ops.maximum import Maximum
from .layers import (
    ALONG_FLAT,
    ActivationShape,
    ConcatLayer,
    FullyConnectedLayer,
    LegacyLayer,
    NormalizeLayer,
    WindowLayer,
    request_error,
)


@dataclass(frozen=True)
class Activation:
    """The output of a layer: flat in the order height, width, channel, or an image with its channels first."""

    data: NodeOutput
    shape: ActivationShape

    @property
    def is_flat(self) -> bool:
        """Whether the numbers are in a vector."""
        return len(self.data.shape) == 1


def build_network(layers: Sequence[LegacyLayer], size: int) -> Network:
    """Build the network of some layers that takes ``size`` numbers; an ArgMax at the end is left to the caller.

    Raises ArgumentError if a layer does not fit its input, FileError if something is too large.
    """
    recorder = OperatorRecorder("the network")
    x = Activation(recorder.add_input("input", (size,)), ActivationShape(size))
    for number, layer in enumerate(layers, 1):
        if layer.kind != "ArgMax":
            x = _LayerBuilder(recorder, f"layer_{number}").add_layer(layer, x)
    return recorder.build_network([_LayerBuilder(recorder, "output").flatten(x, "the output").data], ["output"])


@dataclass(frozen=True)
class _LayerBuilder:
    """Adds the operators of one layer to a network."""

    recorder: OperatorRecorder
    name: str

    def add_layer(self, layer: LegacyLayer, x: Activation) -> Activation:
        """Add the operators of a layer that takes ``x``."""
        shape = layer.output_shape(x.shape)
        if isinstance(layer, FullyConnectedLayer):
            return Activation(self._add_fully_connected(layer, x), shape)
        if isinstance(layer, NormalizeLayer):
            return self._add_normalize(layer, x)
        if isinstance(layer, ConcatLayer):
            return Activation(self._add_concat(layer, x, shape), shape)
        if isinstance(layer, WindowLayer):
            return Activation(self._add_window(layer, self._to_image(x, layer.image, layer.where)), shape)
        operator = {"ReLU": "relu", "HardTanh": "hardtanh"}[layer.kind]
        return Activation(self._add_operator(layer, operator, x.data), shape)

    def flatten(self, x: Activation, where: str) -> Activation:
        """Return an activation as a vector, in the order height, width, channel."""
        if x.is_flat:
            return x
        permuted = self._add_node("flat", "permute", where, x.data, [0, 2, 3, 1])
        return Activation(self._add_node("flat", "reshape", where, permuted, [1, x.shape.size]), x.shape)

    def _add_fully_connected(self, layer: FullyConnectedLayer, x: Activation) -> NodeOutput:
        data, weight = x.data, layer.weight
        if not x.is_flat:  # permutes the columns of the weight once instead of the activation of every point
            channels, height, width = x.data.shape
            weight = weight.view(-1, height, width, channels).permute(0, 3, 1, 2).reshape(len(weight), -1)
            data = self._add_operator(layer, "reshape", data, [1, x.shape.size])
        return self._add_operator(layer, "linear", data, weight, layer.bias)

    def _add_normalize(self, layer: NormalizeLayer, x: Activation) -> Activation:
        channels = len(layer.mean)
        shape = (1, -1)
        if not x.is_flat and x.data.shape[0] == channels:
            shape = (1, -1, 1, 1)
        else:
            x = self.flatten(x, layer.where)
        times = 1 if len(shape) == 4 else x.shape.size // channels
        mean, deviation = (v.repeat(times).view(shape) for v in (layer.mean, layer.deviation))
        shifted = self._add_operator(layer, "sub.Tensor", x.data, mean)
        return Activation(self._add_operator(layer, "div.Tensor", shifted, deviation), x.shape)

    def _add_concat(self, layer: ConcatLayer, x: Activation, shape: ActivationShape) -> NodeOutput:
        outputs = [
            _LayerBuilder(self.recorder, f"{self.name}.{i + 1}").add_layer(part, x)
            for i, part in enumerate(layer.parts)
        ]
        if layer.along == ALONG_FLAT or shape.image is None:
            return self._concatenate([self.flatten(part, layer.where).data for part in outputs], layer.where)
        height, width, _ = shape.image
        sizes = [part.shape.size // (height * width) for part in outputs]
        images = [self._to_image(p, (height, width, c), layer.where) for p, c in zip(outputs, sizes, strict=True)]
        return self._concatenate(images, layer.where)

    def _concatenate(self, parts: list[NodeOutput], where: str) -> NodeOutput:
        self.recorder.begin_node(f"{self.name}.cat", where)
        return self.recorder.graph.rearrange(lambda *xs: torch.cat(xs, 1), parts, "cat")

    def _add_window(self, layer: WindowLayer, x: NodeOutput) -> NodeOutput:
        kernel, stride, pad = list(layer.kernel), list(layer.stride), list(layer.pad)
        if layer.kind == "Conv2D":
            return self._add_operator(layer, "conv2d", x, layer.weight, layer.bias, stride, pad)
        wide = any(2 * p > k for p, k in zip(pad, kernel, strict=True))  # torch's pools pad by at most half a window
        if layer.kind == "AveragePool":
            if wide:
                x = self._add_operator(layer, "constant_pad_nd", x, [pad[1], pad[1], pad[0], pad[0]], 0.0)
                pad = [0, 0]
            return self._add_operator(layer, "avg_pool2d", x, kernel, stride, pad)
        if not wide:
            return self._add_operator(layer, "max_pool2d", x, kernel, stride, pad)
        channels, *size = x.shape
        height, width, _ = layer.out
        table = windows.pool_windows(size, (height, width), kernel, stride, pad, (1, 1))
        if bool((table < 0).any()):
            raise request_error(
                "Some windows lie entirely in the padding.", layer.where, "Pad by less than the window."
            )
        self.recorder.begin_node(f"{self.name}.max_pool2d", layer.where)
        shape = (channels, height, width)
        return self.recorder.graph.add_node(
            Maximum(windows.repeat_for_channels(table, channels, size), shape), [x], shape
        )

    def _to_image(self, x: Activation, image: tuple[int, int, int], where: str) -> NodeOutput:
        """Return an activation as an image with its channels first."""
        height, width, channels = image
        if x.data.shape == (channels, height, width):
            return x.data
        flat = self.flatten(x, where).data
        channels_last = self._add_node("image", "reshape", where, flat, [1, height, width, channels])
        return self._add_node("image", "permute", where, channels_last, [0, 3, 1, 2])

    def _add_operator(self, layer: LegacyLayer, operator: str, *args: Any) -> NodeOutput:
        return self._add_node(operator.partition(".")[0], operator, layer.where, *args)

    def _add_node(self, name: str, operator: str, where: str, *args: Any) -> NodeOutput:
        self.recorder.begin_node(f"{self.name}.{name}", where)
        try:
            output = self.recorder.graph.as_node_output(self.recorder.call(operator, *args))
        except UnsupportedOperator as problem:
            raise request_error(f"The layer {problem}.", where, "Check that its sizes fit its input.") from None
        if not prod(output.shape):
            raise request_error("The layer has no outputs.", where, "Check that its sizes fit its input.")
        return output
