"""Mean gradients of softmax, log_softmax, sigmoid and tanh over logits that are affine along a piece.

Sigmoid and tanh have closed forms. The gradient of a softmax changes quickly only where the leading logit changes or a
challenger is close. These places are known, since the largest logit is the upper envelope of straight lines. Each
segment of the envelope is integrated from both of its ends towards its middle, with Gauss-Legendre quadrature on
subintervals whose lengths follow the rates of the logits that matter there. All positions are distances from the
nearest vertex of the envelope, so that the cost and the accuracy do not depend on how steep the logits are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import NumberError
from ...tolerances import (
    FLOAT64_EPS,
    MAX_EXPONENT,
    MAX_LOGIT_CHANGE,
    NEGLIGIBLE_LOGIT_GAP,
    TAIL_CHECK_ROUNDINGS,
    TAIL_CHECK_TOLERANCE,
)

QUADRATURE_NODES, QUADRATURE_WEIGHTS = (
    torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(20)
)  # on [-1, 1]; the weights sum to 2
MAX_QUADRATURE_ELEMENTS = 1 << 20  # probabilities at the nodes that are computed in one batch


def mean_sigmoid_slope(
    start: Tensor,  # (pieces,)
    stop: Tensor,  # (pieces,)
) -> Tensor:  # (pieces,)
    """Average the derivative of the sigmoid between two logits: the divided difference of the sigmoid.

    >>> ends = np.array([[-1e300, 0.0], [1e300, 0.0]])
    >>> mean_sigmoid_slope(*torch.from_numpy(ends)).tolist()
    [5e-301, 0.25]
    """
    return mean_tanh_slope(start / 2, stop / 2) / 4


def mean_tanh_slope(
    start: Tensor,  # (pieces,)
    stop: Tensor,  # (pieces,)
) -> Tensor:  # (pieces,)
    """Average the derivative of tanh between two arguments, to the last digits even where tanh rounds to 1.

    The divided difference is sinh(h) / (h cosh(start) cosh(stop)) with h = stop - start. Written with decaying
    exponentials only, it neither overflows nor cancels.

    >>> mean_tanh_slope(torch.tensor([0.0, 50.0]).double(), torch.tensor([0.0, 51.0]).double())
    tensor([1.0000e+00, 6.4332e-44], dtype=torch.float64)
    """
    # halves, because the difference of two finite numbers may overflow
    half_change = (stop / 2 - start / 2).abs()
    ratio = torch.where(half_change > 0, -torch.expm1(-4 * half_change) / (2 * half_change), 2.0)
    same_side = (start > 0) == (stop > 0)
    decay = torch.where(same_side, torch.exp(-2 * torch.minimum(start.abs(), stop.abs())), 1.0)
    return 2 * ratio * decay / ((1 + torch.exp(-2 * start.abs())) * (1 + torch.exp(-2 * stop.abs())))


def mean_softmax_gradient(
    start: Tensor,  # (pieces, classes) logits
    stop: Tensor,  # (pieces, classes)
    target: Tensor,  # (pieces,)
    logarithm: bool,
) -> Tensor:  # (pieces, classes)
    """Average the gradient of one probability, or of its logarithm, while the logits go from ``start`` to ``stop``.

    Args:
        start: The logits where the pieces begin.
        stop: The logits where the pieces end.
        target: The class of the probability.
        logarithm: Whether to take the gradient of the logarithm of the probability.

    >>> steep = torch.tensor([[-0.37e12, 0.0]]).double(), torch.tensor([[0.63e12, 0.0]]).double()
    >>> mean_softmax_gradient(*steep, torch.tensor([0]), False)
    tensor([[ 1.0000e-12, -1.0000e-12]], dtype=torch.float64)

    Raises NumberError for logits whose differences overflow, and where the integral disagrees with the change of the
    probability.
    """
    gradient = torch.zeros_like(start)
    step = max(1, MAX_QUADRATURE_ELEMENTS // (len(QUADRATURE_NODES) * max(1, start.shape[1])))
    for rows in torch.arange(len(start), device=start.device).split(step):
        ends = start[rows], stop[rows]
        shares = _integrate_shares(*ends, target[rows], logarithm)
        gradient[rows] = -shares
        gradient[rows, target[rows]] = shares.sum(1)
        _check_completeness(*ends, target[rows], shares, logarithm)
    return gradient


def _integrate_shares(
    start: Tensor,  # (pieces, classes)
    stop: Tensor,  # (pieces, classes)
    target: Tensor,  # (pieces,)
    logarithm: bool,
) -> Tensor:  # (pieces, classes)
    """Integrate p_j, times p of the target unless ``logarithm``, over each piece; 0 for the target itself."""
    change = stop - start
    if not bool(
        (change - change.amin(1, keepdim=True)).isfinite().all()
        and (start - start.amax(1, keepdim=True)).isfinite().all()
    ):
        raise NumberError(
            "The differences of the logits before a softmax overflow.",
            where="softmax at the end of the network",
            hint="Scale the weights of the last layer.",
        )
    total = torch.zeros_like(start)
    is_short = change.amax(1) - change.amin(1) <= MAX_LOGIT_CHANGE
    short, long = torch.nonzero(is_short)[:, 0], torch.nonzero(~is_short)[:, 0]
    if len(short):
        gap = start[short] - start[short].amax(1, keepdim=True)
        total[short] = _integrate_interval(gap, change[short], target[short], logarithm)
    if len(long):
        total[long] = _integrate_envelope(start[long], stop[long], target[long], logarithm)
    return total.scatter_(1, target[:, None], 0.0)


class EnvelopeSegment(NamedTuple):
    """For some pieces, a part on which one logit leads."""

    pieces: Tensor  # (n,)
    left: Tensor  # (n, classes) logits minus the largest one, where the part begins
    right: Tensor  # (n, classes) where it ends
    length: Tensor  # (n,) as a share of the piece

    def select(self, mask: Tensor) -> EnvelopeSegment:  # (n,)
        """Return the segment on some of its pieces."""
        return EnvelopeSegment(*(x[mask] for x in self))


def envelope_segments(
    start: Tensor,  # (pieces, classes)
    stop: Tensor,  # (pieces, classes)
) -> Iterator[EnvelopeSegment]:
    """Yield the segments of the upper envelope of straight lines, from left to right, for many pieces at a time.

    A challenger overtakes the leader before the end of the piece if it is larger there, so that only differences of
    logits decide. At a vertex the lines that meet there are exactly equal.

    >>> lines = torch.tensor([[0.0, -1.0]]).double(), torch.tensor([[0.0, 3.0]]).double()
    >>> [(float(s.length), s.right[0].tolist()) for s in envelope_segments(*lines)]
    [(0.25, [0.0, 0.0]), (0.75, [-3.0, 0.0])]
    """
    pieces = torch.arange(len(start), device=start.device)
    leader = torch.where(start == start.amax(1, keepdim=True), stop, -torch.inf).argmax(1, keepdim=True)
    left = start - start.gather(1, leader)
    done, rest = torch.zeros_like(start[:, 0]), torch.ones_like(start[:, 0])  # shares of the piece
    while len(pieces):
        at_end = stop - stop.gather(1, leader)
        meets = torch.where(at_end > 0, left / (left - at_end), torch.inf)  # as shares of the rest
        first = meets.amin(1, keepdim=True)
        is_last = first[:, 0] == torch.inf
        if bool(is_last.any()):
            yield EnvelopeSegment(pieces[is_last], left[is_last], at_end[is_last], rest[is_last])
            keep = ~is_last
            pieces, start, stop, leader, left = (x[keep] for x in (pieces, start, stop, leader, left))
            done, rest, at_end, meets, first = (x[keep] for x in (done, rest, at_end, meets, first))
            if not len(pieces):
                return
        is_tied = (meets == first) | ((left == 0) & (at_end == 0))
        next_leader = torch.where(meets == first, at_end, -torch.inf).argmax(1, keepdim=True)
        length = rest * first[:, 0]
        lead = at_end.gather(1, next_leader)
        done, rest = done + length, rest * (lead / (lead - left.gather(1, next_leader)))[:, 0]
        vertex = rest[:, None] * (start - start.gather(1, next_leader))
        vertex = (vertex + done[:, None] * (stop - stop.gather(1, next_leader))).clamp(max=0).masked_fill(is_tied, 0.0)
        yield EnvelopeSegment(pieces, left, vertex, length)
        leader, left = next_leader, vertex


def _integrate_envelope(
    start: Tensor,  # (pieces, classes)
    stop: Tensor,  # (pieces, classes)
    target: Tensor,  # (pieces,)
    logarithm: bool,
) -> Tensor:  # (pieces, classes)
    """Integrate over every segment of the upper envelope, from both of its ends towards its middle."""
    deficit = torch.minimum(*(_exponent_deficit(x, target, logarithm) for x in (start, stop)))
    for segment in envelope_segments(start, stop):
        here = _exponent_deficit(segment.right, target[segment.pieces], logarithm)
        deficit[segment.pieces] = torch.minimum(deficit[segment.pieces], here)
    # where even the largest share underflows to 0, no relative accuracy is needed
    deficit = torch.where(deficit > MAX_EXPONENT, 0.0, deficit)
    negligible_gap = NEGLIGIBLE_LOGIT_GAP + log(start.shape[1]) + deficit
    total = torch.zeros_like(start)
    waiting: list[EnvelopeSegment] = []
    for segment in envelope_segments(start, stop):
        own, gap = target[segment.pieces], negligible_gap[segment.pieces]
        sides = (_exponent_deficit(x, own, logarithm) for x in (segment.left, segment.right))
        waiting.append(segment.select(torch.minimum(*sides) <= gap))
        if sum(s.left.numel() for s in waiting) * 2 * len(QUADRATURE_NODES) > MAX_QUADRATURE_ELEMENTS:
            _add_segments(total, waiting, target, negligible_gap, logarithm)
            waiting = []
    _add_segments(total, waiting, target, negligible_gap, logarithm)
    return total


def _add_segments(
    total: Tensor,  # (pieces, classes)
    segments: list[EnvelopeSegment],
    target: Tensor,  # (pieces,)
    negligible_gap: Tensor,  # (pieces,)
    logarithm: bool,
) -> None:
    """Integrate segments of any pieces in one batch, and add the results to ``total``, always in the same order."""
    if not segments:
        return
    pieces, left, right, length = (torch.cat(columns) for columns in zip(*segments, strict=True))
    half = (right - left) / 2
    found = _integrate_from_vertex(
        torch.cat([left, right]),
        torch.cat([half, -half]),
        target[pieces].repeat(2),
        negligible_gap[pieces].repeat(2),
        logarithm,
    )
    found = (found[: len(pieces)] + found[len(pieces) :]) * (length[:, None] / 2)
    for part, segment in zip(found.split([len(s.pieces) for s in segments]), segments, strict=True):
        total[segment.pieces] += part


def _exponent_deficit(
    logits: Tensor,  # (pieces, classes)
    target: Tensor,  # (pieces,)
    logarithm: bool,
) -> Tensor:  # (pieces,)
    """Return d such that the largest share p_j p_target (or p_j), j not the target, is about exp(-d)."""
    own = logits.gather(1, target[:, None])[:, 0]
    rival = logits.scatter(1, target[:, None], -torch.inf).amax(1)
    return (own - rival).clamp(min=0) if logarithm else (own - rival).abs()


def _integrate_from_vertex(
    gap: Tensor,  # (n, classes) logits minus the largest one at the vertex
    change: Tensor,  # (n, classes) of the gaps on the way
    target: Tensor,  # (n,)
    negligible_gap: Tensor,  # (n,) logits that far below the largest one do not matter
    logarithm: bool,
) -> Tensor:  # (n, classes)
    """Integrate over gap + u change, u from 0 to 1, on subintervals that resolve every logit that matters.

    The exponential of a logit that decays or rises by ``r`` in all matters on a part of length
    ``negligible_gap / r``, and there it needs subintervals of length ``MAX_LOGIT_CHANGE / r``. Their number is
    therefore bounded for each logit, however steep.
    """
    total, position = torch.zeros_like(gap), torch.zeros_like(gap[:, 0])
    rows = torch.arange(len(gap), device=gap.device)
    while len(rows):
        slope, here = change[rows], gap[rows] + position[rows, None] * change[rows]
        short = MAX_LOGIT_CHANGE / slope.abs()
        until_near = (-negligible_gap[rows, None] - here) / slope
        rising = torch.where(slope > 0, torch.maximum(short, until_near), torch.inf)
        step = torch.where(here >= -negligible_gap[rows, None], short, rising).amin(1)
        rest = 1 - position[rows]
        step = torch.minimum(step, rest)
        total[rows] += step[:, None] * _integrate_interval(here, step[:, None] * slope, target[rows], logarithm)
        position[rows] += step
        rows = rows[step < rest]
    return total


def _integrate_interval(
    gap: Tensor,  # (n, classes)
    change: Tensor,  # (n, classes)
    target: Tensor,  # (n,)
    logarithm: bool,
) -> Tensor:  # (n, classes)
    """Average p_j, times p of the target unless ``logarithm``, over one interval by Gauss-Legendre quadrature."""
    nodes, weights = ((x / 2).to(gap) for x in (QUADRATURE_NODES + 1, QUADRATURE_WEIGHTS))
    shares = torch.softmax(gap[:, None] + nodes[:, None] * change[:, None], dim=2)  # (n, nodes, classes)
    if logarithm:
        return torch.einsum("q,nqc->nc", weights, shares)
    own = shares.gather(2, target[:, None, None].expand(-1, len(nodes), 1))[:, :, 0]
    return torch.einsum("nq,nqc->nc", weights * own, shares)


def _check_completeness(
    start: Tensor,  # (pieces, classes)
    stop: Tensor,  # (pieces, classes)
    target: Tensor,  # (pieces,)
    shares: Tensor,  # (pieces, classes)
    logarithm: bool,
) -> None:
    """Raise NumberError where the integral of the derivative is not the change of the probability."""
    change, index = stop - start, target[:, None]
    terms = shares * (change.gather(1, index) - change)
    before, after = (
        (torch.log_softmax(x, 1) if logarithm else torch.softmax(x, 1)).gather(1, index)[:, 0] for x in (start, stop)
    )
    size = terms.abs().sum(1) + after.abs() + before.abs()
    gaps = torch.maximum(start.amax(1) - start.amin(1), stop.amax(1) - stop.amin(1))
    allowed = TAIL_CHECK_TOLERANCE * size + TAIL_CHECK_ROUNDINGS * FLOAT64_EPS * gaps
    wrong = (terms.sum(1) - (after - before)).abs() > allowed
    if bool(wrong.any()):
        raise NumberError(
            f"The integral of a softmax is off by {float((terms.sum(1) - (after - before)).abs()[wrong].max()):.1e}.",
            where="softmax at the end of the network",
            hint="Attribute the logit instead, and report the network: the quadrature should not fail.",
        )
