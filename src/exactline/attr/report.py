"""The report on one attribution: its pieces, its error, and how much depends on the choice of subgradients."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..smooth.integrals import LineIntegrals
from .path_integrals import PathIntegral


@dataclass(frozen=True)
class AttributionReport:
    """Facts about one attribution: its pieces, and how much of it depends on the choice of subgradients.

    >>> from exactline.attr import IntegratedGradients
    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> _ = ig.attribute(torch.tensor([[3.0, 1.0]]), baselines=-1.0, target=0)
    >>> ig.report
    AttributionReport(pieces=3, ambiguous=0, subgradient_range=tensor([0.], dtype=torch.float64), status='exact')
    """

    pieces: int  # of all lines together
    ambiguous: int  # pairs of a piece and a unit that stays on a knot along it, where its gradient is a convention
    subgradient_range: Tensor  # (n,) how much attribution changes if each of them is taken on its other side
    # "estimated" for models that are not piecewise linear; with certified=True "certified", "certified up to rounding"
    # if only the error of the quadrature is proven, or "not certified"
    status: str = "exact"
    # (n,) estimated or proven L1 error of each example relative to the L1 norm of its attribution; None if exact
    error: Tensor | None = field(default=None, repr=False)
    gradients: int = field(default=0, repr=False)  # evaluations of the gradient, for all examples; 0 if exact


@dataclass
class ReportTotals:
    """Sums up the report over the groups of examples of one call."""

    subgradient_range: Tensor  # (n,)
    pieces: int = 0
    ambiguous: int = 0
    status: str = "exact"
    error: Tensor | None = None  # (n,)
    gradients: int = 0

    @staticmethod
    def for_examples(count: int) -> ReportTotals:
        """Start with ``count`` examples."""
        return ReportTotals(torch.zeros(count, dtype=torch.float64))

    def add(self, integral: PathIntegral, rows: Tensor, subgradient_range: Tensor) -> None:  # (rows,) twice
        """Add the integrals of some examples."""
        self.pieces += integral.pieces
        self.ambiguous += integral.ambiguous
        self.subgradient_range[rows] = subgradient_range

    def add_estimate(self, found: LineIntegrals, rows: Tensor, status: str = "estimated") -> None:  # (rows,)
        """Add integrals of some examples that were computed to a tolerance."""
        self.status = status
        self.pieces += found.panels
        self.gradients += int(found.gradients.sum())
        self.error = torch.zeros_like(self.subgradient_range) if self.error is None else self.error
        self.error[rows] = found.errors

    @property
    def report(self) -> AttributionReport:
        """The report on all examples."""
        return AttributionReport(
            self.pieces, self.ambiguous, self.subgradient_range, self.status, self.error, self.gradients
        )
