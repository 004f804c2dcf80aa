"""What a study of collision avoidance needs to know: advisories, ranges of inputs, and a network that takes feet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, UnsupportedError
from ..formats.graph_builder import Sketch
from ..network import Network, Node, as_network
from ..network.builder import Value

INPUTS = ("rho", "theta", "psi", "v_own", "v_int")  # feet, radians, radians, feet per second twice


@dataclass(frozen=True)
class Advisory:
    """One thing the ownship can be told, in the paper's colour."""

    name: str
    colour: str


ADVISORIES = (  # in the order of the outputs; the smallest output is the advice
    Advisory("clear of conflict", "#1F77B4"),
    Advisory("weak left", "#FDB863"),
    Advisory("weak right", "#B2ABD2"),
    Advisory("strong left", "#E66101"),
    Advisory("strong right", "#5E3C99"),
)

PI = 3.141593  # as the published files round it
LOWEST = (0.0, -PI, -PI, 100.0, 0.0)
HIGHEST = (60760.0, PI, PI, 1200.0, 1200.0)
MEANS = (19791.091, 0.0, 0.0, 650.0, 600.0)
RANGES = (60261.0, 6.28318530718, 6.28318530718, 1100.0, 1200.0)


@dataclass(frozen=True, eq=False)
class Advisor:
    """A network from encounters (n, 5) in feet, radians and feet per second to the costs (n, 5) of the advisories."""

    network: Network
    name: str
    note: str  # what was done to the network, for the report
    lowest: tuple[float, ...]  # inputs are clipped to these ...
    highest: tuple[float, ...]  # ... and these

    def advice(self, points: Tensor) -> Tensor:  # (n, 5) -> (n,)
        """The advisory of each encounter, the first of those that cost least."""
        found = self.network(points)
        return (found[0] if isinstance(found, tuple) else found).argmin(1)


def advisor(model: Any = None, *, normalize: bool | None = None) -> Advisor:
    """A network for the study: a file, a module or a Network of five inputs and five costs; None is our own small one.

    Inputs are clipped to their ranges first. ``normalize`` says whether they are normalised as ACAS Xu's are before
    the network sees them. Left out, that is so for files that do not say it themselves (.onnx and ERAN text); a .nnet
    file follows the ranges and the normalisation that it carries; modules and networks take feet and radians.

    >>> import exactline as xl
    >>> xl.paper.encounter.advisor().network.input_shape
    (5,)

    Raises ArgumentError where the network has other inputs or outputs, FileError for files that cannot be read.
    """
    lowest, highest = LOWEST, HIGHEST
    if model is None:
        from ..zoo import encounter

        network = as_network(encounter(), [torch.zeros(5)])
        name, scaled = "exactline's own encounter network (not ACAS Xu)", normalize or False
        note = "takes feet, radians and feet per second"
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        from ..formats import load

        carried = path.name.lower().removesuffix(".gz").endswith(".nnet")
        network = load(path, normalize=carried and normalize is not False)
        name, scaled = path.name, normalize is not False and not carried
        note = "normalised by the numbers in the file" if carried and normalize is not False else ""
        if carried:
            lowest, highest = _nnet_ranges(path)
    else:
        network = as_network(model, [torch.zeros(5)])
        name, scaled, note = type(model).__name__, normalize or False, ""
    _checked(network, name)
    note = "normalised by the constants of ACAS Xu" if scaled else note or "given inputs as they are, not normalised"
    return Advisor(_fronted(network, lowest, highest, scaled), name, note, lowest, highest)


def _checked(network: Network, name: str) -> None:
    sizes = [[torch.Size(network.nodes[i].shape).numel() for i in side] for side in (network.inputs, network.outputs)]
    if sizes != [[5], [5]]:
        found = ["+".join(map(str, side)) for side in sizes]
        raise ArgumentError(
            f"The study needs a network of 5 inputs and 5 outputs; this one has {found[0]} and {found[1]}.",
            where=name,
            hint=f"The inputs are {', '.join(INPUTS)}, the outputs the costs of the five advisories.",
        )
    if any(tail is not None for tail in network.tails):
        raise UnsupportedError(
            "The network ends in a smooth operator: its outputs are no costs.",
            where=name,
            hint="Give the network without it.",
        )


def _fronted(network: Network, lowest: tuple[float, ...], highest: tuple[float, ...], scaled: bool) -> Network:
    """The network behind its clipping and normalisation, its costs in one row, as one graph."""
    low, high, means, ranges = (torch.tensor([v], dtype=torch.float64) for v in (lowest, highest, MEANS, RANGES))
    front = Sketch("the study")
    x: Value = front.input("encounter", (5,))
    front.at("clip")
    x = front.call("clamp.Tensor", x, low, high)
    if scaled:
        front.at("normalize.mean")
        x = front.call("sub.Tensor", x, means)
        front.at("normalize.range")
        x = front.call("div.Tensor", x, ranges)
    front.at("shape")
    x = front.call("view", x, [1, *network.nodes[network.inputs[0]].shape])
    back = Sketch("the study")
    y: Value = back.input("costs", network.nodes[network.outputs[0]].shape)
    back.at("row")
    y = back.call("view", y, [1, 5])
    return joined(joined(front.network([x]), network), back.network([y]))


def joined(first: Network, second: Network) -> Network:
    """The second network after the first: one output of the first is the one input of the second."""
    (entry,) = second.inputs
    place = {entry: first.outputs[0]}
    nodes, names = list(first.nodes), {node.name for node in first.nodes}
    for i, node in enumerate(second.nodes):
        if i == entry:
            continue
        name = node.name
        while name in names:
            name = f"{name}.next"
        names.add(name)
        place[i] = len(nodes)
        nodes.append(Node(name, node.op, tuple(place[j] for j in node.inputs), node.shape, node.path))
    outputs = tuple(place[i] for i in second.outputs)
    return Network(tuple(nodes), outputs, second.tails, several_outputs=second.several_outputs)


def _nnet_ranges(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The minima and maxima of the inputs that a .nnet file names; the file has been read before and is sound."""
    from ..formats.numbers import Lines, floats
    from ..formats.open_file import opened

    lines = Lines(opened(path), str(path), comment=b"//")
    for what in ("the number of layers", "the sizes of the layers", "a flag"):
        lines.need(what)
    low, high = (tuple(floats(lines.need(w).removesuffix(b","), f"{lines.here}: {w}").tolist()) for w in ("min", "max"))
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise ArgumentError(
            "A minimum is above its maximum.", where=str(path), hint="Correct the ranges of the inputs in the file."
        )
    return low, high
