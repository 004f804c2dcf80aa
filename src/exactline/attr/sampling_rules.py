"""Quadrature rules for integrated gradients, evaluated exactly from the pieces of a line, and their errors.

The gradient is constant on a piece, so a node of a rule needs no gradient of its own: it is that of the piece which
contains the node. The gradients of all pieces are computed once. Every rule with every number of nodes is then a
weighting of the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..engines.dense.piece_gradients import piece_gradients
from ..errors import ArgumentError
from ..fp_context import full_precision
from ..network.graph import Network
from ..results.restriction import Restriction
from ..tolerances import RELATIVE_ERROR_OFFSET
from .adaptive import integrate_adaptively
from .quadrature import MIN_GRADIENTS, RULES

RULE_NAMES = (*RULES, "adaptive")
MAX_SAMPLED_NUMBERS = 1 << 24  # attributions in one batch
CURVE_GRADIENTS = 128  # errors are kept for 1, 2, ... 128 gradients
STABLE_RUN = 5  # an error is stable once this many consecutive numbers of gradients are below the tolerance


def integrate(
    line: Restriction, target: int, rule: str = "trapezoid", n: int = 50, *, output: int = 0
) -> Tensor | tuple[Tensor, ...]:
    """Compute integrated gradients as a quadrature rule with n gradients estimates them.

    A node on a break belongs to the piece that starts there; for ``right``, to the piece that ends there. At alpha 1 it
    is the last piece. Off the breaks this agrees with autograd. On a break, and along ties of a maximum, autograd has
    its own conventions: at a black image every max-pooling window is tied.

    Args:
        line: The restriction from the baseline to the input.
        target: A flat position in the output.
        rule: left, right, midpoint, trapezoid, simpson, gauss-legendre or adaptive.
        n: The number of gradients, both ends included.
        output: The index among the network's outputs.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0], [3.0])  # the exact answer is 3
    >>> integrate(line, 0, "left", 4), integrate(line, 0, "left", 2)
    (tensor([3.], dtype=torch.float64), tensor([2.], dtype=torch.float64))

    Raises ArgumentError for a rule, number or target that does not exist, and for a line that was stopped early.
    """
    check_rules([rule], [n])
    pieces = PieceGradients.of(line, target, output)
    return pieces.unflatten(pieces.apply_rule(rule, [n])[0])


def error_curve(
    line: Restriction,
    target: int,
    rules: Sequence[str] = RULE_NAMES,
    n: Iterable[int] = range(1, 129),
    *,
    output: int = 0,
) -> dict[str, Tensor]:
    """Compute the mean relative error of each rule for every number of gradients; NaN where a rule needs more.

    The error is the mean over inputs of |estimate - exact| / |exact + 1e-11|.

    Args:
        line: The restriction from the baseline to the input.
        target: A flat position in the output.
        rules: Names of rules; see `integrate`.
        n: The numbers of gradients.
        output: The index among the network's outputs.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0], [3.0])
    >>> error_curve(line, 0, ["left"], [2, 4])["left"].tolist()
    [0.333..., 0.0]

    Raises ArgumentError as `integrate` does.
    """
    counts = list(n)
    check_rules(rules, counts)
    pieces = PieceGradients.of(line, target, output)
    return {rule: pieces.rule_errors(rule, counts) for rule in rules}


@dataclass(frozen=True)
class PieceGradients:
    """The gradients on all pieces of one line, multiplied by the step along the line."""

    line: Restriction
    rates: Tensor  # (pieces, features) attribution per unit of alpha

    @staticmethod
    def of(line: Restriction, target: int, output: int = 0) -> PieceGradients:
        """Compute the gradients of one output element on all pieces."""
        network, node = _check_line(line, target, output)
        with full_precision():
            steps = [b - a for a, b in zip(line.lines.starts, line.lines.ends, strict=True)]
            gradients = piece_gradients(network, line.lines, line.alphas, node, target)
            return PieceGradients(
                line, torch.cat([(g * s).flatten(1) for g, s in zip(gradients, steps, strict=True)], 1)
            )

    @cached_property
    def exact(self) -> Tensor:
        """The exact integral, (features,)."""
        return torch.diff(self.line.alphas) @ self.rates

    def find_pieces(self, alphas: Tensor, rule: str = "") -> Tensor:  # (k,) -> (k,)
        """Find the piece of each alpha; on a break the one that starts there, for ``right`` the one that ends there."""
        inner = self.line.alphas[1:-1]
        return torch.searchsorted(inner, alphas, right=rule != "right")

    def apply_rule(self, rule: str, counts: Sequence[int]) -> Tensor:  # (counts, features)
        """Compute the attributions of a rule for each number of gradients; NaN where the rule needs more."""
        if rule == "adaptive":
            none = torch.full_like(self.rates[0], torch.nan)
            return torch.stack(
                [
                    integrate_adaptively(lambda a: self.rates[self.find_pieces(a)], n)
                    if n >= MIN_GRADIENTS[rule]
                    else none
                    for n in counts
                ]
            )
        too_few = [k for k, n in enumerate(counts) if n < MIN_GRADIENTS.get(rule, 1)]
        return torch.sparse.mm(self.rule_weights(rule, counts), self.rates).index_fill_(
            0, torch.tensor(too_few, dtype=torch.int64), torch.nan
        )

    def rule_weights(self, rule: str, counts: Sequence[int]) -> Tensor:  # (counts, pieces), sparse
        """Sum the weights of a rule's nodes in each piece, for each number of gradients."""
        rows, columns, weights = [], [], []
        for row, n in enumerate(counts):
            if n >= MIN_GRADIENTS.get(rule, 1):
                alphas, node_weights = map(torch.from_numpy, RULES[rule](n))
                rows.append(torch.full((n,), row))
                columns.append(self.find_pieces(alphas, rule))
                weights.append(node_weights)
        size = (len(counts), len(self.line))
        if not rows:
            return torch.sparse_coo_tensor(
                torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0).double(), size, check_invariants=True
            )
        return torch.sparse_coo_tensor(
            torch.stack([torch.cat(rows), torch.cat(columns)]), torch.cat(weights), size, check_invariants=True
        ).coalesce()

    def rule_errors(self, rule: str, counts: Sequence[int]) -> Tensor:  # (counts,)
        """Compute the mean relative error of a rule for each number of gradients."""
        step = max(1, MAX_SAMPLED_NUMBERS // max(self.rates.shape[1], 1))
        batches = [counts[k : k + step] for k in range(0, len(counts), step)]
        errors = [mean_relative_error(self.apply_rule(rule, batch), self.exact) for batch in batches]
        return torch.cat(errors) if errors else torch.zeros(0, dtype=torch.float64)

    def find_stable_count(self, rule: str, tolerance: float, max_gradients: int) -> tuple[int | None, Tensor]:
        """Find the smallest number of gradients from which five in a row have errors below the tolerance.

        Returns it, or None if there is none up to ``max_gradients``, and the errors for 1, 2, ... 128 gradients.
        """
        curve = self.rule_errors(rule, range(1, CURVE_GRADIENTS + 1))
        errors, first, below = curve[:max_gradients], 1, 0
        while len(errors):
            for n, error in enumerate(errors.tolist(), first):
                below = below + 1 if error < tolerance else 0
                if below == STABLE_RUN:
                    return n - STABLE_RUN + 1, curve
            first += len(errors)
            errors = self.rule_errors(rule, range(first, min(2 * first, max_gradients + 1)))
        return None, curve

    def find_complete_count(
        self, sum_tolerance: float = 0.01, rule: str = "left", first: int = 20, last: int = 1000
    ) -> tuple[int, float] | None:
        """Find the first number of gradients whose attributions add up to the change of the output, and its true error.

        This is the usual heuristic without the exact answer: add gradients until the sum is right to a hundredth. The
        true error shows that a right sum says little about its terms.
        """
        counts = range(first, last + 1)
        whole = self.exact.sum()
        sums = torch.sparse.mm(self.rule_weights(rule, counts), self.rates.sum(1, keepdim=True))[:, 0]
        complete = torch.nonzero((sums - whole).abs() < sum_tolerance * whole.abs())[:, 0]
        if not len(complete):
            return None
        n = counts[int(complete[0])]
        return n, float(self.rule_errors(rule, [n])[0])

    def unflatten(self, flat: Tensor) -> Tensor | tuple[Tensor, ...]:  # (features,) -> (*in) each
        """Return attributions in the shapes of the inputs."""
        shapes = [t.shape[1:] for t in self.line.lines.starts]
        parts = [p.view(s) for p, s in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)]
        return tuple(parts) if self.line.several_inputs else parts[0]


