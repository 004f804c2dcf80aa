"""Restrict a network to a line in rationals: the truth that the float sweep is held against."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from ..network.graph import Network, Node
from ..ops.base import Breaking, Input
from .affine import Given, affine
from .forms import Forms, line_forms
from .integers import read
from .points import Point, read_ends, to_network
from .registry import rule_of
from .restriction import Born, ExactRestriction
from .rules import Pattern, Rule, Turn

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def restrict(
    model: nn.Module | ExportedProgram | Network,
    Q: Point,  # (*in), or a tuple of them for several inputs
    R: Point,  # likewise
    *,
    rewrite: bool = True,
    until: str | None = None,
) -> ExactRestriction:
    """Every break and value of a network between Q and R, as exact fractions.

    >>> from torch import tensor
    >>> loan = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> loan.load_state_dict({"0.weight": tensor([[-17.0, 10.0], [20.0, -13.0]]), "0.bias": tensor([30.0, 30.0])})
    <All keys matched successfully>
    >>> exact = restrict(loan, [20.0, 30.0], [30.0, 50.0])
    >>> exact.alphas
    [Fraction(0, 1), Fraction(1, 3), Fraction(2, 3), Fraction(1, 1)]
    >>> exact.born[1]
    Born(node='relu', unit=0, count=1)

    The points Q + alpha (R - Q) and all weights are read as the rationals they are. Raises `LineError`
    for points that cannot be used and `NumberError` for weights that are not finite.
    """
    starts, stops = read_ends(Q, R)
    return restrict_network(to_network(model, starts, rewrite=rewrite, until=until), starts, stops)


def restrict_network(network: Network, starts: Sequence[Tensor], stops: Sequence[Tensor]) -> ExactRestriction:
    """The same for a network that is ready, between points that fit."""
    ends = zip(network.inputs, starts, stops, strict=True)
    walk = _Walk({i: line_forms(read(q), read(r)) for i, q, r in ends})
    last = network.last_use(network.outputs)
    for i, node in enumerate(network.nodes):
        if i not in last:
            walk.live.pop(i, None)
            continue
        if isinstance(node.op, Breaking):
            source = node.inputs[0]
            walk.cross(i, node, source, rule_of(node, network.nodes[source].shape))
        elif not isinstance(node.op, Input):
            walk.live[i] = affine(node, [Given(walk.live[j], network.nodes[j].shape) for j in node.inputs])
        for j in set(node.inputs):
            if last[j] == i:
                del walk.live[j]
    outputs = tuple(walk.live[i] for i in network.outputs)
    return ExactRestriction(network, walk.alphas, walk.born, outputs, walk.patterns)


class _Walk:
    """Sorted breaks, and the forms of every live tensor on the pieces between them."""

    def __init__(self, live: dict[int, Forms]) -> None:
        self.live = live
        self.alphas = [Fraction(0), Fraction(1)]
        self.born: list[Born | None] = [None, None]
        self.patterns: dict[int, tuple[Rule, Pattern]] = {}

    def cross(self, i: int, node: Node, source: int, rule: Rule) -> None:
        """Cut all pieces where the node turns, then follow its branches."""
        pattern, turns = rule.split(self.live[source], self.alphas)
        if turns:
            pattern = self._refine(pattern, turns)
        self.live[i] = rule.follow(pattern, self.live[source])
        self.patterns[i] = rule, pattern
        changed = rule.changed(pattern, self.live[source])
        for j, units in enumerate(changed.T, start=1):
            count, born = int(units.sum()), self.born[j]
            if count:
                first = Born(node.name, int(units.argmax()), 0) if born is None else born
                self.born[j] = Born(first.node, first.unit, first.count + count)

    def _refine(self, pattern: Pattern, turns: list[Turn]) -> Pattern:
        """Put the new breaks in; every tensor keeps its forms on the parts of a piece."""
        cuts: dict[int, list[Fraction]] = {}
        parts: list[int] = []  # for every turn, the part of its piece that it opens
        for turn in turns:  # in order of alpha
            new = cuts.setdefault(turn.piece, [])
            if not new or new[-1] != turn.alpha:
                new.append(turn.alpha)
            parts.append(len(new))
        parents: list[int] = []
        alphas: list[Fraction] = []
        born: list[Born | None] = []
        for k, alpha in enumerate(self.alphas[:-1]):
            new = cuts.get(k, [])
            alphas += [alpha, *new]
            born += [self.born[k], *[None] * len(new)]
            parents += [k] * (1 + len(new))
        parent = np.array(parents, dtype=np.int64)
        first = np.searchsorted(parent, np.arange(len(self.alphas)))  # of the parts of each piece
        pattern = pattern[..., parent]
        for turn, part in zip(turns, parts, strict=True):
            begin, end = first[turn.piece] + part, first[turn.piece + 1]
            pattern[turn.unit, ..., begin:end] = np.array(turn.branch)[..., None]
        self.alphas, self.born = [*alphas, Fraction(1)], [*born, None]
        self.live = {i: forms.on(parent) for i, forms in self.live.items()}
        self.patterns = {i: (rule, old[..., parent]) for i, (rule, old) in self.patterns.items()}
        return pattern
