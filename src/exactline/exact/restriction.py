"""The result of the rational oracle: the breaks of a network on a line, their origins and values, as fractions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..network.graph import Network, Shape
from .forms import AffineForms
from .integers import make_fraction
from .rules import ActivationPattern, ExactRule


@dataclass(frozen=True)
class ExactOrigin:
    """What gives rise to a break.

    >>> import exactline as xl
    >>> xl.exact.restrict(torch.nn.ReLU(), [-1.0, -1.0], [2.0, 2.0]).origins[1]
    ExactOrigin(node='relu', unit=0, count=2)
    """

    node: str  # the first node with a crossing at the break
    unit: int  # its lowest unit that crosses
    count: int  # crossings of all nodes at the break


@dataclass(frozen=True, eq=False)
class ExactRestriction:
    """A network on a line in rational arithmetic; ``len`` is the number of pieces.

    Values are flat lists in the order of the output's elements.

    >>> import exactline as xl
    >>> line = xl.exact.restrict(torch.nn.ReLU(), [-1.0], [2.0])
    >>> line.alphas, line.value(Fraction(1, 2))
    ([Fraction(0, 1), Fraction(1, 3), Fraction(1, 1)], [Fraction(1, 2)])
    """

    network: Network
    alphas: list[Fraction]  # 0, all breaks, 1
    origins: list[ExactOrigin | None]  # one for each alpha, None at both ends
    _outputs: tuple[AffineForms, ...] = field(repr=False)
    _patterns: dict[int, tuple[ExactRule, ActivationPattern]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.alphas) - 1

    def __repr__(self) -> str:
        return f"<ExactRestriction: {len(self)} pieces>"

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of every output for one point."""
        return tuple(self.network.nodes[i].shape for i in self.network.outputs)

    def value(self, alpha: Fraction | float, output: int = 0) -> list[Fraction]:
        """The exact value of the network at one position; a float counts as the rational that it is.

        Args:
            alpha: the position, from 0 to 1.
            output: which of several outputs.

        Raises ArgumentError for a position outside of the line.
        """
        if not 0 <= alpha <= 1:
            raise ArgumentError(f"alpha is {alpha}.", where="value", hint="Give a position from 0 to 1.")
        exact = Fraction(alpha)
        piece = min(bisect_right(self.alphas, exact) - 1, len(self) - 1)
        return self._outputs[output].values_at(piece, exact)

    @property
    def values(self) -> list[list[Fraction]]:
        """The value of the first output at every alpha."""
        return [self.value(alpha) for alpha in self.alphas]

    def round_values(self, output: int = 0) -> Tensor:  # (n, *out)
        """The values at all alphas, rounded to the nearest float64.

        Args:
            output: Which output, if the network has several.
        """
        rows = [[float(v) for v in self.value(alpha, output)] for alpha in self.alphas]
        return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), *self.shapes[output])

    def affine_form(self, piece: int, output: int = 0) -> list[tuple[Fraction, Fraction]]:
        """The offset and slope of each element of an output on a piece: it is offset + slope * alpha there.

        Args:
            piece: The index of the piece.
            output: Which output, if the network has several.
        """
        forms = self._outputs[output]
        denominator = forms.denominator
        lines = forms.numerators[:, :, piece].tolist()
        return [(make_fraction(offset, denominator), make_fraction(slope, denominator)) for offset, slope in lines]

    def pattern(self, piece: int) -> dict[int, Tensor]:
        """The activation pattern on a piece, (1, ...) by index of the breaking node, as `Network.evaluate` takes it.

        Args:
            piece: The index of the piece.
        """
        at = range(len(self))[piece]
        return {i: rule.activation_pattern(pattern[..., at : at + 1]) for i, (rule, pattern) in self._patterns.items()}
