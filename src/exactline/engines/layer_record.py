"""The record of a sweep by layer: crossings of every breaking node, and its units that are dead or always on.

Both engines report *switches*: a unit that changes its branch at an alpha. Most switches are crossings, which breaks
count; the others leave a knot after having stayed on it. A unit without a switch keeps the branch that it has on any
one piece, so that two points for each line tell which of them are dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..ops.base import Breaking
from .activation_pattern import activation_patterns

MAX_BATCH_UNITS = 1 << 24  # units of all lines whose branch is found together


@dataclass(frozen=True, eq=False)
class LayerTable:
    """For every breaking node what its units do, on many lines, (lines, layers), or on one, (layers,)."""

    node: Tensor  # (layers,) index of the node
    units: Tensor  # (layers,) how many units it has
    crossings: Tensor  # (lines, layers) crossings strictly inside the part of the line that was swept
    dead: Tensor  # (lines, layers) units whose output is constant because they stay on a flat branch
    always_on: Tensor  # (lines, layers) units that stay on one branch that is not flat

    def to_rows(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        """The table of one line as a row for each layer; ``names`` are those of the network's nodes."""
        columns = ("units", "crossings", "dead", "always_on")
        counts = zip(*(getattr(self, column).tolist() for column in columns), strict=True)
        nodes = self.node.tolist()
        return [{"node": names[i]} | dict(zip(columns, row, strict=True)) for i, row in zip(nodes, counts, strict=True)]

    def line(self, index: int) -> LayerTable:
        """The table of one line."""
        return LayerTable(self.node, self.units, self.crossings[index], self.dead[index], self.always_on[index])


@dataclass(frozen=True, eq=False)
class Switches:
    """Units that change their branch, as parallel arrays."""

    line: Ints  # (k,)
    node: Ints  # (k,)
    unit: Ints  # (k,)
    alpha: Floats  # (k,)
    is_crossing: Bools  # (k,) whether the breaks count it

    def select(self, rows: Bools) -> Switches:
        """Some of the switches."""
        return Switches(*(column[rows] for column in vars(self).values()))

    @staticmethod
    def join(parts: list[Switches]) -> Switches:
        """Concatenate several sets of switches."""
        integers = np.zeros(0, dtype=np.int64)
        none = Switches(integers, integers, integers, np.zeros(0), np.zeros(0, dtype=np.bool_))
        columns = zip(*(vars(part).values() for part in (none, *parts)), strict=True)
        return Switches(*(np.concatenate(column) for column in columns))


@dataclass(eq=False)
class LayerRecorder:
    """Collects the switches of a sweep; those of a step that has to be repeated are dropped."""

    pending: list[Switches] = field(default_factory=list[Switches])  # of the step in progress
    switches: list[Switches] = field(default_factory=list[Switches])

    def add(self, line: Any, node: int, unit: Any, alpha: Any, is_crossing: Any = True) -> None:
        """Add switches of one node; arrays or tensors (k,), ``line`` and ``is_crossing`` possibly one for all."""
        units, alphas = _to_numpy(unit), _to_numpy(alpha)
        if len(units):
            lines, crossing = (np.broadcast_to(_to_numpy(a), units.shape) for a in (line, is_crossing))
            self.pending.append(Switches(lines, np.full_like(units, node), units, alphas, crossing))

    def commit(self) -> None:
        """Keep the switches of the step: it has ended well."""
        self.switches += self.pending
        self.pending = []

    def discard(self) -> None:
        """Drop the switches of the step: it will be repeated."""
        self.pending = []

    def clear(self) -> None:
        """Drop all switches: the sweep starts anew."""
        self.pending, self.switches = [], []

    def take_until(self, alpha: float) -> Switches:
        """Remove and return the switches of a single line up to an alpha, including those found late."""
        self.commit()
        known = Switches.join(self.switches)
        is_taken = known.alpha <= alpha
        self.switches = [known.select(~is_taken)]
        return known.select(is_taken)


