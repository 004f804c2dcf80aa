"""Read ERAN's text format (.eran, .tf, .pyt): a chain of layers, each a name followed by its numbers."""

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
from ..humanize import count_noun
from ..network.builder import MUST_BE_LAST, NodeOutput, SmoothOutput, UnsupportedOperator, Value
from ..network.graph import Network
from . import limits
from .graph_builder import OperatorRecorder
from .numbers import TextLines, parse_array, quote

LEAKY_RELU_SLOPE = 0.2  # not part of the format; ERAN uses TensorFlow's default
ACTIVATIONS: dict[str, tuple[Any, ...]] = {  # the torch operator and its arguments
    "affine": (),
    "relu": ("relu",),
    "hardtanh": ("hardtanh",),
    "leakyrelu": ("leaky_relu", LEAKY_RELU_SLOPE),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
    "sign": ("sign",),
}
KNOWN_LAYERS = "Layers are ReLU, Affine, HardTanh, LeakyRelu, Conv2D and MaxPooling2D, after at most one Normalize."
NORMALIZE_PATTERN = re.compile(rb"(mean|std)\s*=\s*(\[[^\[\]]*\])[\s,]*")
TENSORFLOW_SUFFIX = re.compile(r"\.tf(\.gz)?$", re.IGNORECASE)  # ERAN reads these with channels last
SETTING_PATTERN = re.compile(rb"(\w{1,30})\s*=\s*(\d{1,9}|\[[\d\s,]{1,100}\])\s*(?:,\s*|$)")

Settings: TypeAlias = dict[str, tuple[int, ...]]


def read_eran(data: bytes, where: str, *, channels_first: bool = True) -> Network:
    """Read a network from the text of a .eran, .tf or .pyt file.

    The network takes images (channels, height, width) if the file begins with a convolution or a pool, and flat points
    otherwise.

    Args:
        data: the content of the file.
        where: the name of the file, for error messages.
        channels_first: whether the columns of a fully connected layer after convolutions go through the image channel
            by channel, rather than pixel by pixel.

    >>> text = b"ReLU\\n[[1, -1], [2, 0]]\\n[0, 1]\\nAffine\\n[[1, 1]]\\n[0.5]\\n"
    >>> read_eran(text, "an example")(torch.tensor([[3.0, 1.0]]))
    tensor([[9.5000]], dtype=torch.float64)

    Raises FileError for a damaged file, NumberError for a number that is not finite, UnsupportedError for a layer that
    is not piecewise linear.
    """
    reader = _EranReader(TextLines(data, where), OperatorRecorder(where), channels_first)
    while (line := reader.lines.next_line()) is not None:
        reader.read_layer(line)
    return reader.build_network()


