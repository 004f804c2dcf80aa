"""Compare two networks along a line: where they disagree in class, and how far their outputs are apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from ..api import restrict
from ..engines.capture import capture_at_points
from ..errors import ArgumentError
from ..formats import load_network
from ..fp_context import full_precision
from ..humanize import count_noun
from ..lines import PointLike, as_lines
from ..network.graph import Network, Node
from ..ops.base import Input
from ..options import RestrictKeywords, RestrictOptions

if TYPE_CHECKING:
    from ..decide.intervals import Decisions, Interval
    from ..results.restriction import Restriction

MAX_SHOWN_DISAGREEMENTS = 8  # in the text of a comparison


@dataclass(frozen=True)
class Disagreement:
    """An interval of alpha on which two networks have different classes throughout."""

    start: float
    stop: float
    first: int  # the class of the first network
    second: int  # the class of the second network

    @property
    def width(self) -> float:
        """The length of the interval in alpha."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class NetworkComparison:
    """Two networks along a line: exact differences and disagreements, from one restriction of both.

    Outputs are compared before a smooth tail such as a softmax. All of it is about the part of the line that was
    swept: `reached` is 1 unless a limit stopped the sweep.

    >>> import exactline as xl
    >>> found = xl.compare(torch.relu, torch.abs, [-1.0, 0.5], [1.0, 0.5])
    >>> found.largest_difference.tolist(), found.differs_at.tolist()
    ([1.0, 0.0], [0.0, 0.0])
    >>> found.disagreements, found.disagreement
    ((Disagreement(start=0.0, stop=0.25, first=1, second=0),), 0.25)
    """

    line: Restriction  # of both networks: output 0 is the first one's, output 1 the second one's
    largest_difference: Tensor  # (outputs,) the largest absolute difference of each output
    differs_at: Tensor  # (outputs,) the alpha where it occurs
    disagreements: tuple[Disagreement, ...] | None  # in order; None for a network with one output and no threshold

    @property
    def reached(self) -> float:
        """The share of the line that was swept."""
        return self.line.reached

    @property
    def disagreement(self) -> float | None:
        """The share of the swept line on which the classes differ; None where there are no classes."""
        if self.disagreements is None:
            return None
        return sum(d.width for d in self.disagreements) / self.reached if self.reached else 0.0

    @property
    def error(self) -> float:
        """The estimated error of a difference: smaller ones may be rounding alone."""
        return 2 * self.line.error

    def __str__(self) -> str:
        largest = self.largest_difference
        at = int(largest.argmax()) if len(largest) else 0
        rows = [
            f"{count_noun(len(self.line), 'piece')} of both networks",
            f"largest difference {float(largest[at]):.4g}, of output {at} at alpha {float(self.differs_at[at]):.6g} "
            f"(rounding: {self.error:.0e})",
        ]
        if not self.line.complete:
            rows[0] += f", stopped by {self.line.stopped} at alpha {self.line.reached:.6g}"
        if self.disagreements is not None:
            rows.append(f"different classes on {self.disagreement:.4%} of the line" + ":" * bool(self.disagreements))
            for d in self.disagreements[:MAX_SHOWN_DISAGREEMENTS]:
                rows.append(f"  {d.start:.6g} to {d.stop:.6g}: {d.first} and {d.second}")
            if (rest := len(self.disagreements) - MAX_SHOWN_DISAGREEMENTS) > 0:
                rows.append(f"  {rest:,} more")
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<NetworkComparison: largest difference {float(self.largest_difference.max()):.4g}>"


def compare(
    f: Any,
    g: Any,
    start: PointLike,
    end: PointLike,
    *,
    order: str = "max",
    threshold: float | None = None,
    **options: Unpack[RestrictKeywords],
) -> NetworkComparison:
    """Compare two networks of the same inputs and outputs on the line from start to end, exactly.

    Both are restricted together, so that every break of either is a break of the pair: between breaks the difference is
    affine, and its extremes are at the breaks.

    Args:
        f: The first network: a module in eval mode, an exported program, a Network, or a path.
        g: The second network, such as its ONNX export, or a pruned, quantised or fine-tuned version.
        start: The first point, (*in), a tuple of points if the networks take several inputs.
        end: The last point, of the same shape as start.
        order: "max" if the largest output decides, "min" for the smallest.
        threshold: For networks with one output: class 1 is where it is above the threshold.
        **options: The options of `restrict` except values, until and output.

    >>> import exactline as xl
    >>> def shifted(x):
    ...     return torch.relu(x - torch.tensor([0.0, 0.25], dtype=x.dtype))
    >>> found = xl.compare(torch.relu, shifted, [1.0, -1.0], [0.0, 1.0])
    >>> found.largest_difference.tolist(), found.differs_at.tolist(), round(found.disagreement, 6)
    ([0.0, 0.25], [0.0, 0.625], 0.083333)
    >>> [(d.first, d.second, round(d.start, 6), round(d.stop, 6)) for d in found.disagreements]
    [(1, 0, 0.666667, 0.75)]

    Raises ArgumentError for networks of different shapes, LineError, CaptureError, UnsupportedError, NumberError.
    """
    for name in ("values", "until", "output"):
        if name in options:
            raise ArgumentError(
                f"There is no option {name!r} here.", where=f"argument {name}", hint="Compare whole networks."
            )
    lines = as_lines(start, end, ("start", "end"), many=False)
    points = [t[0] for t in lines.starts]
    checked = RestrictOptions.check(f, options, RestrictKeywords)
    with full_precision(kernels=False):
        networks, batched = zip(*(capture_at_points(_load(m), points, checked) for m in (f, g)), strict=True)
    _check_shapes(networks[0], networks[1])
    if any(batched):
        start, end = (tuple(t[0].squeeze(0) for t in side) for side in (lines.starts, lines.ends))
        start, end = (side if networks[0].several_inputs else side[0] for side in (start, end))
    if "device" not in options:
        options = {**options, "device": checked.device}
    line = restrict(join_networks(networks[0], networks[1]), start, end, **options)
    return _compare_line(line, order, threshold)


