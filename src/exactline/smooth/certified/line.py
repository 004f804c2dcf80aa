"""A line as Taylor models: on discs around sub-intervals, and at points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...lines import Lines
from .error_bound import ErrorBound, outward
from .taylor_model import TaylorModel
from .tolerances import UNIT_ROUNDOFF


@dataclass(frozen=True)
class Line:
    """The points start + alpha (end - start) of one line, with one tensor for each input."""

    starts: tuple[Tensor, ...]  # (*in) each
    ends: tuple[Tensor, ...]  # (*in) each

    @staticmethod
    def of(lines: Lines) -> Line:
        """The first of some lines."""
        return Line(tuple(s[0] for s in lines.starts), tuple(e[0] for e in lines.ends))

    @property
    def changes(self) -> tuple[Tensor, ...]:
        """The difference of the ends, rounded."""
        return tuple(end - start for start, end in zip(self.starts, self.ends, strict=True))

    def on_discs(self, centers: Tensor, radii: Tensor, order: int) -> list[TaylorModel]:  # (discs,) twice
        """Models in t of the points at alpha = center + radius t."""
        models: list[TaylorModel] = []
        for start, change in zip(self.starts, self.changes, strict=True):
            shape = (-1, *[1] * start.dim())
            coefficients = torch.zeros(order, len(centers), *start.shape, dtype=torch.float64)
            coefficients[0] = start + centers.view(shape) * change
            if order > 1:
                coefficients[1] = radii.view(shape) * change
            # at most eight roundings: of alpha and of a quadrature node in it, of the change, of products and sums
            reach = start.abs() + (centers.abs() + radii + 1).view(shape) * (change.abs() + start.abs())
            models.append(TaylorModel(coefficients, ErrorBound(outward(8 * UNIT_ROUNDOFF * reach))))
        return models

    def at_points(self, alphas: Tensor) -> list[TaylorModel]:  # (points,)
        """Models of order 1 of the points at some alphas, which may be rounded themselves."""
        return self.on_discs(alphas, torch.zeros_like(alphas), 1)
