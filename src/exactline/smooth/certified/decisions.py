"""Which output is largest along a line: certain labels, and brackets around the boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .curve import CertifiedCurve, CurvePiece, evaluate_piece
from .taylor_model import rounding_factor
from .tolerances import BRACKET_RESOLUTION, MIN_BRACKET_WIDTH, OUTWARD_FACTOR


@dataclass(frozen=True)
class LabelledInterval:
    """A closed interval of alphas and the outputs that can be largest in it."""

    left: float
    right: float
    labels: tuple[int, ...]  # one label if it is certain

    @property
    def is_certain(self) -> bool:
        """Whether a single output is proven to be the largest on the whole interval."""
        return len(self.labels) == 1


def certify_decisions(curve: CertifiedCurve) -> tuple[LabelledInterval, ...]:
    """Divide [0, 1] into intervals with a certain label and brackets in which the label may change.

    Every interval is bisected until one output is larger than all others by more than the error bounds, or until it is
    narrower than MIN_BRACKET_WIDTH. With d the difference of two interpolants, w half the width of an interval and m
    its midpoint, d >= d(m) - |d'(m)| w - B w^2 / 2 on it, where B bounds |d''| on the piece.

    Args:
        curve: The outputs along a line, at least two of them.

    >>> import torch
    >>> from exactline.smooth.certified.curve import certify_curve
    >>> curve = certify_curve(torch.nn.Tanh(), [0.0, 0.5], [1.0, 0.5])
    >>> [interval.labels for interval in certify_decisions(curve)]
    [(1,), (0, 1), (0,)]

    Raises ArgumentError for a single output.
    """
    if int(np.prod(curve.output_shape)) < 2:
        raise ArgumentError(
            "A single output has no decisions.", where="argument curve", hint="Give a model with several outputs."
        )
    return label_pieces(curve.pieces)


def label_pieces(pieces: Sequence[CurvePiece]) -> tuple[LabelledInterval, ...]:
    """Divide pieces with two outputs or more into intervals with a certain label and brackets between them."""
    leaves = [leaf for piece in pieces for leaf in _decide_piece(piece)]
    merged: list[LabelledInterval] = []
    for leaf in leaves:
        if (
            merged
            and merged[-1].is_certain == leaf.is_certain
            and (not leaf.is_certain or merged[-1].labels == leaf.labels)
        ):
            last = merged.pop()
            leaf = LabelledInterval(last.left, leaf.right, tuple(sorted({*last.labels, *leaf.labels})))
        merged.append(leaf)
    return tuple(merged)


def _decide_piece(piece: CurvePiece) -> list[LabelledInterval]:
    """Bisect one piece; the intervals in ascending order."""
    leaves: list[LabelledInterval] = []
    ends = np.array([[piece.left, piece.right]])  # (intervals, 2)
    while len(ends):
        can_lead, is_narrow = _find_candidates(piece, ends)
        is_leaf = (can_lead.sum(1) == 1) | is_narrow | (ends[:, 1] - ends[:, 0] < MIN_BRACKET_WIDTH)
        for (left, right), candidates in zip(ends[is_leaf], can_lead[is_leaf], strict=True):
            labels = tuple(int(label) for label in candidates.nonzero()[0])
            leaves.append(LabelledInterval(float(left), float(right), labels))
        ends = ends[~is_leaf]
        middle = ends.mean(1)
        ends = np.stack((ends[:, 0], middle, middle, ends[:, 1]), 1).reshape(-1, 2)
    return sorted(leaves, key=lambda leaf: leaf.left)


def _find_candidates(
    piece: CurvePiece,
    ends: np.ndarray,  # (intervals, 2)
) -> tuple[np.ndarray, np.ndarray]:  # (intervals, outputs), (intervals,)
    """Find the outputs that are not proven to be smaller than the one that leads at the midpoint of an interval.

    Also returns which intervals are so narrow that outputs change by less than their errors, so that bisection cannot
    decide anything.
    """
    middle, half = ends.mean(1), (ends[:, 1] - ends[:, 0]) / (piece.right - piece.left)  # half in the local variable
    values, slopes = evaluate_piece(piece, middle), evaluate_piece(piece, middle, 1)
    leader = values.argmax(1)[:, None]
    rows = np.arange(len(ends))[:, None]
    gaps = values[rows, leader] - values
    change = np.abs(slopes[rows, leader] - slopes) * half[:, None]
    curvature = _bound_curvature(piece)[leader[:, 0]] * half[:, None] ** 2 / 2
    errors = piece.error[leader] + piece.error + _bound_slope_rounding(piece)
    can_lead = ~(gaps - (change + curvature + errors) * OUTWARD_FACTOR > 0)
    can_lead[rows, leader] = True
    is_narrow = np.all(~can_lead | (change + curvature <= errors * BRACKET_RESOLUTION), axis=1)
    return can_lead, np.asarray(is_narrow)


def _bound_curvature(piece: CurvePiece) -> np.ndarray:  # (outputs, outputs)
    """Bounds on the second derivatives of all differences: that of T_k is at most k^2 (k^2 - 1) / 3 on [-1, 1]."""
    k = np.arange(len(piece.coefficients)) ** 2
    differences = np.abs(piece.coefficients[:, :, None] - piece.coefficients[:, None, :])
    return np.tensordot(k * (k - 1) / 3, differences, 1) * OUTWARD_FACTOR


def _bound_slope_rounding(piece: CurvePiece) -> float:
    """A bound on the rounding error of derivatives by the local variable: that of T_k is at most k^2."""
    k = np.arange(len(piece.coefficients)) ** 2
    sizes = np.abs(piece.coefficients).max(1)
    return float(4 * rounding_factor(8 * len(k)) * len(k) * (k @ sizes))