def join_networks(f: Network, g: Network) -> Network:
    """One network of the inputs of both, whose two outputs are those of ``f`` and of ``g``."""
    nodes = list(f.nodes)
    index: dict[int, int] = dict(zip(g.inputs, f.inputs, strict=True))
    names = {node.name for node in nodes}
    for i, node in enumerate(g.nodes):
        if isinstance(node.op, Input):
            continue
        index[i] = len(nodes)
        name = node.name if node.name not in names else f"{node.name}'"
        nodes.append(Node(name, node.op, tuple(index[j] for j in node.inputs), node.shape, node.path))
    return replace(
        f,
        nodes=tuple(nodes),
        outputs=(f.outputs[0], index[g.outputs[0]]),
        tails=(f.tails[0], g.tails[0]),
        several_outputs=True,
        output_names=("first", "second"),
        notes=(*f.notes, *g.notes),
        device_copies={},
    )


def _load(model: Any) -> Any:
    return load_network(model) if isinstance(model, (str, PathLike)) else model


def _check_shapes(f: Network, g: Network) -> None:
    """Raise ArgumentError for networks that cannot be compared."""
    tails = [[t and t.name for t in n.tails] for n in (f, g)]
    for what, one, other in (
        ("take inputs of shapes", f.input_shape, g.input_shape),
        ("have outputs of shapes", f.output_shape, g.output_shape),
        ("end with", *(" and ".join(name or "no smooth operator" for name in names) for names in tails)),
    ):
        if one != other:
            raise ArgumentError(
                f"The networks {what} {one} and {other}.",
                where="arguments f, g",
                hint="Compare networks of the same inputs and outputs.",
            )
    if f.several_outputs:
        raise ArgumentError(
            f"The networks have {len(f.outputs)} outputs.",
            where="arguments f, g",
            hint="Compare one of them: network.output(0), or a module that returns it.",
        )


def _compare_line(line: Restriction, order: str, threshold: float | None) -> NetworkComparison:
    if line.stored_values is None or not len(line.alphas):
        raise ArgumentError(
            f"The sweep was stopped by {line.stopped} before its first break.",
            where="compare",
            hint="Allow more breaks or more time.",
        )
    first, second = (v.reshape(len(v), -1).to(torch.float64) for v in line.stored_values)
    difference = (second - first).abs()
    largest, row = difference.max(0)
    disagreements = None
    if first.shape[1] > 1 or threshold is not None or _has_implied_threshold(line):
        decided = [line.decisions(order, output=k, threshold=threshold) for k in (0, 1)]
        disagreements = tuple(_find_disagreements(*decided))
    return NetworkComparison(line, largest, line.alphas[row], disagreements)


def _has_implied_threshold(line: Restriction) -> bool:
    tail = None if line.network is None else line.network.tails[0]
    return tail is not None and tail.name == "sigmoid"


def _find_disagreements(first: Decisions, second: Decisions) -> list[Disagreement]:
    """Intersect the intervals of both; neighbours of equal classes are joined."""
    one, two = list(first), list(second)
    edges = np.unique([i.start for i in (*one, *two)] + [i.stop for i in (*one, *two)])
    found: list[Disagreement] = []
    a = b = 0
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        while one[a].stop <= start and a + 1 < len(one):
            a += 1
        while two[b].stop <= start and b + 1 < len(two):
            b += 1
        if _classes(one[a]) & _classes(two[b]):
            continue
        label = one[a].best, two[b].best
        if found and found[-1].stop == start and (found[-1].first, found[-1].second) == label:
            start = found.pop().start
        found.append(Disagreement(start, stop, *label))
    return found


def _classes(interval: Interval) -> set[int]:
    """The outputs that lead along an interval: several where they are tied."""
    return {interval.best, *interval.tied}
