"""Elements that are the same function of the inputs by structure, such as windows of one map that all cover all of it.

Both are computed with the same numbers from the same elements, or are the same element. So they are equal everywhere,
whatever rounding makes of either: where they tie in a maximum, nothing is ambiguous, and it does not matter which of
them leads.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from ..network.graph import Network, Node
from ..ops.affine import Combine, Product, Rearrange, Reshape, Scale
from ..ops.base import Breaking
from ..ops.maximum import Maximum
from ..ops.pointwise import Pointwise
from ..ops.windows import distinct_members
from .plan import sweep_plan

MAX_COMPARED_TERMS = 1 << 22  # labels of all windows of a convolution: larger ones are taken to differ
_merged: weakref.WeakKeyDictionary[Network, dict[int, Maximum]] = weakref.WeakKeyDictionary()


def merge_equal_members(network: Network) -> dict[int, Maximum]:
    """By node: its maximum with one of equal elements in their place, in every window; nodes without are missing.

    It has the breaks of the node's own maximum, and the same value but for rounding.
    """
    if network not in _merged:
        labels, last_use = EqualUnits(network), sweep_plan(network).last_use
        maxima = {i: op for i in network.breaking_nodes if isinstance(op := network.nodes[i].op, Maximum)}
        _merged[network] = {
            i: merged
            for i, op in maxima.items()
            if i in last_use and (merged := _merge_members(op, labels.first_equal(network.nodes[i].inputs[0])))
        }
    return _merged[network]


def breaking_op(network: Network, i: int) -> Breaking:
    """The operator by which the breaks of a node are found: of a maximum, that without equal members."""
    node = network.nodes[i]
    if not isinstance(node.op, Breaking):
        raise TypeError(f"{node.name} does not break")
    return merge_equal_members(network).get(i, node.op)


def _merge_members(op: Maximum, first_equal: Tensor | None) -> Maximum | None:
    """A maximum that reads the first of equal elements in place of all; None if no window has two of them."""
    if first_equal is None:
        return None
    table = first_equal[op.table]
    counts = [_count_distinct(members) for members in (table, op.table)]
    if torch.equal(*counts):
        return None
    return replace(op, table=distinct_members(table), native=None)


def _count_distinct(table: Tensor) -> Tensor:
    """(windows,) how many different members windows (windows, size) have."""
    return (table.sort(1).values.diff(dim=1) != 0).sum(1)


@dataclass(frozen=True, eq=False)
class EqualUnits:
    """Labels of the elements of nodes: elements with equal labels are the same function of the inputs.

    The converse need not hold: operators that are not known give every element a label of its own.
    """

    network: Network
    watched: Collection[int] = frozenset()  # nodes whose elements are told apart
    _known: dict[int, Tensor | None] = field(default_factory=dict[int, "Tensor | None"])  # by node

    def labels(self, i: int) -> Tensor:
        """(elements,) the labels of a node's elements."""
        found = self._labels_if_equal(i)
        return torch.arange(prod(self.network.nodes[i].shape), device=self.network.device) if found is None else found

    def first_equal(self, i: int) -> Tensor | None:
        """(elements,) the first element with the label of each; None if all labels of the node differ."""
        labels = self._labels_if_equal(i)
        if labels is None:
            return None
        elements = torch.arange(len(labels), device=labels.device)
        first = torch.full((int(labels.max()) + 1,), len(labels), device=labels.device)
        return first.scatter_reduce_(0, labels, elements, "amin")[labels]

    def _labels_if_equal(self, i: int) -> Tensor | None:
        """(elements,) the labels of a node, 0 and up; None if they all differ."""
        pending = [i]
        while pending:  # not by recursion: networks are deep
            j = pending[-1]
            unknown = [k for k in self._sources(j) if k not in self._known]
            if not unknown:
                pending.pop()
                self._known.setdefault(j, self._find(j))
            pending += unknown
        return self._known[i]

    def _sources(self, i: int) -> tuple[int, ...]:
        """The nodes whose labels decide on those of a node."""
        node = self.network.nodes[i]
        is_known = isinstance(node.op, Maximum | Pointwise | Scale | Product | Combine | Reshape | Rearrange)
        return node.inputs if is_known and i not in self.watched else ()

    def _find(self, i: int) -> Tensor | None:
        """`_labels_if_equal`, from the labels of the inputs."""
        node, labels = self.network.nodes[i], None
        if not self._sources(i) or not prod(node.shape):
            return None
        match node.op:
            case Maximum():
                source = self._known[node.inputs[0]]
                labels = _label_sets(node.op.table if source is None else source[node.op.table])
            case Pointwise():
                numbers = *node.op.knots, *node.op.slopes, node.op.value
                labels = self._label_elementwise(node, [n for n in numbers if isinstance(n, Tensor)])
            case Scale():
                numbers = node.op.weight, node.op.divisor, node.op.offset
                labels = self._label_elementwise(node, [n for n in numbers if n is not None])
            case Product():
                labels = self._label_convolution(node.op, node)
            case Combine():
                labels = self._label_sum(node)
            case Reshape():
                labels = self._known[node.inputs[0]]
            case Rearrange():
                labels = self._label_rearranged(node.op, node)
            case _:
                pass
        return None if labels is None or _all_differ(labels) else labels

    def _label_elementwise(self, node: Node, numbers: list[Tensor]) -> Tensor | None:
        """Elements are equal if those they read are, and so are the numbers, each broadcastable to the output."""
        labels = self._known[node.inputs[0]]
        shape = self.network.nodes[node.inputs[0]].shape
        if labels is None and shape == node.shape:
            return None
        labels = self.labels(node.inputs[0]).view(1, *shape).expand(1, *node.shape).flatten()
        return _label_tuples([labels, *(_label_numbers(n, node.shape) for n in numbers)])

    def _label_convolution(self, op: Product, node: Node) -> Tensor | None:
        """Elements of a channel are equal if they read equal elements, in the same order, and add one constant."""
        source = self._known[node.inputs[0]]
        if source is None:
            return None
        shape = self.network.nodes[node.inputs[0]].shape
        known = (source + 1).to(torch.float64).view(1, *shape)  # 0 is for padding
        columns = op.unfold_columns(known, MAX_COMPARED_TERMS // max(prod(op.weight.shape[1:]), 1))
        if columns is None:
            return None
        windows = columns.flatten(1).T
        if not _may_repeat(windows):
            return None
        channels = op.weight.shape[0]
        of_window = windows.unique(dim=0, return_inverse=True)[1]
        of_channel = torch.arange(channels, device=of_window.device)
        labels = [of_window.repeat(channels), of_channel.repeat_interleave(len(of_window))]
        return _label_tuples(labels if op.offset is None else [*labels, _label_numbers(op.offset, node.shape)])

    def _label_sum(self, node: Node) -> Tensor | None:
        """Sums are equal if all terms are."""
        parts = [self._known[j] for j in node.inputs]
        if any(self.network.nodes[j].shape != node.shape for j in node.inputs):
            return None
        known = [labels for labels in parts if labels is not None]
        return _label_tuples(known) if len(known) == len(parts) else None

    def _label_rearranged(self, op: Rearrange, node: Node) -> Tensor:
        """Copies of equal elements, and equal constants, are equal."""
        parts, first = list[Tensor](), 0
        for j in node.inputs:
            parts.append(self.labels(j) + first)
            first += int(parts[-1].max()) + 1 - first if len(parts[-1]) else 0
        if op.constant is None:
            return torch.cat(parts)[op.index]
        constants = op.constant.unique(return_inverse=True)[1] + first
        return torch.where(op.index < 0, constants, torch.cat(parts)[op.index.clamp(min=0)])


def _label_numbers(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(elements,) equal labels for equal numbers of an operator, broadcastable to (1, *shape)."""
    labels = numbers.unique(return_inverse=True)[1]
    return labels.expand(1, *shape).flatten()


def _label_tuples(parts: list[Tensor]) -> Tensor:
    """(n,) equal labels where the labels (n,) of all parts are equal."""
    labels = parts[0]
    for part in parts[1:]:
        labels = (labels * (part.max() + 1) + part).unique(return_inverse=True)[1]
    return labels


def _label_sets(sets: Tensor) -> Tensor | None:
    """(n,) equal labels for rows (n, k) of the same members, whatever their order and number; None: all differ."""
    lowest = sets.amin(1)
    if int(lowest.bincount().amax()) < 2 or not _may_repeat(torch.stack([lowest, sets.amax(1)], 1)):
        return None
    members = sets.sort(1).values
    repeats = torch.zeros_like(members, dtype=torch.bool)
    repeats[:, 1:] = members[:, 1:] == members[:, :-1]
    members = members.masked_fill(repeats, -1).sort(1).values
    return members.unique(dim=0, return_inverse=True)[1]


def _may_repeat(rows: Tensor) -> bool:
    """Whether some rows (n, k) may be equal; quickly, from two of their columns."""
    first, last = rows[:, 0].to(torch.int64), rows[:, -1].to(torch.int64)
    return not _all_differ(first * (last.max() + 1) + last)


def _all_differ(labels: Tensor) -> bool:
    return not bool((labels.sort().values.diff() == 0).any())
