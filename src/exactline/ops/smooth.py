"""A smooth operator: it can be evaluated and differentiated, but has no pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Op


@dataclass(frozen=True, eq=False)
class Smooth(Op):
    """A function of single points, applied to every point of a batch.

    >>> Smooth("Mul", lambda a, b: (a * b,)).evaluate(torch.ones(2, 3), torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    name: str  # the operator in the file
    function: Callable[..., tuple[Tensor, ...]]  # of one tensor (*in) for each input, and of the constants
    output: int = 0  # which of the function's results
    constants: tuple[Tensor | None, ...] = ()  # follow the inputs

    @property
    def title(self) -> str:
        """The operator's name in messages and tables."""
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        """Apply the function to each point."""

        def apply(*points: Tensor) -> Tensor:
            return self.function(*points, *self.constants)[self.output]

        return torch.func.vmap(apply)(*xs)