@dataclass
class _EranReader:
    """Reads the lines of an ERAN file and records its layers."""

    lines: TextLines
    recorder: OperatorRecorder
    channels_first: bool
    x: Value = None  # the output of the last layer; None until the first layer gives the size of the input
    normalization: list[tuple[str, Floats]] = field(default_factory=list[tuple[str, Floats]])  # operators and operands
    layer_count: int = 0  # including Normalize
    number_count: int = 0  # in all arrays so far

    @property
    def layer_number(self) -> int:
        """The number of the layer being read, from 1; Normalize does not count."""
        return self.layer_count - (1 if self.normalization else 0)

    def read_layer(self, line: bytes) -> None:
        """Read the layer that begins with this line."""
        name = line[:200].decode("latin-1")
        kind = name.lower()
        self.layer_count += 1
        limits.check_limit(self.layer_count, limits.MAX_LAYERS, "layers", self.lines.where)
        if kind.startswith("normalize"):
            return self._read_normalize(line)
        is_known = kind in (*ACTIVATIONS, "conv2d", "maxpooling2d")
        self.lines.section = f"layer {self.layer_number}: {name}" if is_known else f"layer {self.layer_number}"
        if isinstance(self.x, SmoothOutput):
            self.recorder.reject(self.x.tail.name, MUST_BE_LAST)
            self.x = self.x.before
        if kind in ACTIVATIONS:
            return self._read_fully_connected(kind)
        if kind == "conv2d":
            return self._read_convolution()
        if kind == "maxpooling2d":
            return self._read_pool()
        if kind.startswith(("[", "-")) or kind[:1].isdigit():
            raise self.lines.make_error("Expected the name of a layer, found numbers.", KNOWN_LAYERS)
        if kind.startswith(("skip", "parsum")):
            raise UnsupportedError(
                f"{quote(line)} branches, which is not supported.",
                nodes=(quote(line),),
                where=self.lines.position,
                hint="Export the network to ONNX.",
            )
        raise self.lines.make_error(f"{quote(line)} is not a known layer.", KNOWN_LAYERS)

    def build_network(self) -> Network:
        """Build the network of all layers."""
        self.lines.section = ""
        if self.x is None:
            raise self.lines.make_error("The file has no layers.", "Is it ERAN text?")
        return self.recorder.build_network([self.x], ["output"])

    def _read_normalize(self, line: bytes) -> None:
        self.lines.section = "Normalize"
        rest = line[len(b"normalize") :].strip()
        pairs = [(m[1].decode(), m[2]) for m in NORMALIZE_PATTERN.finditer(rest)]
        if self.x is not None or self.normalization:
            raise self.lines.make_error("Normalize must come once, before all layers.", KNOWN_LAYERS)
        if [k for k, _ in pairs] != ["mean", "std"] or NORMALIZE_PATTERN.sub(b"", rest):
            raise self.lines.make_error("The line cannot be read.", "Write Normalize mean=[0.5] std=[0.25].")
        mean, std = (parse_array(text, self.lines.position) for _, text in pairs)
        if len(mean) != len(std) or not std.all():
            raise self.lines.make_error(
                "There must be as many stds as means, and no std may be 0.", "Correct the file."
            )
        self.normalization = [("sub.Tensor", mean), ("div.Tensor", std)]

    def _read_fully_connected(self, kind: str) -> None:
        weight = self._read_array("the weights", 2)
        bias = self._read_bias(weight.shape[0])
        if self.x is None:
            self.x = self._add_input((weight.shape[1],))
        shape = self.x.shape
        if prod(shape) != weight.shape[1]:
            raise self.lines.make_error(
                f"The weights have {count_noun(weight.shape[1], 'column')},"
                f" but the previous layer has {count_noun(prod(shape), 'unit')}.",
                "The file is damaged.",
            )
        if len(shape) > 1:
            self._apply_operator("flatten", "flatten.using_ints", 1)
            channels, *image = shape
            if self.channels_first and TENSORFLOW_SUFFIX.search(self.lines.where) and channels > 1 and prod(image) > 1:
                self.recorder.graph.notes.append(f"{self.lines.section}: its columns are read channel by channel")
            if not self.channels_first:
                weight = weight.view(len(weight), *image, channels).permute(0, 3, 1, 2).reshape(len(weight), -1)
        self._apply_operator("linear", "linear", weight, bias)
        self._apply_activation(kind)

    def _read_convolution(self) -> None:
        line = self.lines.require_line("the settings of the convolution")
        name, comma, rest = line.partition(b",")
        kind = "affine" if b"=" in name else name.strip().lower().decode("latin-1")
        if kind not in ACTIVATIONS:
            raise self.lines.make_error(f"{quote(name)} is not a known activation.", KNOWN_LAYERS)
        settings = self._read_settings(line if b"=" in name or not comma else rest, "filters", "kernel_size")
        kernel = self._read_array("the kernels", 4)  # (height, width, channels in, channels out)
        bias = self._read_bias(kernel.shape[3])
        self._require_image(settings["input_shape"])
        for key, size in (("kernel_size", kernel.shape[:2]), ("filters", kernel.shape[3:])):
            if key in settings and tuple(settings[key]) != tuple(size):
                raise self.lines.make_error(
                    f"{key} is {list(settings[key])} in the settings and {list(size)} in the kernels.",
                    "Correct the file.",
                )
        weight = kernel.permute(3, 2, 0, 1).contiguous()
        stride, padding = settings.get("stride", (1, 1)), settings.get("padding", (0, 0))
        self._apply_operator("conv", "conv2d", weight, bias, list(stride), list(padding))
        self._apply_activation(kind)

    def _read_pool(self) -> None:
        settings = self._read_settings(self.lines.require_line("the settings of the pool"), "pool_size")
        if "pool_size" not in settings:
            raise self.lines.make_error("The settings have no pool_size.", "Write pool_size=[2, 2].")
        self._require_image(settings["input_shape"])
        kernel, padding = settings["pool_size"], settings.get("padding", (0, 0))
        stride = settings.get("stride", kernel)
        out = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(self.x.shape[1:], kernel, stride, padding, strict=True)]
        entries = self.x.shape[0] * prod(out) * prod(kernel)
        limits.check_limit(entries, limits.MAX_TABLE_ENTRIES, "elements in pooling windows", self.lines.position)
        self._apply_operator("pool", "max_pool2d", list(kernel), list(stride), list(padding))

    def _read_settings(self, text: bytes, *keys: str) -> Settings:
        """Parse ``key=value, key=[value, value]``; ``keys`` are allowed besides input_shape, stride and padding."""
        settings: Settings = {}
        position = 0
        text = text.strip()
        while position < len(text):
            match = SETTING_PATTERN.match(text, position)
            key = match[1].decode() if match else ""
            if match is None or key in settings:
                raise self.lines.make_error(
                    f"{quote(text[position:])} cannot be read.", "Write key=1 or key=[1, 2], once each."
                )
            if key not in (*keys, "input_shape", "stride", "padding"):
                raise self.lines.make_error(f"{quote(match[1])} is not a known setting.", "Correct the file.")
            numbers = parse_array(b"[" + match[2].strip(b"[]") + b"]", self.lines.position)
            settings[key] = tuple(int(v) for v in numbers)
            position = match.end()
        for key in ("stride", "padding", "kernel_size", "pool_size"):
            if len(settings.get(key, ())) == 1:
                settings[key] *= 2
        lengths = {"filters": 1, "input_shape": 3}  # all others have one number for each side
        for key, values in settings.items():
            if len(values) != lengths.get(key, 2) or (key != "padding" and min(values) < 1):
                raise self.lines.make_error(f"{key} cannot be {list(values)}.", "Correct the file.")
        if "input_shape" not in settings:
            raise self.lines.make_error(
                "The settings have no input_shape.", "Write input_shape=[height, width, channels]."
            )
        return settings

    def _require_image(self, size: Sequence[int]) -> None:
        """Make sure that the next layer gets an image of this (height, width, channels)."""
        height, width, channels = size
        if self.x is None:
            self.x = self._add_input((channels, height, width))
        elif len(self.x.shape) == 1 and prod(self.x.shape) == prod(size):
            self._apply_operator("image", "reshape", [1, height, width, channels])
            self._apply_operator("channels_first", "permute", [0, 3, 1, 2])
        elif self.x.shape != (channels, height, width):
            raise self.lines.make_error(
                f"The input_shape is {list(size)}, but the layer before gives {self.x.shape} (channels first).",
                "The file is damaged.",
            )

    def _add_input(self, shape: tuple[int, ...]) -> NodeOutput:
        """Add the input of the network and its normalization."""
        x = self.recorder.add_input("input", shape)
        for (operator, values), name in zip(self.normalization, ("mean", "std"), strict=False):
            self.recorder.begin_node(f"normalize.{name}")
            x = self.recorder.call(operator, x, self._expand_per_channel(values, shape))
        return x

    def _expand_per_channel(self, values: Floats, shape: tuple[int, ...]) -> Tensor:
        """One number for each channel, in a shape that broadcasts with a batch of inputs."""
        numbers = torch.from_numpy(values)
        if len(numbers) in (1, shape[0]):
            return numbers.view(1, -1, *[1] * (len(shape) - 1))
        if len(shape) == 1 and shape[0] % len(numbers) == 0:
            pixels = shape[0] // len(numbers)
            return (numbers.repeat_interleave(pixels) if self.channels_first else numbers.repeat(pixels))[None]
        raise self.lines.make_error(
            f"Normalize has {len(numbers)} means, which does not fit an input of shape {shape}.",
            "Give one mean for each channel.",
        )

    def _read_array(self, what: str, dims: int) -> Tensor:
        """Read the next line as an array of so many dimensions."""
        text = self.lines.require_line(what)
        limits.check_limit(self.number_count + text.count(b","), limits.MAX_WEIGHTS, "weights", self.lines.position)
        values = parse_array(text, f"{self.lines.position}: {what}")
        if values.ndim != dims:
            raise FileError(
                f"Expected {count_noun(dims, 'level')} of brackets, found {values.ndim}.",
                where=f"{self.lines.position}: {what}",
                hint="Weights are [[...], [...]], kernels [height][width][in][out], and biases [...].",
            )
        self.number_count += values.size
        return torch.from_numpy(values)

    def _read_bias(self, count: int) -> Tensor:
        bias = self._read_array("the bias", 1)
        if len(bias) != count:
            raise self.lines.make_error(
                f"Expected a bias of {count_noun(count, 'number')}, found {len(bias):,}.", "Correct the file."
            )
        return bias

    def _apply_activation(self, kind: str) -> None:
        """Record an activation; one that is not supported is left out, so that the error can name all of them."""
        if not ACTIVATIONS[kind]:
            return
        operator, *rest = ACTIVATIONS[kind]
        try:
            self.x = self._call_operator(operator, operator, *rest)
        except UnsupportedOperator as problem:
            self.recorder.reject(operator, str(problem))

    def _apply_operator(self, name: str, operator: str, *args: Any) -> None:
        """Record an affine operator or a pool on the output of the last layer."""
        try:
            self.x = self._call_operator(name, operator, *args)
        except UnsupportedOperator as problem:
            raise self.lines.make_error(f"The layer {problem}.", "Check that its settings fit its input.") from None
        if not prod(self.x.shape):
            raise self.lines.make_error("The layer has no outputs.", "Check that its settings fit its input.")

    def _call_operator(self, name: str, operator: str, *args: Any) -> Value:
        self.recorder.begin_node(f"layer_{self.layer_number}.{name}", f"line {self.lines.number}")
        output = self.recorder.call(operator, self.x, *args)
        return output if isinstance(output, SmoothOutput) else self.recorder.graph.as_node_output(output)
