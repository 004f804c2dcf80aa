"""The oracle's answer: breaks, births and values of a network on a line, all as fractions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..network.graph import Network, Shape
from .forms import Forms
from .integers import ratio
from .rules import Pattern, Rule


@dataclass(frozen=True)
class Born:
    """Where a break comes from: the first node and its lowest unit, and how many units turn there in all.

    >>> import exactline as xl
    >>> xl.exact.restrict(torch.nn.ReLU(), [-1.0, -1.0], [2.0, 2.0]).born[1]
    Born(node='relu', unit=0, count=2)
    """

    node: str
    unit: int
    count: int


@dataclass(frozen=True, eq=False)
class ExactRestriction:
    """A network on a line in rationals; ``len`` is the number of pieces.

    Values are flat lists in the order of the output's elements; ``output`` chooses one of several.

    >>> import exactline as xl
    >>> line = xl.exact.restrict(torch.nn.ReLU(), [-1.0], [2.0])
    >>> line.alphas, line.value(Fraction(1, 2))
    ([Fraction(0, 1), Fraction(1, 3), Fraction(1, 1)], [Fraction(1, 2)])
    """

    network: Network
    alphas: list[Fraction]  # from 0 to 1
    born: list[Born | None]  # None at both ends
    _outputs: tuple[Forms, ...] = field(repr=False)
    _patterns: dict[int, tuple[Rule, Pattern]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.alphas) - 1

    def __repr__(self) -> str:
        return f"<ExactRestriction: {len(self)} pieces>"

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of one point's value, for every output."""
        return tuple(self.network.nodes[i].shape for i in self.network.outputs)

    def value(self, alpha: Fraction | float, output: int = 0) -> list[Fraction]:
        """The network's exact value at one alpha; a float is read as the rational it is."""
        if not 0 <= alpha <= 1:
            raise ArgumentError(f"alpha is {alpha}.", where="value", hint="Give a position from 0 to 1.")
        exact = Fraction(alpha)
        piece = min(bisect_right(self.alphas, exact) - 1, len(self) - 1)
        return self._outputs[output].values(piece, exact)

    @property
    def values(self) -> list[list[Fraction]]:
        """The first output's value at every break."""
        return [self.value(alpha) for alpha in self.alphas]

    def rounded(self, output: int = 0) -> Tensor:  # (n, *out)
        """The values at all breaks, each rounded once to float64."""
        flat = [[float(v) for v in self.value(alpha, output)] for alpha in self.alphas]
        return torch.tensor(flat, dtype=torch.float64).reshape(len(flat), *self.shapes[output])

    def form(self, piece: int, output: int = 0) -> list[tuple[Fraction, Fraction]]:
        """Each element of the output as (p, q): it is p + q alpha on that piece."""
        forms = self._outputs[output]
        return [(ratio(p, forms.bottom), ratio(q, forms.bottom)) for p, q in forms.top[:, :, piece].tolist()]

    def pattern(self, piece: int) -> dict[int, Tensor]:
        """The branch of every breaking node (by place) on a piece, as `Network.evaluate` follows it; (1, ...) each."""
        at = range(len(self))[piece]
        return {i: rule.branch(pattern[..., at : at + 1]) for i, (rule, pattern) in self._patterns.items()}
