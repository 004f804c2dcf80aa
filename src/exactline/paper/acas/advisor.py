"""Collision-avoidance networks: their advisories, the ranges of their inputs, and a network that takes feet."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ArgumentError, UnsupportedError
from ...formats import load_network
from ...formats.graph_builder import OperatorRecorder
from ...formats.numbers import TextLines, parse_numbers
from ...formats.open_file import read_file
from ...network import Network, as_network
from ...network.builder import Value
from ..compose import compose_networks

INPUT_NAMES = ("rho", "theta", "psi", "v_own", "v_int")  # feet, radians, radians, feet per second twice


@dataclass(frozen=True)
class Advisory:
    """One turn that the network can advise, with its colour in the paper."""

    name: str
    colour: str


ADVISORIES = (  # in the order of the outputs; the smallest output is the advice
    Advisory("clear of conflict", "#1F77B4"),
    Advisory("weak left", "#FDB863"),
    Advisory("weak right", "#B2ABD2"),
    Advisory("strong left", "#E66101"),
    Advisory("strong right", "#5E3C99"),
)

ROUNDED_PI = 3.141593  # as the published files round it
INPUT_MINIMA = (0.0, -ROUNDED_PI, -ROUNDED_PI, 100.0, 0.0)
INPUT_MAXIMA = (60760.0, ROUNDED_PI, ROUNDED_PI, 1200.0, 1200.0)
INPUT_MEANS = (19791.091, 0.0, 0.0, 650.0, 600.0)
INPUT_RANGES = (60261.0, 6.28318530718, 6.28318530718, 1100.0, 1200.0)


@dataclass(frozen=True, eq=False)
class Advisor:
    """A network from encounters (n, 5) in feet, radians and feet per second to the costs (n, 5) of the advisories."""

    network: Network
    name: str
    note: str  # how its inputs are normalized, for the report
    input_minima: tuple[float, ...]  # inputs are clipped to this range first
    input_maxima: tuple[float, ...]

    def advise(self, points: Tensor) -> Tensor:  # (n, 5) -> (n,)
        """Return the index of the cheapest advisory for each encounter; the first of a tie."""
        costs = self.network(points)
        return (costs[0] if isinstance(costs, tuple) else costs).argmin(1)

    def describe(self) -> str:
        """Describe the network, for a report."""
        return f"{self.name}; {self.note}; {self.network.units.get('relu', 0):,} ReLU units."

    def describe_ranges(self) -> str:
        """Describe the ranges of the inputs, for a report."""
        ranges = ", ".join(
            f"{name} {low:g} to {high:g}"
            for name, low, high in zip(INPUT_NAMES, self.input_minima, self.input_maxima, strict=True)
        )
        return f"Inputs are clipped to their ranges first: {ranges} (feet, radians, feet per second)."

    def describe_clipping(self, points: Tensor) -> list[str]:  # (n, 5)
        """Describe which inputs leave their ranges at the given encounters and are clipped."""
        lows, highs = points.amin(0).tolist(), points.amax(0).tolist()
        limits = zip(INPUT_NAMES, lows, highs, self.input_minima, self.input_maxima, strict=True)
        return [
            f"{name} leaves its range ({low:g} to {high:g}) and was clipped."
            for name, low, high, minimum, maximum in limits
            if low < minimum or high > maximum
        ]


def load_advisor(model: Any = None, *, normalize: bool | None = None) -> Advisor:
    """Prepare a network for the study: clip its inputs to their ranges and normalize them.

    Args:
        model: A file, a module or a Network with five inputs and five costs; None for the bundled network.
        normalize: Whether to normalize the inputs with the constants of ACAS Xu. By default .onnx and ERAN files are
            normalized, a .nnet file follows the ranges and the normalization it contains, and modules and networks
            take feet and radians.

    >>> load_advisor().network.input_shape
    (5,)

    Raises ArgumentError for a network with other inputs or outputs, FileError for a file that cannot be read.
    """
    minima, maxima = INPUT_MINIMA, INPUT_MAXIMA
    if model is None:
        network = _read_bundled()
        name, scaled = "exactline's own encounter network (not ACAS Xu)", normalize or False
        note = "takes feet, radians and feet per second"
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        is_nnet = path.name.lower().removesuffix(".gz").endswith(".nnet")
        network = load_network(path, normalize=is_nnet and normalize is not False)
        name, scaled = path.name, normalize is not False and not is_nnet
        note = "normalized as the file specifies" if is_nnet and normalize is not False else ""
        if is_nnet:
            minima, maxima = _read_nnet_ranges(path)
    else:
        network = as_network(model, [torch.zeros(5)])
        name, scaled, note = type(model).__name__, normalize or False, ""
    _check_shapes(network, name)
    note = "normalized with the constants of ACAS Xu" if scaled else note or "inputs are not normalized"
    return Advisor(_add_preprocessing(network, minima, maxima, scaled), name, note, minima, maxima)


def _read_bundled() -> Network:
    """Convert the bundled network layer by layer: tracing its first module would load torch's compiler."""
    from ...zoo import encounter_network

    (_, normalization), *layers = encounter_network().named_children()
    shift, scale = (normalization.get_buffer(name).double()[None] for name in ("middle", "spread"))
    front = OperatorRecorder("the bundled network")
    x: Value = front.add_input("encounter", (5,))
    front.begin_node("0.middle")
    x = front.call("sub.Tensor", x, shift)
    front.begin_node("0.spread")
    x = front.call("div.Tensor", x, scale)
    return compose_networks(front.build_network([x]), as_network(nn.Sequential(OrderedDict(layers)), [torch.zeros(5)]))


