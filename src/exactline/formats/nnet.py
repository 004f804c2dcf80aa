"""The .nnet text format of the ACAS Xu networks: fully connected layers, and how their numbers are normalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ..arrays import Floats
from ..errors import FileError
from ..network.builder import Value
from ..network.graph import Network
from . import limits
from .graph_builder import Sketch
from .numbers import Lines, floats


@dataclass(frozen=True)
class Header:
    """What a file says before its weights."""

    sizes: tuple[int, ...]  # of the layers, the input first
    means: Floats  # (inputs + 1,) the last is the outputs'
    ranges: Floats  # (inputs + 1,)


def read_nnet(data: bytes, where: str, *, normalize: bool) -> Network:
    """A network from the text of a .nnet file.

    With ``normalize`` it takes (x - mean) / range in front and y * range + mean behind, as the file says;
    inputs are not clipped to the file's minima and maxima. Without, it is the bare layers.

    >>> text = b"1,1,1,1,\\n1,1,\\n0,\\n0,\\n9,\\n1,10,\\n2,5,\\n3,\\n4,\\n"
    >>> read_nnet(text, "an example", normalize=True)(torch.tensor([[5.0]]))  # ((5 - 1) / 2 * 3 + 4) * 5 + 10
    tensor([[60.]], dtype=torch.float64)

    Raises FileError where the file is damaged, NumberError where a number is not finite.
    """
    lines = Lines(data, where, comment=b"//")
    header = _header(lines)
    sketch = Sketch(where)
    x: Value = sketch.input("input", header.sizes[:1])
    if normalize:
        sketch.at("normalize.mean")
        x = sketch.call("sub.Tensor", x, torch.from_numpy(header.means[None, :-1]))
        sketch.at("normalize.range")
        x = sketch.call("div.Tensor", x, torch.from_numpy(header.ranges[None, :-1]))
    last = len(header.sizes) - 1
    for number in range(1, last + 1):
        lines.within = f"layer {number}"
        before, after = header.sizes[number - 1 : number + 1]
        weight = np.stack([_row(lines, before, f"row {i + 1} of the weights") for i in range(after)])
        bias = np.concatenate([_row(lines, 1, f"bias {i + 1}") for i in range(after)])
        sketch.at(f"layer_{number}.linear")
        x = sketch.call("linear", x, torch.from_numpy(weight), torch.from_numpy(bias))
        if number < last:
            sketch.at(f"layer_{number}.relu")
            x = sketch.call("relu", x)
    lines.within = ""
    if lines.next() is not None:
        raise lines.error("There is more after the last layer.", "The sizes of the layers do not fit the file.")
    if normalize:
        sketch.at("output.range")
        x = sketch.call("mul.Tensor", x, torch.from_numpy(header.ranges[None, -1:]))
        sketch.at("output.mean")
        x = sketch.call("add.Tensor", x, torch.from_numpy(header.means[None, -1:]))
    return sketch.network([x], ["output"])


def _header(lines: Lines) -> Header:
    counts = _whole(lines, _row(lines, None, "the number of layers"))
    if len(counts) < 3 or counts[0] < 1:
        raise lines.error(
            "The first line should hold the numbers of layers, inputs and outputs, and the largest layer.",
            "Is it a .nnet file?",
        )
    limits.within(counts[0], limits.LAYERS, "layers", lines.here)
    sizes = _whole(lines, _row(lines, counts[0] + 1, "the sizes of the layers"))
    if min(sizes) < 1 or (sizes[0], sizes[-1]) != counts[1:3]:
        raise lines.error(
            f"The layers {_short(sizes)} do not go from {counts[1]} inputs to {counts[2]} outputs.",
            "The file is damaged.",
        )
    limits.within(max(sizes), limits.WIDTH, "units in one layer", lines.here)
    weights = [a * b for a, b in pairwise(sizes)]
    limits.within(max(weights), limits.NUMBERS, "weights in one layer", lines.here)
    limits.within(sum(weights), limits.WEIGHTS, "weights", lines.here)
    _row(lines, None, "a flag")
    for what in ("minima", "maxima"):
        _row(lines, sizes[0], f"the {what} of the inputs")
    means = _row(lines, sizes[0] + 1, "the means of inputs and output")
    ranges = _row(lines, sizes[0] + 1, "the ranges of inputs and output")
    if not ranges.all():
        raise lines.error("A range is 0.", "Nothing can be divided by it: correct the file.")
    return Header(sizes, means, ranges)


def _row(lines: Lines, count: int | None, what: str) -> Floats:
    """The numbers of the next line, which may end in a comma."""
    text = lines.need(what)
    found = floats(text.removesuffix(b","), f"{lines.here}: {what}")
    if count is not None and len(found) != count:
        raise FileError(
            f"There are {len(found)} numbers where {count} should be.",
            where=f"{lines.here}: {what}",
            hint="The file is damaged, or the sizes of its layers are wrong.",
        )
    return found


def _whole(lines: Lines, numbers: Floats) -> tuple[int, ...]:
    if not all(v == int(v) and 0 <= v < 1e9 for v in numbers.tolist()):
        raise lines.error("Sizes should be whole numbers.", "Is it a .nnet file?")
    return tuple(int(v) for v in numbers)


def _short(sizes: Sequence[int]) -> str:
    text = ", ".join(map(str, sizes[:8]))
    return f"({text}, ...)" if len(sizes) > 8 else f"({text})"
