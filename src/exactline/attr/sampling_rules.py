"""What a sampling rule makes of integrated gradients, read off the pieces of a line, and how wrong it is.

A gradient is the same all along a piece, so a sample needs no gradient of its own: it is looked up in the piece that
holds it. The gradients of all pieces are computed once; every rule with every number of samples is then a weighting
of the pieces.
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
from .adaptive import adaptive
from .quadrature import LEAST, RULES

NAMES = (*RULES, "adaptive")
NUMBERS = 1 << 24  # attributions alive at a time
TINY = 1e-11  # keeps the relative error finite where nothing is attributed
SHOWN = 128  # errors are kept for all numbers of samples up to this one
RUN = 5  # an error has settled when so many numbers of samples in a row are below the tolerance


def integrate(
    line: Restriction, target: int, rule: str = "trapezoid", n: int = 50, *, output: int = 0
) -> Tensor | tuple[Tensor, ...]:
    """Integrated gradients as ``rule`` finds them with n gradients, of the flat coordinate ``target`` of the output.

    Rules: left, right, midpoint, trapezoid, simpson, gauss-legendre, adaptive. A sample on a break belongs to the
    piece that begins there, but for ``right``, where it ends a stretch and belongs to the piece that ends there.
    At alpha 1 it is the last piece. Off the breaks this is what autograd finds; on one, and along ties of a maximum,
    autograd has conventions of its own: at a black image every window of a max-pooling ties.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0], [3.0])  # the exact answer is 3
    >>> integrate(line, 0, "left", 4), integrate(line, 0, "left", 2)
    (tensor([3.], dtype=torch.float64), tensor([2.], dtype=torch.float64))

    Raises ArgumentError for a rule, a number or a target that makes no sense, and for a line that was not swept to
    its end.
    """
    checked([rule], [n])
    pieces = Pieces.of(line, target, output)
    return pieces.shaped(pieces.sampled(rule, [n])[0])


def error_curve(
    line: Restriction, target: int, rules: Sequence[str] = NAMES, n: Iterable[int] = range(1, 129), *, output: int = 0
) -> dict[str, Tensor]:
    """Mean relative error of each rule for every number of gradients in ``n``; NaN where a rule needs more.

    The error is the mean over inputs of |sampled - exact| / |exact + 1e-11|.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0], [3.0])
    >>> error_curve(line, 0, ["left"], [2, 4])["left"].tolist()
    [0.333..., 0.0]
    """
    counts = list(n)
    checked(rules, counts)
    pieces = Pieces.of(line, target, output)
    return {rule: pieces.errors(rule, counts) for rule in rules}


@dataclass(frozen=True)
class Pieces:
    """The gradients on all pieces of one line, times the step along the line."""

    line: Restriction
    steps: Tensor  # (pieces, features): what a piece adds to the attribution for each unit of alpha

    @staticmethod
    def of(line: Restriction, target: int, output: int = 0) -> Pieces:
        """All gradients of one coordinate; (pieces, features) numbers are kept."""
        network, place = _place(line, target, output)
        with full_precision():
            moves = [b - a for a, b in zip(line.lines.starts, line.lines.ends, strict=True)]
            given = piece_gradients(network, line.lines, line.alphas, place, target)
            return Pieces(line, torch.cat([(g * m).flatten(1) for g, m in zip(given, moves, strict=True)], 1))

    @cached_property
    def exact(self) -> Tensor:
        """(features,) the integral itself."""
        return torch.diff(self.line.alphas) @ self.steps

    def holding(self, alphas: Tensor, rule: str = "") -> Tensor:
        """Which piece holds each alpha; on a break, the one that begins there, for ``right`` the one that ends."""
        inner = self.line.alphas[1:-1]
        return torch.searchsorted(inner, alphas, right=rule != "right")

    def sampled(self, rule: str, counts: Sequence[int]) -> Tensor:
        """(counts, features) attributions with so many samples; NaN where the rule needs more."""
        if rule == "adaptive":
            found = [adaptive(lambda a: self.steps[self.holding(a)], n) if n >= LEAST[rule] else None for n in counts]
            none = torch.full_like(self.steps[0], torch.nan)
            return torch.stack([none if f is None else f for f in found])
        return torch.sparse.mm(self.weights(rule, counts), self.steps).index_fill_(
            0, torch.tensor([k for k, n in enumerate(counts) if n < LEAST.get(rule, 1)], dtype=torch.int64), torch.nan
        )

    def weights(self, rule: str, counts: Sequence[int]) -> Tensor:
        """(counts, pieces) how much of a rule's weight falls into each piece, sparse."""
        rows, columns, weights = [], [], []
        for row, n in enumerate(counts):
            if n >= LEAST.get(rule, 1):
                alphas, given = map(torch.from_numpy, RULES[rule](n))
                rows.append(torch.full((n,), row))
                columns.append(self.holding(alphas, rule))
                weights.append(given)
        size = (len(counts), len(self.line))
        if not rows:
            return torch.sparse_coo_tensor(
                torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0).double(), size, check_invariants=True
            )
        return torch.sparse_coo_tensor(
            torch.stack([torch.cat(rows), torch.cat(columns)]), torch.cat(weights), size, check_invariants=True
        ).coalesce()

    def errors(self, rule: str, counts: Sequence[int]) -> Tensor:
        """(counts,) mean relative errors."""
        some = max(1, NUMBERS // max(self.steps.shape[1], 1))
        parts = [counts[k : k + some] for k in range(0, len(counts), some)]
        found = [relative_error(self.sampled(rule, part), self.exact) for part in parts]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)

    def settled(self, rule: str, tolerance: float, most: int) -> tuple[int | None, Tensor]:
        """The fewest samples from which on five numbers of samples in a row have errors below the tolerance.

        With them the errors for 1, 2, ... 128 samples, which are found on the way.
        """
        shown = self.errors(rule, range(1, SHOWN + 1))
        errors, first, below = shown[:most], 1, 0
        while len(errors):
            for n, error in enumerate(errors.tolist(), first):
                below = below + 1 if error < tolerance else 0
                if below == RUN:
                    return n - RUN + 1, shown
            first += len(errors)
            errors = self.errors(rule, range(first, min(2 * first, most + 1)))
        return None, shown

    def completeness(
        self, within: float = 0.01, rule: str = "left", first: int = 20, last: int = 1000
    ) -> tuple[int, float] | None:
        """The first number of samples whose attributions add up to the change of the output, and its true error.

        This is what one does without the exact answer: take more samples until the sum is right to a hundredth. A
        right sum says little of its terms, as the true error shows.
        """
        counts = range(first, last + 1)
        whole = self.exact.sum()
        sums = torch.sparse.mm(self.weights(rule, counts), self.steps.sum(1, keepdim=True))[:, 0]
        good = torch.nonzero((sums - whole).abs() < within * whole.abs())[:, 0]
        if not len(good):
            return None
        n = counts[int(good[0])]
        return n, float(self.errors(rule, [n])[0])

    def shaped(self, flat: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Attributions in the shapes of the inputs."""
        shapes = [t.shape[1:] for t in self.line.lines.starts]
        parts = [p.view(s) for p, s in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)]
        return tuple(parts) if self.line.several_inputs else parts[0]


def relative_error(
    found: Tensor,  # (..., features)
    exact: Tensor,  # (features,)
) -> Tensor:
    """Mean over inputs of |found - exact| / |exact + 1e-11|."""
    return ((found - exact).abs() / (exact + TINY).abs()).mean(-1)


def _place(line: Restriction, target: int, output: int) -> tuple[Network, int]:
    """The network and the node of its output, for arguments that make sense."""
    network = line.network
    if network is None or not line.complete or line.is_minimal or not len(line):
        raise ArgumentError(
            "The line needs its network and all of its pieces.",
            where="argument line",
            hint="Use what restrict returns, without a limit and before minimal().",
        )
    if not 0 <= output < len(network.outputs):
        raise ArgumentError(f"There is no output {output}.", where="argument output", hint="Count from 0.")
    place = network.outputs[output]
    size = torch.Size(network.nodes[place].shape).numel()
    if isinstance(target, bool) or not isinstance(target, int) or not 0 <= target < size:
        raise ArgumentError(
            f"The output has {size} coordinates; {target!r} is not one of them.",
            where="argument target",
            hint=f"Give a whole number from 0 to {size - 1}.",
        )
    return network, place


def checked(rules: Sequence[str], counts: Sequence[int]) -> None:
    for rule in rules:
        if rule not in NAMES:
            raise ArgumentError(
                f"There is no rule {rule!r}.", where="argument rule", hint=f"Choose from {', '.join(NAMES)}."
            )
    bad = [n for n in counts if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    least = LEAST.get(rules[0], 1) if len(rules) == 1 and len(counts) == 1 else 1
    bad += [n for n in counts if not bad and n < least]
    if bad:
        raise ArgumentError(
            f"n must be a whole number of at least {least}, not {bad[0]!r}.",
            where="argument n",
            hint="It counts gradients, both ends included.",
        )
