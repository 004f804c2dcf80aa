"""Prove the breaks and the values of a float restriction in rational arithmetic, one piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..errors import ArgumentError
from ..network.graph import Network
from ..ops.base import Breaking, Input
from ..tolerances import CERTIFIED_ALPHA_TOLERANCE
from .affine import AffineInput, evaluate_affine
from .certificate import Certificate
from .forms import AffineForms, make_line_forms
from .integers import read_rationals
from .origins import OriginCheck
from .pattern_interval import IntervalEnd, PatternInterval, apply_breaking_node
from .points import Point, read_ends, to_network
from .values import ValueCheck, read_values

if TYPE_CHECKING:
    from torch.export import ExportedProgram

MIN_MARGIN = Fraction(1, 1 << 80)  # in alpha, added to each piece: a crossing at its very end must be inside
MAX_LIVE_FORMS = 1 << 21  # offsets and slopes of the widest tensor that are held at a time


def certify(
    model: nn.Module | ExportedProgram | Network,
    start: Point,  # (*in), or a tuple of them for several inputs
    end: Point,  # (*in), or a tuple of them
    alphas: Tensor | ArrayLike,  # (n,)
    pieces: int | Sequence[int] | None = None,
    tolerance: float = CERTIFIED_ALPHA_TOLERANCE,
    *,
    values: Tensor | ArrayLike | Sequence[Tensor] | None = None,  # (n, *out), or one for each output
    origins: Tensor | None = None,  # (n, 3)
    errors: Tensor | None = None,  # (n,)
    dtype: torch.dtype | None = None,
    rewrite: bool = True,
    until: str | None = None,
) -> Certificate:
    """Prove that the activation pattern is constant between breaks, that it changes at each of them, and the values.

    The activation pattern at the exact midpoint of a piece holds on some interval around it. The piece is proved if it
    lies inside that interval, up to the tolerance; a break is confirmed if the interval ends there. A value is proved
    if it differs from the exact one at its alpha by no more than rounding explains: a first-order bound on the rounding
    errors of all nodes, plus the slope times the distance of alpha from the exact break. An origin is proved if its
    unit changes its activation pattern at the break; how many units do is not checked. An estimated error is proved if
    no compared value at its break is further away from the exact one.

    Args:
        model: a module, an `ExportedProgram` or a `Network`.
        start: the point (*in) at alpha 0, or a tuple of points for several inputs.
        end: the point (*in) at alpha 1, or a tuple of points.
        alphas: the breaks (n,) to prove, rising from 0 to 1.
        pieces: the number of pieces to check, spread evenly, or a list of their indices; all by default.
        tolerance: the largest error of a break, in alpha.
        values: the values (n, *out) at the breaks, or one tensor for each output; None checks none. Those at the ends
            of checked pieces are compared, up to 256 elements of the outputs, spread evenly.
        origins: the node, the unit and the number of units (n, 3) of each break; None checks none. Those of breaks
            both of whose pieces are checked are compared.
        errors: the estimated errors (n,) of the values; None checks none.
        dtype: the precision in which the values were computed; their own by default.
        rewrite: fuse each ReLU with a neighbouring maximum.
        until: stop after this submodule, named as in ``named_modules()``.

    >>> relu = nn.ReLU()
    >>> certify(relu, [-1.0], [3.0], [0.0, 0.25, 1.0]).complete
    True
    >>> print(certify(relu, [-1.0], [3.0], [0.0, 1.0]))
    not proved: 0 of 1 pieces are right, 0 of 0 breaks are real; values were not checked
      piece 0 from 0.0 to 1.0: relu unit 0 crosses at 0.25
    >>> print(certify(relu, [-1.0], [3.0], [0.0, 0.25, 1.0], values=[[0.0], [0.5], [3.0]]))
    not proved: 2 of 2 pieces are right, 1 of 1 breaks are real, 2 of 3 values are right
      value at break 1, alpha 0.25: element 0 is off by 5.0e-01, rounding explains 6.2e-15

    Raises LineError for points that do not fit, ArgumentError for other arguments out of range, NumberError for weights
    that are not finite.
    """
    starts, ends = read_ends(start, end)
    network = to_network(model, starts, rewrite=rewrite, until=until)
    breaks = _read_breaks(alphas)
    exact_tolerance = _read_tolerance(tolerance)
    indices = _select_pieces(pieces, len(breaks) - 1)
    margin = 2 * exact_tolerance + MIN_MARGIN
    intervals = [PatternInterval.from_piece(breaks[k], breaks[k + 1], margin) for k in indices]
    line_ends = zip(network.inputs, starts, ends, strict=True)
    line = {i: make_line_forms(read_rationals(a), read_rationals(b)) for i, a, b in line_ends}
    widest = max(torch.Size(node.shape).numel() for node in network.nodes)
    step = max(1, MAX_LIVE_FORMS // max(2 * widest, 1))
    check = None
    if values is not None:
        both = [(a.to("cpu", torch.float64), b.to("cpu", torch.float64)) for a, b in zip(starts, ends, strict=True)]
        stored = read_values(values, network, len(breaks), dtype)
        check = ValueCheck(network.to("cpu", torch.float64), both, stored, breaks, errors)
    origin_check = None if origins is None else OriginCheck(network, origins, len(breaks))
    for first in range(0, len(intervals), step):
        chunk = intervals[first : first + step]
        outputs, patterns = _shrink_intervals(network, line, chunk)
        if check is not None:
            check.add_pieces(indices[first : first + step], chunk, outputs, patterns)
        if origin_check is not None:
            origin_check.add_pieces(indices[first : first + step], patterns)
    if check is not None:
        missing = check.missing
        for first in range(0, len(missing), step):
            some = missing[first : first + step]
            ends_of_points = [(breaks[index], IntervalEnd(breaks[index])) for index in some]
            outputs, _ = _shrink_intervals(network, line, [PatternInterval(a, end, end) for a, end in ends_of_points])
            for at, index in enumerate(some):
                check.add_break(index, outputs, at)
    proof = None if check is None else check.prove()
    origin_proof = None if origin_check is None else origin_check.prove()
    return Certificate.from_intervals(breaks, indices, intervals, exact_tolerance, proof, origin_proof)


def _shrink_intervals(
    network: Network, line: dict[int, AffineForms], intervals: list[PatternInterval]
) -> tuple[list[AffineForms], dict[int, Tensor]]:
    """Shrink each interval, in place, to where the activation pattern of its midpoint holds in the whole network.

    Returns the outputs on the intervals, and the activation patterns, (intervals, ...) by node.
    """
    patterns: dict[int, Tensor] = {}
    only_piece = np.zeros(len(intervals), dtype=np.int64)
    node_forms = {i: forms.select_pieces(only_piece) for i, forms in line.items()}
    last = network.last_use(network.outputs)
    for i, node in enumerate(network.nodes):
        if i not in last or isinstance(node.op, Input):
            continue
        if isinstance(node.op, Breaking):
            source = node.inputs[0]
            found = apply_breaking_node(node, network.nodes[source].shape, node_forms[source], intervals)
            node_forms[i], patterns[i] = found
        else:
            inputs = [AffineInput(node_forms[j], network.nodes[j].shape) for j in node.inputs]
            node_forms[i] = evaluate_affine(node, inputs)
        for j in set(node.inputs):
            if last[j] == i:
                del node_forms[j]
    return [node_forms[i] for i in network.outputs], patterns


def _read_breaks(alphas: Tensor | ArrayLike) -> list[Fraction]:
    """Convert breaks to fractions; raises ArgumentError unless they rise from 0 to 1."""
    array = alphas.detach().cpu().numpy() if isinstance(alphas, Tensor) else np.asarray(alphas, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise ArgumentError(
            "The breaks are not a vector of finite numbers.", where="argument alphas", hint="Give line.alphas."
        )
    breaks = [Fraction(a) for a in array.tolist()]
    if breaks[0] != 0 or breaks[-1] != 1 or any(a >= b for a, b in pairwise(breaks)):
        raise ArgumentError("The breaks do not rise from 0 to 1.", where="argument alphas", hint="Sort them.")
    return breaks


def _read_tolerance(tolerance: float) -> Fraction:
    if not 0 <= tolerance < 1:
        raise ArgumentError(f"The tolerance is {tolerance}.", where="argument tolerance", hint="Try 1e-12.")
    return Fraction(tolerance)


def _select_pieces(pieces: int | Sequence[int] | None, count: int) -> list[int]:
    """The indices of the pieces to check, in order."""
    if pieces is None:
        return list(range(count))
    if isinstance(pieces, int):
        if pieces < 1:
            raise ArgumentError(f"{pieces} pieces cannot be checked.", where="argument pieces", hint="Give 1 or more.")
        return sorted({round(i) for i in np.linspace(0, count - 1, min(pieces, count)).tolist()})
    if wrong := [k for k in pieces if not -count <= k < count]:
        raise ArgumentError(
            f"There is no piece {wrong[0]} among {count}.",
            where="argument pieces",
            hint=f"Count from 0 to {count - 1}.",
        )
    return sorted({range(count)[k] for k in pieces})