def _check_shapes(network: Network, name: str) -> None:
    sizes = [[torch.Size(network.nodes[i].shape).numel() for i in side] for side in (network.inputs, network.outputs)]
    if sizes != [[5], [5]]:
        inputs, outputs = ("+".join(map(str, side)) for side in sizes)
        raise ArgumentError(
            f"The study needs a network of 5 inputs and 5 outputs; this one has {inputs} and {outputs}.",
            where=name,
            hint=f"The inputs are {', '.join(INPUT_NAMES)}, the outputs the costs of the five advisories.",
        )
    if any(tail is not None for tail in network.tails):
        raise UnsupportedError(
            "The network ends in a smooth operator, so its outputs are not costs.",
            where=name,
            hint="Give the network without that operator.",
        )


def _add_preprocessing(network: Network, minima: tuple[float, ...], maxima: tuple[float, ...], scaled: bool) -> Network:
    """Put clipping and normalization in front of a network, and give its costs the shape (n, 5)."""
    low, high, means, ranges = (
        torch.tensor([v], dtype=torch.float64) for v in (minima, maxima, INPUT_MEANS, INPUT_RANGES)
    )
    front = OperatorRecorder("the study")
    x: Value = front.add_input("encounter", (5,))
    front.begin_node("clip")
    x = front.call("clamp.Tensor", x, low, high)
    if scaled:
        front.begin_node("normalize.mean")
        x = front.call("sub.Tensor", x, means)
        front.begin_node("normalize.range")
        x = front.call("div.Tensor", x, ranges)
    front.begin_node("shape")
    x = front.call("view", x, [1, *network.nodes[network.inputs[0]].shape])
    back = OperatorRecorder("the study")
    y: Value = back.add_input("costs", network.nodes[network.outputs[0]].shape)
    back.begin_node("row")
    y = back.call("view", y, [1, 5])
    return compose_networks(compose_networks(front.build_network([x]), network), back.build_network([y]))


def _read_nnet_ranges(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read the minima and maxima of the inputs from a .nnet file that has been loaded before."""
    lines = TextLines(read_file(path), str(path), comment=b"//")
    for what in ("the number of layers", "the sizes of the layers", "a flag"):
        lines.require_line(what)
    low, high = (
        tuple(parse_numbers(lines.require_line(w).removesuffix(b","), f"{lines.position}: {w}").tolist())
        for w in ("min", "max")
    )
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise ArgumentError(
            "A minimum is above its maximum.", where=str(path), hint="Correct the ranges of the inputs in the file."
        )
    return low, high
