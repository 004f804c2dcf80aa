"""Restrict a network to a line in rational arithmetic: the oracle for the float engines."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from ..network.graph import Network, Node
from ..ops.base import Breaking, Input
from .affine import AffineInput, evaluate_affine
from .forms import AffineForms, make_line_forms
from .integers import read_rationals
from .points import Point, read_ends, to_network
from .registry import make_rule
from .restriction import ExactOrigin, ExactRestriction
from .rules import ActivationPattern, ExactCrossing, ExactRule

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def restrict(
    model: nn.Module | ExportedProgram | Network,
    start: Point,  # (*in), or a tuple of them for several inputs
    end: Point,  # (*in), or a tuple of them
    *,
    rewrite: bool = True,
    until: str | None = None,
) -> ExactRestriction:
    """Compute every break and value of a network on a line as exact fractions.

    The points start + alpha (end - start) and all weights count as the rationals that the floats are.

    Args:
        model: a module, an `ExportedProgram` or a `Network`.
        start: the point (*in) at alpha 0, or a tuple of points for several inputs.
        end: the point (*in) at alpha 1, or a tuple of points.
        rewrite: fuse each ReLU with a neighbouring maximum.
        until: stop after this submodule, named as in ``named_modules()``.

    >>> from torch import tensor
    >>> loan = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> loan.load_state_dict({"0.weight": tensor([[-17.0, 10.0], [20.0, -13.0]]), "0.bias": tensor([30.0, 30.0])})
    <All keys matched successfully>
    >>> exact = restrict(loan, [20.0, 30.0], [30.0, 50.0])
    >>> exact.alphas
    [Fraction(0, 1), Fraction(1, 3), Fraction(2, 3), Fraction(1, 1)]
    >>> exact.origins[1]
    ExactOrigin(node='relu', unit=0, count=1)

    Raises LineError for points that do not fit, NumberError for weights that are not finite, UnsupportedError for an
    operator without a rule.
    """
    starts, ends = read_ends(start, end)
    network = to_network(model, starts, rewrite=rewrite, until=until)
    line_ends = zip(network.inputs, starts, ends, strict=True)
    sweep = _ExactSweep({i: make_line_forms(read_rationals(a), read_rationals(b)) for i, a, b in line_ends})
    last = network.last_use(network.outputs)
    for i, node in enumerate(network.nodes):
        if i not in last:
            sweep.node_forms.pop(i, None)
            continue
        if isinstance(node.op, Breaking):
            source = node.inputs[0]
            sweep.add_breaking_node(i, node, source, make_rule(node, network.nodes[source].shape))
        elif not isinstance(node.op, Input):
            inputs = [AffineInput(sweep.node_forms[j], network.nodes[j].shape) for j in node.inputs]
            sweep.node_forms[i] = evaluate_affine(node, inputs)
        for j in set(node.inputs):
            if last[j] == i:
                del sweep.node_forms[j]
    outputs = tuple(sweep.node_forms[i] for i in network.outputs)
    return ExactRestriction(network, sweep.alphas, sweep.origins, outputs, sweep.patterns)


class _ExactSweep:
    """The breaks found so far, and every tensor that is still needed on the pieces between them."""

    def __init__(self, node_forms: dict[int, AffineForms]) -> None:
        self.node_forms = node_forms  # by node
        self.alphas = [Fraction(0), Fraction(1)]
        self.origins: list[ExactOrigin | None] = [None, None]
        self.patterns: dict[int, tuple[ExactRule, ActivationPattern]] = {}

    def add_breaking_node(self, i: int, node: Node, source: int, rule: ExactRule) -> None:
        """Insert the breaks of node ``i``, which reads node ``source``, and compute its output."""
        pattern, crossings = rule.find_crossings(self.node_forms[source], self.alphas)
        if crossings:
            pattern = self._insert_breaks(pattern, crossings)
        self.node_forms[i] = rule.apply_affine(pattern, self.node_forms[source])
        self.patterns[i] = rule, pattern
        changes = rule.find_changes(pattern, self.node_forms[source])
        for j, changed_units in enumerate(changes.T, start=1):
            count, origin = int(changed_units.sum()), self.origins[j]
            if count:
                first = ExactOrigin(node.name, int(changed_units.argmax()), 0) if origin is None else origin
                self.origins[j] = ExactOrigin(first.node, first.unit, first.count + count)

    def _insert_breaks(self, pattern: ActivationPattern, crossings: list[ExactCrossing]) -> ActivationPattern:
        """Split pieces at crossings, and return the pattern on the new pieces."""
        new_breaks: dict[int, list[Fraction]] = {}  # by piece
        parts: list[int] = []  # for every crossing, which part of its piece begins there
        for crossing in crossings:  # in order of alpha
            in_piece = new_breaks.setdefault(crossing.piece, [])
            if not in_piece or in_piece[-1] != crossing.alpha:
                in_piece.append(crossing.alpha)
            parts.append(len(in_piece))
        parents: list[int] = []  # the old piece of every new one
        alphas: list[Fraction] = []
        origins: list[ExactOrigin | None] = []
        for k, alpha in enumerate(self.alphas[:-1]):
            in_piece = new_breaks.get(k, [])
            alphas += [alpha, *in_piece]
            origins += [self.origins[k], *[None] * len(in_piece)]
            parents += [k] * (1 + len(in_piece))
        parent = np.array(parents, dtype=np.int64)
        first_part = np.searchsorted(parent, np.arange(len(self.alphas)))
        pattern = pattern[..., parent]
        for crossing, part in zip(crossings, parts, strict=True):
            first, stop = first_part[crossing.piece] + part, first_part[crossing.piece + 1]
            pattern[crossing.unit, ..., first:stop] = np.array(crossing.branch)[..., None]
        self.alphas, self.origins = [*alphas, Fraction(1)], [*origins, None]
        self.node_forms = {i: forms.select_pieces(parent) for i, forms in self.node_forms.items()}
        self.patterns = {i: (rule, old[..., parent]) for i, (rule, old) in self.patterns.items()}
        return pattern
