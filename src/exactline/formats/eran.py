"""ERAN's text format (.eran, .tf, .pyt): one layer after another, each a name and its numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..arrays import Floats
from ..errors import FileError, UnsupportedError
from ..network.builder import Data, Refused, Smooth, Value
from ..network.graph import Network
from . import limits
from .graph_builder import Sketch
from .numbers import Lines, array, shown

LEAKY_SLOPE = 0.2  # the format names none; ERAN evaluates LeakyRelu with TensorFlow's own
ACTIVATIONS: dict[str, tuple[Any, ...]] = {  # as torch calls them
    "affine": (),
    "relu": ("relu",),
    "hardtanh": ("hardtanh",),
    "leakyrelu": ("leaky_relu", LEAKY_SLOPE),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
    "sign": ("sign",),
}
KNOWN = "Layers are ReLU, Affine, HardTanh, LeakyRelu, Conv2D and MaxPooling2D, after at most one Normalize."
NORMALIZE = re.compile(rb"(mean|std)\s*=\s*(\[[^\[\]]*\])[\s,]*")
TENSORFLOW = re.compile(r"\.tf(\.gz)?$", re.IGNORECASE)  # ERAN itself reads these with channels last
SETTING = re.compile(rb"(\w{1,30})\s*=\s*(\d{1,9}|\[[\d\s,]{1,100}\])\s*(?:,\s*|$)")

Settings: TypeAlias = dict[str, tuple[int, ...]]


def read_eran(data: bytes, where: str, *, channels_first: bool = True) -> Network:
    """A network from the text of a .eran, .tf or .pyt file.

    It takes images as (channels, height, width) where the file begins with a convolution or a pool, and flat points
    otherwise. Where a fully connected layer follows convolutions, ``channels_first`` says in which order its columns
    read the image.

    >>> text = b"ReLU\\n[[1, -1], [2, 0]]\\n[0, 1]\\nAffine\\n[[1, 1]]\\n[0.5]\\n"
    >>> read_eran(text, "an example")(torch.tensor([[3.0, 1.0]]))
    tensor([[9.5000]], dtype=torch.float64)

    Raises FileError where the file is damaged, NumberError where a number is not finite, UnsupportedError where a
    layer is not piecewise linear.
    """
    reader = _Reader(Lines(data, where), Sketch(where), channels_first)
    while (line := reader.lines.next()) is not None:
        reader.layer(line)
    return reader.network()


@dataclass
class _Reader:
    """The network as far as it was read."""

    lines: Lines
    sketch: Sketch
    channels_first: bool
    x: Value = None  # None until the first layer says how large the input is
    normalize: list[tuple[str, Floats]] = field(default_factory=list[tuple[str, Floats]])
    layers: int = 0
    numbers: int = 0

    @property
    def number(self) -> int:
        """Of the layer being read; Normalize is none."""
        return self.layers - (1 if self.normalize else 0)

    def layer(self, line: bytes) -> None:
        """Read the layer that begins with this line."""
        name = line[:200].decode("latin-1")
        kind = name.lower()
        self.layers += 1
        limits.within(self.layers, limits.LAYERS, "layers", self.lines.where)
        if kind.startswith("normalize"):
            return self._read_normalize(line)
        known = kind in (*ACTIVATIONS, "conv2d", "maxpooling2d")
        self.lines.within = f"layer {self.number}: {name}" if known else f"layer {self.number}"
        if isinstance(self.x, Smooth):
            self.sketch.refuse(self.x.tail.name, "is smooth, and may only come last")
            self.x = self.x.data
        if kind in ACTIVATIONS:
            return self._fully_connected(kind)
        if kind == "conv2d":
            return self._convolution()
        if kind == "maxpooling2d":
            return self._pool()
        if kind.startswith(("[", "-")) or kind[:1].isdigit():
            raise self.lines.error("There are numbers where a layer's name should be.", KNOWN)
        if kind.startswith(("skip", "parsum")):
            raise UnsupportedError(
                f"{shown(line)} branches, which is not read.",
                nodes=(shown(line),),
                where=self.lines.here,
                hint="Export the network to ONNX.",
            )
        raise self.lines.error(f"{shown(line)} is not a layer we know.", KNOWN)

    def network(self) -> Network:
        """All layers together."""
        self.lines.within = ""
        if self.x is None:
            raise self.lines.error("The file has no layers.", "Is it ERAN text?")
        return self.sketch.network([self.x], ["output"])

    def _read_normalize(self, line: bytes) -> None:
        self.lines.within = "Normalize"
        rest = line[len(b"normalize") :].strip()
        pairs = [(m[1].decode(), m[2]) for m in NORMALIZE.finditer(rest)]
        if self.x is not None or self.normalize:
            raise self.lines.error("Normalize comes once, before all layers.", KNOWN)
        if [k for k, _ in pairs] != ["mean", "std"] or NORMALIZE.sub(b"", rest):
            raise self.lines.error("The line cannot be read.", "Write Normalize mean=[0.5] std=[0.25].")
        mean, std = (array(text, self.lines.here) for _, text in pairs)
        if len(mean) != len(std) or not std.all():
            raise self.lines.error("There must be as many stds as means, and none may be 0.", "Correct the file.")
        self.normalize = [("sub.Tensor", mean), ("div.Tensor", std)]

    def _fully_connected(self, kind: str) -> None:
        weight = self._array("the weights", 2)
        bias = self._bias(weight.shape[0])
        if self.x is None:
            self.x = self._begin((weight.shape[1],))
        shape = self.x.shape
        if prod(shape) != weight.shape[1]:
            raise self.lines.error(
                f"The weights have {weight.shape[1]} columns, and there are {prod(shape)} units before.",
                "The file is damaged.",
            )
        if len(shape) > 1:
            self._draw("flatten", "flatten.using_ints", 1)
            channels, *image = shape
            if self.channels_first and TENSORFLOW.search(self.lines.where) and channels > 1 and prod(image) > 1:
                self.sketch.builder.notes.append(f"{self.lines.within}: its columns are read channel by channel")
            if not self.channels_first:
                weight = weight.view(len(weight), *image, channels).permute(0, 3, 1, 2).reshape(len(weight), -1)
        self._draw("linear", "linear", weight, bias)
        self._activate(kind)

    def _convolution(self) -> None:
        line = self.lines.need("the settings of the convolution")
        name, comma, rest = line.partition(b",")
        kind = "affine" if b"=" in name else name.strip().lower().decode("latin-1")
        if kind not in ACTIVATIONS:
            raise self.lines.error(f"{shown(name)} is not an activation we know.", KNOWN)
        found = self._settings(line if b"=" in name or not comma else rest, "filters", "kernel_size")
        kernel = self._array("the kernels", 4)  # (height, width, channels in, channels out)
        bias = self._bias(kernel.shape[3])
        self._image(found["input_shape"])
        for key, here in (("kernel_size", kernel.shape[:2]), ("filters", kernel.shape[3:])):
            if key in found and tuple(found[key]) != tuple(here):
                raise self.lines.error(
                    f"The settings say {key} {list(found[key])}, the kernels {list(here)}.", "Correct the file."
                )
        weight = kernel.permute(3, 2, 0, 1).contiguous()
        stride, padding = found.get("stride", (1, 1)), found.get("padding", (0, 0))
        self._draw("conv", "conv2d", weight, bias, list(stride), list(padding))
        self._activate(kind)

    def _pool(self) -> None:
        found = self._settings(self.lines.need("the settings of the pool"), "pool_size")
        if "pool_size" not in found:
            raise self.lines.error("The settings have no pool_size.", "Write pool_size=[2, 2].")
        self._image(found["input_shape"])
        kernel, padding = found["pool_size"], found.get("padding", (0, 0))
        stride = found.get("stride", kernel)
        out = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(self.x.shape[1:], kernel, stride, padding, strict=True)]
        limits.within(self.x.shape[0] * prod(out) * prod(kernel), limits.TABLES, "places in windows", self.lines.here)
        self._draw("pool", "max_pool2d", list(kernel), list(stride), list(padding))

    def _settings(self, text: bytes, *keys: str) -> Settings:
        """What ``key=value, key=[value, value]`` says."""
        found: Settings = {}
        at = 0
        text = text.strip()
        while at < len(text):
            match = SETTING.match(text, at)
            key = match[1].decode() if match else ""
            if match is None or key in found:
                raise self.lines.error(f"{shown(text[at:])} cannot be read.", "Write key=1 or key=[1, 2], once each.")
            if key not in (*keys, "input_shape", "stride", "padding"):
                raise self.lines.error(f"{shown(match[1])} is not a setting we know.", "Correct the file.")
            found[key] = tuple(int(v) for v in array(b"[" + match[2].strip(b"[]") + b"]", self.lines.here))
            at = match.end()
        for key in ("stride", "padding", "kernel_size", "pool_size"):
            if len(found.get(key, ())) == 1:
                found[key] *= 2
        wanted = {"filters": 1, "input_shape": 3}
        for key, values in found.items():
            if len(values) != wanted.get(key, 2) or (key != "padding" and min(values) < 1):
                raise self.lines.error(f"{key} cannot be {list(values)}.", "Correct the file.")
        if "input_shape" not in found:
            raise self.lines.error("The settings have no input_shape.", "Write input_shape=[height, width, channels].")
        return found

    def _image(self, size: Sequence[int]) -> None:
        """See that an image of this (height, width, channels) comes in."""
        height, width, channels = size
        if self.x is None:
            self.x = self._begin((channels, height, width))
        elif len(self.x.shape) == 1 and prod(self.x.shape) == prod(size):
            self._draw("image", "reshape", [1, height, width, channels])
            self._draw("channels_first", "permute", [0, 3, 1, 2])
        elif self.x.shape != (channels, height, width):
            raise self.lines.error(
                f"The input_shape is {list(size)}, and what comes in has the shape {self.x.shape} (channels first).",
                "The file is damaged.",
            )

    def _begin(self, shape: tuple[int, ...]) -> Data:
        """The input, now that its shape is known, and its normalisation."""
        x = self.sketch.input("input", shape)
        for (operator, values), name in zip(self.normalize, ("mean", "std"), strict=False):
            self.sketch.at(f"normalize.{name}")
            x = self.sketch.call(operator, x, self._per_channel(values, shape))
        return x

    def _per_channel(self, values: Floats, shape: tuple[int, ...]) -> Tensor:
        given = torch.from_numpy(values)
        if len(given) in (1, shape[0]):
            return given.view(1, -1, *[1] * (len(shape) - 1))
        if len(shape) == 1 and shape[0] % len(given) == 0:
            each = shape[0] // len(given)
            return (given.repeat_interleave(each) if self.channels_first else given.repeat(each))[None]
        raise self.lines.error(
            f"Normalize has {len(given)} means, which does not fit an input of shape {shape}.", "Give one per channel."
        )

    def _array(self, what: str, dims: int) -> Tensor:
        text = self.lines.need(what)
        limits.within(self.numbers + text.count(b","), limits.WEIGHTS, "weights", self.lines.here)
        values = array(text, f"{self.lines.here}: {what}")
        if values.ndim != dims:
            raise FileError(
                f"There are {values.ndim} brackets within each other where {dims} should be.",
                where=f"{self.lines.here}: {what}",
                hint="Weights are [[...], [...]], kernels [height][width][in][out], and biases [...].",
            )
        self.numbers += values.size
        return torch.from_numpy(values)

    def _bias(self, count: int) -> Tensor:
        bias = self._array("the bias", 1)
        if len(bias) != count:
            raise self.lines.error(f"The bias has {len(bias)} numbers where {count} should be.", "Correct the file.")
        return bias

    def _activate(self, kind: str) -> None:
        if not ACTIVATIONS[kind]:
            return
        operator, *rest = ACTIVATIONS[kind]
        try:
            self.x = self._called(operator, operator, *rest)
        except Refused as problem:
            self.sketch.refuse(operator, str(problem))  # go on without it, to name all that is refused

    def _draw(self, name: str, operator: str, *args: Any) -> None:
        """One operator on what was drawn so far."""
        try:
            self.x = self._called(name, operator, *args)
        except Refused as problem:
            raise self.lines.error(f"The layer {problem}.", "See that its settings fit its input.") from None
        if not prod(self.x.shape):
            raise self.lines.error("The layer has no outputs.", "See that its settings fit its input.")

    def _called(self, name: str, operator: str, *args: Any) -> Value:
        self.sketch.at(f"layer_{self.number}.{name}", f"line {self.lines.number}")
        made = self.sketch.call(operator, self.x, *args)
        return made if isinstance(made, Smooth) else self.sketch.builder.data(made)
