"""Read the .nnet text format of the ACAS Xu networks: fully connected layers, and their normalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ..arrays import Floats
from ..errors import FileError
from ..humanize import count_noun
from ..network.builder import Value
from ..network.graph import Network
from . import limits
from .graph_builder import OperatorRecorder
from .numbers import TextLines, parse_numbers

MAX_SIZE = 1e9  # of a layer, or of the number of layers; smaller limits are checked later


@dataclass(frozen=True)
class NnetHeader:
    """The lines of a file before its weights."""

    sizes: tuple[int, ...]  # units of each layer, the input first
    means: Floats  # (inputs + 1,) one for each input, then one for all outputs
    ranges: Floats  # (inputs + 1,)


def read_nnet(data: bytes, where: str, *, normalize: bool) -> Network:
    """Read a network from the text of a .nnet file.

    Args:
        data: the content of the file.
        where: the name of the file, for error messages.
        normalize: compute (x - mean) / range before the layers and y * range + mean after them, with the numbers of
            the file. Inputs are not clipped to the minima and maxima in the file.

    >>> text = b"1,1,1,1,\\n1,1,\\n0,\\n0,\\n9,\\n1,10,\\n2,5,\\n3,\\n4,\\n"
    >>> read_nnet(text, "an example", normalize=True)(torch.tensor([[5.0]]))  # ((5 - 1) / 2 * 3 + 4) * 5 + 10
    tensor([[60.]], dtype=torch.float64)

    Raises FileError for a damaged file, NumberError for a number that is not finite.
    """
    lines = TextLines(data, where, comment=b"//")
    header = _read_header(lines)
    recorder = OperatorRecorder(where)
    x: Value = recorder.add_input("input", header.sizes[:1])
    if normalize:
        recorder.begin_node("normalize.mean")
        x = recorder.call("sub.Tensor", x, torch.from_numpy(header.means[None, :-1]))
        recorder.begin_node("normalize.range")
        x = recorder.call("div.Tensor", x, torch.from_numpy(header.ranges[None, :-1]))
    last = len(header.sizes) - 1
    for number in range(1, last + 1):
        lines.section = f"layer {number}"
        before, after = header.sizes[number - 1 : number + 1]
        weight = np.stack([_read_row(lines, before, f"row {i + 1} of the weights") for i in range(after)])
        bias = np.concatenate([_read_row(lines, 1, f"bias {i + 1}") for i in range(after)])
        recorder.begin_node(f"layer_{number}.linear")
        x = recorder.call("linear", x, torch.from_numpy(weight), torch.from_numpy(bias))
        if number < last:
            recorder.begin_node(f"layer_{number}.relu")
            x = recorder.call("relu", x)
    lines.section = ""
    if lines.next_line() is not None:
        raise lines.make_error("There are lines after the last layer.", "The sizes of the layers do not fit the file.")
    if normalize:
        recorder.begin_node("output.range")
        x = recorder.call("mul.Tensor", x, torch.from_numpy(header.ranges[None, -1:]))
        recorder.begin_node("output.mean")
        x = recorder.call("add.Tensor", x, torch.from_numpy(header.means[None, -1:]))
    return recorder.build_network([x], ["output"])


def _read_header(lines: TextLines) -> NnetHeader:
    counts = _to_whole_numbers(lines, _read_row(lines, None, "the number of layers"))
    if len(counts) < 3 or counts[0] < 1:
        raise lines.make_error(
            "The first line must hold the numbers of layers, inputs and outputs, and the size of the largest layer.",
            "Is it a .nnet file?",
        )
    limits.check_limit(counts[0], limits.MAX_LAYERS, "layers", lines.position)
    sizes = _to_whole_numbers(lines, _read_row(lines, counts[0] + 1, "the sizes of the layers"))
    if min(sizes) < 1 or (sizes[0], sizes[-1]) != counts[1:3]:
        raise lines.make_error(
            f"The layers {_format_sizes(sizes)} do not go from {counts[1]} inputs to {counts[2]} outputs.",
            "The file is damaged.",
        )
    limits.check_limit(max(sizes), limits.MAX_VALUE_ELEMENTS, "units in one layer", lines.position)
    weights = [a * b for a, b in pairwise(sizes)]
    limits.check_limit(max(weights), limits.MAX_TENSOR_NUMBERS, "weights in one layer", lines.position)
    limits.check_limit(sum(weights), limits.MAX_WEIGHTS, "weights", lines.position)
    _read_row(lines, None, "a flag")
    for what in ("minima", "maxima"):
        _read_row(lines, sizes[0], f"the {what} of the inputs")
    means = _read_row(lines, sizes[0] + 1, "the means of inputs and output")
    ranges = _read_row(lines, sizes[0] + 1, "the ranges of inputs and output")
    if not ranges.all():
        raise lines.make_error("A range is 0, but inputs are divided by it.", "Correct the file.")
    return NnetHeader(sizes, means, ranges)


def _read_row(lines: TextLines, count: int | None, what: str) -> Floats:
    """The numbers of the next line, which may end in a comma; ``count`` is how many there must be."""
    text = lines.require_line(what)
    numbers = parse_numbers(text.removesuffix(b","), f"{lines.position}: {what}")
    if count is not None and len(numbers) != count:
        raise FileError(
            f"Expected {count_noun(count, 'number')}, found {len(numbers):,}.",
            where=f"{lines.position}: {what}",
            hint="The file is damaged, or the sizes of its layers are wrong.",
        )
    return numbers


def _to_whole_numbers(lines: TextLines, numbers: Floats) -> tuple[int, ...]:
    if not all(v == int(v) and 0 <= v < MAX_SIZE for v in numbers.tolist()):
        raise lines.make_error("Sizes must be whole numbers.", "Is it a .nnet file?")
    return tuple(int(v) for v in numbers)


def _format_sizes(sizes: Sequence[int]) -> str:
    text = ", ".join(map(str, sizes[:8]))
    return f"({text}, ...)" if len(sizes) > 8 else f"({text})"
