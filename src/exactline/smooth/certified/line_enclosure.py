"""Functions of alpha that a tape computes: bounds on discs around sub-intervals, on intervals, and at points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.polynomial import polynomial
from torch import Tensor
from torch.fx import Node

from ...errors import NumberError
from .kink_rules import keeps_sign, sign_error
from .line import Line
from .tape import Observer, Tape, describe_node, operator_name
from .taylor_model import TaylorModel
from .tolerances import (
    ALPHA_GRID,
    CHECKED_POINTS,
    DISC_RATIO,
    KINK_MARGIN,
    MAX_KINK_SHARE,
    MAX_KINK_WIDTH,
    MAX_KINKS_PER_SPLIT,
    MAX_SPLIT_WIDTH,
    MIN_KINK_RADIUS,
    ORDER,
    REAL_ROOT_TOLERANCE,
    UNDERFLOW,
)

KINKED_OPERATORS = ("relu", "leaky_relu", "abs")


class LineEnclosure(ABC):
    """Results of a tape along a line, in one row."""

    def __init__(self, tape: Tape, line: Line) -> None:
        self.tape, self.line = tape, line
        self.has_kinks = any(operator_name(n) in KINKED_OPERATORS for n in tape.graph.graph.nodes if n.op != "output")

    @abstractmethod
    def evaluate(self, points: Sequence[TaylorModel], count: int, observe: Observer | None = None) -> TaylorModel:
        """The results as a model with units (results,), on ``count`` discs."""

    def at_points(self, alphas: Tensor) -> TaylorModel:  # (points,)
        """The results at points: values and bounds on their rounding errors."""
        return self.evaluate(self.line.at_points(alphas), len(alphas))

    def on_discs(self, centers: Tensor, half: Tensor, observe: Observer | None = None) -> Tensor:  # (discs, results)
        """The remainders on the discs around sub-intervals; infinite where a polynomial is not finite."""
        models = self.evaluate(self.line.on_discs(centers, half * DISC_RATIO, ORDER), len(centers), observe)
        return torch.where(models.size.isfinite(), models.radius, torch.inf)

    def on_interval(self, center: float, half: float) -> tuple[Tensor, Tensor]:  # (results,) twice
        """Numbers for the results on a real interval, and bounds on the distance of the results from them."""
        at = torch.tensor([center], dtype=torch.float64)
        points = [
            model.with_error((half * change.abs())[None])
            for model, change in zip(self.line.at_points(at), self.line.changes, strict=True)
        ]
        results = self.evaluate(points, 1)
        return results.coefficients[0, 0], results.radius[0]

    def check_finite(self) -> None:
        """Raise NumberError if a node overflows or is undefined at one of a few points of the line."""
        alphas = torch.linspace(0, 1, CHECKED_POINTS, dtype=torch.float64)

        def check(node: Node, _: object, value: object) -> None:
            if isinstance(value, TaylorModel) and not bool(value.coefficients.isfinite().all()):
                raise NumberError(
                    "A value on the line is NaN or infinite.",
                    where=describe_node(node),
                    hint="Give end points between which the model is defined and does not overflow.",
                )

        self.evaluate(self.line.at_points(alphas), len(alphas), check)

    def find_unbounded(self, alpha: float) -> str:
        """The first node whose bound is infinite even at a single point; empty if there is none."""
        names: list[str] = []

        def check(node: Node, _: object, value: object) -> None:
            if isinstance(value, TaylorModel) and not names and not bool(value.bound.isfinite().all()):
                names.append(describe_node(node))

        self.evaluate(self.line.at_points(torch.tensor([alpha], dtype=torch.float64)), 1, check)
        return names[0] if names else ""

    def find_kinks(self, left: float, right: float) -> list[tuple[float, float]]:
        """Brackets around the alphas between left and right where an input of a kinked operator changes its sign.

        The roots of the Taylor polynomials are bracketed so widely that the sign is certain outside. The result is not
        a proof: it only suggests where to divide the interval. It is empty if bisection is the better way.
        """
        center, half = (left + right) / 2, (right - left) / 2
        roots: list[tuple[float, float]] = []  # in t, with half widths of brackets

        def collect(node: Node, args: Sequence[object], _: object) -> None:
            if operator_name(node) in KINKED_OPERATORS and isinstance(args[0], TaylorModel):
                roots.extend(_find_roots(args[0]))

        at = torch.tensor([[center], [half]], dtype=torch.float64)
        self.on_discs(at[0], at[1], collect)
        scale = half * DISC_RATIO
        brackets = [
            (snap(center + scale * (t - width) - MIN_KINK_RADIUS), snap(center + scale * (t + width) + MIN_KINK_RADIUS))
            for t, width in sorted(roots)
        ]
        inside = [b for b in _merge(brackets) if left <= b[0] and b[1] <= right]
        limit = (
            max(MAX_KINK_WIDTH, MAX_KINK_SHARE * (right - left)) if right - left <= MAX_SPLIT_WIDTH else MAX_KINK_WIDTH
        )
        is_useful = 0 < len(inside) <= MAX_KINKS_PER_SPLIT and all(b[1] - b[0] <= limit for b in inside)
        return inside if is_useful else []


def _find_roots(x: TaylorModel) -> list[tuple[float, float]]:
    """Real roots of the polynomials whose sign is not proven on the sub-interval, and half widths of brackets."""
    ambiguous = (~keeps_sign(x) & x.radius.isfinite())[0].flatten().nonzero().flatten().tolist()
    coefficients, error = x.coefficients[:, 0].flatten(1), sign_error(x)[0].flatten()
    found: list[tuple[float, float]] = []
    for unit in ambiguous:
        p = np.trim_zeros(coefficients[:, unit].numpy(), "b")
        for root in polynomial.polyroots(p) if len(p) > 1 else ():
            t = float(np.real(root))
            if abs(np.imag(root)) < REAL_ROOT_TOLERANCE and abs(t) <= 1 / DISC_RATIO:
                slope = abs(float(polynomial.polyval(t, polynomial.polyder(p))))
                found.append((t, KINK_MARGIN * float(error[unit]) / max(slope, UNDERFLOW)))
    return found


def snap(alpha: float) -> float:
    """Round an alpha to the grid on which midpoints and widths are exact."""
    return round(alpha / ALPHA_GRID) * ALPHA_GRID


def _merge(brackets: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge brackets that overlap."""
    merged: list[tuple[float, float]] = []
    for left, right in sorted(brackets):
        if merged and left <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(right, merged[-1][1]))
        else:
            merged.append((left, right))
    return merged