def mean_relative_error(estimate: Tensor, exact: Tensor) -> Tensor:  # (..., features), (features,) -> (...,)
    """Return the mean over inputs of |estimate - exact| / |exact + 1e-11|."""
    return ((estimate - exact).abs() / (exact + RELATIVE_ERROR_OFFSET).abs()).mean(-1)


def _check_line(line: Restriction, target: int, output: int) -> tuple[Network, int]:
    """Check the arguments; return the network and the node of its output."""
    network = line.network
    if network is None or not line.complete or line.is_minimal or not len(line):
        raise ArgumentError(
            "The line needs its network and all of its pieces.",
            where="argument line",
            hint="Use the result of restrict, without a limit and before minimal().",
        )
    if not 0 <= output < len(network.outputs):
        raise ArgumentError(f"There is no output {output}.", where="argument output", hint="Count from 0.")
    node = network.outputs[output]
    size = torch.Size(network.nodes[node].shape).numel()
    if isinstance(target, bool) or not isinstance(target, int) or not 0 <= target < size:
        raise ArgumentError(
            f"The output has {size} elements; {target!r} is not one of them.",
            where="argument target",
            hint=f"Give a whole number from 0 to {size - 1}.",
        )
    return network, node


def check_rules(rules: Sequence[str], counts: Sequence[int]) -> None:
    """Check names of rules and numbers of gradients.

    Raises ArgumentError.
    """
    for rule in rules:
        if rule not in RULE_NAMES:
            raise ArgumentError(
                f"There is no rule {rule!r}.", where="argument rule", hint=f"Choose from {', '.join(RULE_NAMES)}."
            )
    bad = [n for n in counts if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    least = MIN_GRADIENTS.get(rules[0], 1) if len(rules) == 1 and len(counts) == 1 else 1
    bad += [n for n in counts if not bad and n < least]
    if bad:
        raise ArgumentError(
            f"n must be a whole number of at least {least}, not {bad[0]!r}.",
            where="argument n",
            hint="It counts gradients, both ends included.",
        )
