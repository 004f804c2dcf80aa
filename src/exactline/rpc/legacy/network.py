"""A network out of the layers of the old protocol, for lines and polytopes of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from ...formats.graph_builder import Sketch
from ...network.builder import Data, Refused
from ...network.graph import Network
from ...ops import windows
from ...ops.maximum import Maximum
from .layers import FLAT, Concat, Dense, Extent, Layer, Normalize, Window, bad


@dataclass(frozen=True)
class Drawn:
    """What was drawn so far: flat in the order height, width, channel; or an image with its channels first."""

    data: Data
    extent: Extent

    @property
    def flat(self) -> bool:
        return len(self.data.shape) == 1


def network_of(layers: Sequence[Layer], size: int) -> Network:
    """The layers as one network that takes ``size`` numbers; an ArgMax at the end is left to the caller.

    Raises ArgumentError where a layer does not fit, FileError where something is too large.
    """
    sketch = Sketch("the network")
    x = Drawn(sketch.input("input", (size,)), Extent(size))
    for number, layer in enumerate(layers, 1):
        if layer.title != "ArgMax":
            x = _Pen(sketch, f"layer_{number}").layer(layer, x)
    return sketch.network([_Pen(sketch, "output").flattened(x, "the output").data], ["output"])


@dataclass(frozen=True)
class _Pen:
    """Draws the operators of one layer."""

    sketch: Sketch
    name: str

    def layer(self, layer: Layer, x: Drawn) -> Drawn:
        """One more layer on what was drawn."""
        after = layer.after(x.extent)
        if isinstance(layer, Dense):
            return Drawn(self._dense(layer, x), after)
        if isinstance(layer, Normalize):
            return self._normalize(layer, x)
        if isinstance(layer, Concat):
            return Drawn(self._concat(layer, x, after), after)
        if isinstance(layer, Window):
            return Drawn(self._window(layer, self._image(x, layer.image, layer.where)), after)
        return Drawn(self._call(layer, {"ReLU": "relu", "HardTanh": "hardtanh"}[layer.title], x.data), after)

    def flattened(self, x: Drawn, where: str) -> Drawn:
        """The same in a row, in the order height, width, channel."""
        if x.flat:
            return x
        turned = self._draw("flat", "permute", where, x.data, [0, 2, 3, 1])
        return Drawn(self._draw("flat", "reshape", where, turned, [1, x.extent.size]), x.extent)

    def _dense(self, layer: Dense, x: Drawn) -> Data:
        data, weight = x.data, layer.weight
        if not x.flat:  # its columns are moved once, instead of every point's activations
            channels, height, width = x.data.shape
            weight = weight.view(-1, height, width, channels).permute(0, 3, 1, 2).reshape(len(weight), -1)
            data = self._call(layer, "reshape", data, [1, x.extent.size])
        return self._call(layer, "linear", data, weight, layer.bias)

    def _normalize(self, layer: Normalize, x: Drawn) -> Drawn:
        channels = len(layer.mean)
        shape = (1, -1)
        if not x.flat and x.data.shape[0] == channels:
            shape = (1, -1, 1, 1)
        else:
            x = self.flattened(x, layer.where)
        times = 1 if len(shape) == 4 else x.extent.size // channels
        mean, deviation = (v.repeat(times).view(shape) for v in (layer.mean, layer.deviation))
        moved = self._call(layer, "sub.Tensor", x.data, mean)
        return Drawn(self._call(layer, "div.Tensor", moved, deviation), x.extent)

    def _concat(self, layer: Concat, x: Drawn, after: Extent) -> Data:
        made = [_Pen(self.sketch, f"{self.name}.{i + 1}").layer(part, x) for i, part in enumerate(layer.parts)]
        if layer.along == FLAT or after.image is None:
            return self._joined([self.flattened(part, layer.where).data for part in made], layer.where)
        height, width, _ = after.image
        sizes = [part.extent.size // (height * width) for part in made]
        images = [self._image(p, (height, width, c), layer.where) for p, c in zip(made, sizes, strict=True)]
        return self._joined(images, layer.where)

    def _joined(self, parts: list[Data], where: str) -> Data:
        self.sketch.at(f"{self.name}.cat", where)
        return self.sketch.builder.rearranged(lambda *xs: torch.cat(xs, 1), parts, "cat")

    def _window(self, layer: Window, x: Data) -> Data:
        kernel, stride, pad = list(layer.kernel), list(layer.stride), list(layer.pad)
        if layer.title == "Conv2D":
            return self._call(layer, "conv2d", x, layer.weight, layer.bias, stride, pad)
        wide = any(2 * p > k for p, k in zip(pad, kernel, strict=True))  # more than torch's own pools take
        if layer.title == "AveragePool":
            if wide:
                x = self._call(layer, "constant_pad_nd", x, [pad[1], pad[1], pad[0], pad[0]], 0.0)
                pad = [0, 0]
            return self._call(layer, "avg_pool2d", x, kernel, stride, pad)
        if not wide:
            return self._call(layer, "max_pool2d", x, kernel, stride, pad)
        channels, *size = x.shape
        height, width, _ = layer.out
        table = windows.pool_windows(size, (height, width), kernel, stride, pad, (1, 1))
        if bool((table < 0).any()):
            raise bad("There are windows wholly in the padding.", layer.where, "Pad by less than the window.")
        self.sketch.at(f"{self.name}.max_pool2d", layer.where)
        shape = (channels, height, width)
        return self.sketch.builder.add(Maximum(windows.repeat_for_channels(table, channels, size), shape), [x], shape)

    def _image(self, x: Drawn, image: tuple[int, int, int], where: str) -> Data:
        """What was drawn as an image with its channels first."""
        height, width, channels = image
        if x.data.shape == (channels, height, width):
            return x.data
        row = self.flattened(x, where).data
        seen = self._draw("image", "reshape", where, row, [1, height, width, channels])
        return self._draw("image", "permute", where, seen, [0, 3, 1, 2])

    def _call(self, layer: Layer, operator: str, *args: Any) -> Data:
        return self._draw(operator.partition(".")[0], operator, layer.where, *args)

    def _draw(self, name: str, operator: str, where: str, *args: Any) -> Data:
        self.sketch.at(f"{self.name}.{name}", where)
        try:
            made = self.sketch.builder.data(self.sketch.call(operator, *args))
        except Refused as problem:
            raise bad(f"The layer {problem}.", where, "See that its sizes fit what comes in.") from None
        if not prod(made.shape):
            raise bad("The layer has no outputs.", where, "See that its sizes fit what comes in.")
        return made