def count_layers(
    network: Network,
    lines: Lines,
    offsets: Tensor,  # (lines + 1,)
    alphas: Tensor,  # (breaks,)
    switches: Switches,
    *,
    is_stream: bool = False,
) -> LayerTable:
    """Count crossings, dead and always-on units by layer on the parts of the lines that were swept.

    Args:
        network: The network that was swept.
        lines: Its lines, on the network's device and in its precision.
        offsets: First break of each line.
        alphas: The breaks of all lines.
        switches: The switches of all lines.
        is_stream: Whether this is a part of a line: then crossings at its ends count too, once in all parts together.
    """
    last_use = sweep_plan(network).last_use
    nodes = [i for i in network.breaking_nodes if i in last_use]
    sizes = np.array([_count_units(network, i) for i in nodes], dtype=np.int64)
    first_unit = np.concatenate([[0], sizes.cumsum()])
    layer_of = np.full(len(network.nodes), -1)
    layer_of[nodes] = np.arange(len(nodes))
    start, stop = _swept_ranges(offsets, alphas)
    line = switches.line
    inside = (switches.alpha > start[line]) & (switches.alpha < stop[line])
    count, layers = len(offsets) - 1, len(nodes)
    crossing = switches.is_crossing & (inside | (is_stream & (switches.alpha > 0) & (switches.alpha < 1)))
    crossings = _count_crossings(switches.select(crossing), count, layer_of, layers)
    total = int(first_unit[-1])
    unit = first_unit[layer_of[switches.node[inside]]] + switches.unit[inside]
    switching = np.unique(line[inside] * max(total, 1) + unit)
    per_layer = np.zeros((count, layers), dtype=np.int64)
    np.add.at(per_layer, (switching // max(total, 1), _layer_of_unit(first_unit, switching % max(total, 1))), 1)
    dead = _count_dead(network, lines, nodes, first_unit, (offsets, alphas), switching)
    is_swept = (stop > start)[:, None]
    columns = crossings.reshape(count, layers), dead, (sizes - per_layer - dead) * is_swept
    return LayerTable(torch.tensor(nodes, dtype=torch.int64), torch.from_numpy(sizes), *map(torch.from_numpy, columns))


def _count_crossings(crossings: Switches, lines: int, layer_of: Ints, layers: int) -> Ints:
    """The units of every layer that cross at breaks, (lines * layers,); a unit counts once at each break."""
    columns = crossings.alpha, crossings.unit, crossings.node, crossings.line
    order = np.lexsort(columns)
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
    row = crossings.line * layers + layer_of[crossings.node]
    return np.bincount(row[order][is_new], minlength=lines * layers)


def _count_units(network: Network, i: int) -> int:
    node = network.nodes[i]
    if not isinstance(node.op, Breaking):
        raise TypeError(f"{node.name} does not break")
    return node.op.units(network.nodes[node.inputs[0]].shape)


def _swept_ranges(offsets: Tensor, alphas: Tensor) -> tuple[Floats, Floats]:
    """(lines,) each: the alphas between which each line was swept; both are 0 where nothing was."""
    first, last = offsets[:-1].numpy(), offsets[1:].numpy() - 1
    is_swept = last > first
    found = np.append(alphas.numpy(), 0.0)
    return np.where(is_swept, found[np.where(is_swept, first, -1)], 0.0), np.where(is_swept, found[last], 0.0)


def _layer_of_unit(first_unit: Ints, unit: Ints) -> Ints:
    return np.searchsorted(first_unit, unit, side="right") - 1


def _count_dead(
    network: Network,
    lines: Lines,
    nodes: list[int],
    first_unit: Ints,  # (layers + 1,)
    breaks: tuple[Tensor, Tensor],  # offsets, alphas
    switching: Ints,  # (k,) line times all units plus unit, ascending
) -> Ints:
    """(lines, layers) units that stay on a flat branch: flat on the widest piece of the line, and not switching."""
    offsets, alphas = breaks
    total, count = int(first_unit[-1]), len(offsets) - 1
    dead = np.zeros((count, len(nodes)), dtype=np.int64)
    swept = np.flatnonzero((offsets.diff() > 1).numpy())
    step = max(1, MAX_BATCH_UNITS // max(total, 1))
    for at in range(0, len(swept) if total else 0, step):
        some = swept[at : at + step]
        pieces = torch.stack([_widest_piece(alphas[offsets[i] : offsets[i + 1]]) for i in some.tolist()])
        device = lines.starts[0].device
        index = torch.from_numpy(some).to(device)
        patterns = activation_patterns(network, lines, index, pieces[:, 0].to(device), pieces[:, 1].to(device))
        is_flat = np.concatenate([_flat_units(network, i, patterns[i]) for i in nodes], 1)
        low, high = np.searchsorted(switching, [some[0] * total, (some[-1] + 1) * total])
        line, unit = switching[low:high] // total, switching[low:high] % total
        is_flat[np.searchsorted(some, line), unit] = False
        widths = np.flatnonzero(np.diff(first_unit))  # layers with units: reduceat needs them not empty
        dead[np.ix_(some, widths)] = np.add.reduceat(is_flat.astype(np.int64), first_unit[:-1][widths], axis=1)
    return dead


def _widest_piece(alphas: Tensor) -> Tensor:  # (breaks,) -> (2,)
    """Both ends of the widest piece: there rounding hides the side of a unit least."""
    at = int(alphas.diff().argmax())
    return alphas[at : at + 2]


def _flat_units(network: Network, i: int, pattern: Tensor) -> Bools:  # (lines, units)
    op = network.nodes[i].op
    if not isinstance(op, Breaking):
        raise TypeError(f"{network.nodes[i].name} does not break")
    return op.is_flat(pattern).reshape(len(pattern), -1).cpu().numpy()


def _to_numpy(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
