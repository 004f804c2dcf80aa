"""Crossings merge where every merged unit is within its own error of its knot at the common alpha, and only there.

The exact function has all crossings that rational arithmetic can tell from each other. Dropping those that a line does
not have must move it by less than the error of a line that has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline import Restriction
from exactline.engines.dense.breaks import position_rounding
from exactline.exact import ExactRestriction
from exactline.lines import Lines
from exactline.network.graph import Network
from exactline.numerics.point_errors import estimate_errors
from exactline.ops.base import Breaking
from tests.numerics.compare import compare_at
from tests.numerics.near_ties import FAMILIES, make_near_ties
from tests.numerics.test_errors import CASES

QUICK = 12  # networks of every family in `make test`
# Clusters of ties whose merges move breaks of the next layer by as much as all their errors together.
KNOWN = {"convolutional": (26, 42)}
ENGINES = ("dense", "patches")
# Computed positions are off by up to a radius, and so is the common alpha from each of them.
APART_RADII, JOINED_RADII = 2.0, 0.25


def check(family: str, seed: int) -> None:
    """Compare the merges of both engines with the exact breaks of one network."""
    model, start, end = make_near_ties(family, seed)
    exact = xl.exact.restrict(model, start, end)
    for engine in ENGINES:
        line = xl.restrict(model, start, end, engine=engine)
        case = family, seed, engine
        nearest = _nearest_breaks(line, exact)
        assert len(line.alphas) <= len(exact.alphas), case
        assert compare_at(line, exact.value, exact.alphas).violation <= 1, case
        assert _largest_move(line, exact, nearest) <= 1, case
        if family != "pooled":  # the radius of a window depends on the elements that lead there
            assert not _find_wrong_merges(_crossings(model, line, exact), nearest), case


def _largest_move(line: Restriction, exact: ExactRestriction, nearest: list[int]) -> float:
    """The largest move of the exact function when it loses the breaks that a line does not have.

    It is a share of the error of a line with all of them: the largest at the exact breaks of one break of the line, or
    what is interpolated between those that stay, if that is more.
    """
    kept = torch.tensor(sorted({float(a) for a in exact.alphas}), dtype=torch.float64)
    values = torch.tensor([[float(v) for v in exact.value(a)] for a in kept.tolist()], dtype=torch.float64)
    errors = replace(line, alphas=kept, stored_values=(values,)).error_at([float(a) for a in exact.alphas]).tolist()
    allowed = [max(e for e, at in zip(errors, nearest, strict=True) if at == own) for own in nearest]
    stand_ins = sorted(_choose_stand_ins(line, exact, nearest))
    worst = 0.0
    for left, right in pairwise(stand_ins):
        a, b = exact.alphas[left], exact.alphas[right]
        for number in range(left + 1, right):
            share = (exact.alphas[number] - a) / (b - a)
            rows = zip(exact.value(a), exact.value(b), exact.value(exact.alphas[number]), strict=True)
            move = float(max(abs(p * (1 - share) + q * share - value) for p, q, value in rows))
            between = (1 - float(share)) * allowed[left] + float(share) * allowed[right]  # as errors are between breaks
            worst = max(worst, move / max(allowed[number], between))
    return worst


def _choose_stand_ins(line: Restriction, exact: ExactRestriction, nearest: list[int]) -> list[int]:
    """For every break of a line the nearest of the exact breaks that it stands for."""
    chosen = dict[int, tuple[Fraction, int]]()
    alphas = [Fraction(a) for a in line.alphas.tolist()]
    for number, (alpha, at) in enumerate(zip(exact.alphas, nearest, strict=True)):
        chosen[at] = min(chosen.get(at, (Fraction(2), -1)), (abs(alpha - alphas[at]), number))
    return [number for _, number in chosen.values()]


def _nearest_breaks(line: Restriction, exact: ExactRestriction) -> list[int]:
    """For every exact break the number of the nearest break of a line."""
    alphas = line.alphas.numpy()
    positions = np.array([float(a) for a in exact.alphas])
    right = np.searchsorted(alphas, positions).clip(1, len(alphas) - 1)
    return (right - (positions - alphas[right - 1] < alphas[right] - positions)).tolist()


@dataclass(frozen=True)
class Crossing:
    """An exact break where a single unit crosses."""

    number: int  # among the exact breaks
    alpha: Fraction
    radius: float  # the error of its position


def _crossings(model: nn.Sequential, line: Restriction, exact: ExactRestriction) -> list[Crossing]:
    """The exact breaks at which one unit crosses, with the errors of their positions."""
    network, lines = line.require_network("a test"), line.lines
    breaking = [i for i, node in enumerate(network.nodes) if isinstance(node.op, Breaking)]
    layers = [k for k, layer in enumerate(model) if isinstance(layer, (nn.ReLU, nn.LeakyReLU))]
    found = list[Crossing]()
    for node, layer in zip(breaking, layers, strict=True):
        before = xl.exact.restrict(model[:layer], lines.starts[0][0], lines.ends[0][0])
        for number, (alpha, origin) in enumerate(zip(exact.alphas, exact.origins, strict=True)):
            if origin is not None and origin.node == network.nodes[node].name and origin.count == 1:
                slope = abs(_slope(before, alpha, origin.unit))
                radius = _error(network, lines, node, float(alpha), origin.unit) / slope
                found.append(Crossing(number, alpha, radius + float(position_rounding(np.array(float(alpha))))))
    return sorted(found, key=lambda crossing: crossing.number)


def _slope(before: ExactRestriction, alpha: Fraction, unit: int) -> float:
    piece = max(k for k, a in enumerate(before.alphas[:-1]) if a <= alpha)
    return float(before.affine_form(piece)[unit][1])


def _error(network: Network, lines: Lines, node: int, alpha: float, unit: int) -> float:
    """The error of a unit of a breaking node: at the position of its crossing, or of the sums there from both ends."""
    alphas = torch.tensor([0.0, alpha, 1.0], dtype=torch.float64)
    source = network.nodes[node].inputs[0]
    start, inside, end = estimate_errors(network, source, *lines.at_alphas(alphas)).flatten(1)[:, unit].tolist()
    return max(inside, start * (1 - alpha) + end * alpha)


def _find_wrong_merges(crossings: list[Crossing], nearest: list[int]) -> list[tuple[int, int]]:
    """Neighbouring crossings that are far apart and share a break, or are alone, close together and do not."""
    wrong = list[tuple[int, int]]()
    for k, (a, b) in enumerate(pairwise(crossings)):
        if b.number != a.number + 1:
            continue
        gap, is_merged = float(b.alpha - a.alpha), nearest[a.number] == nearest[b.number]
        is_apart = gap > APART_RADII * (a.radius + b.radius)
        is_joined = gap <= JOINED_RADII * min(a.radius, b.radius) and all(
            abs(other.alpha - a.alpha) > 4 * (other.radius + a.radius + b.radius)
            for other in crossings[:k] + crossings[k + 2 :]
        )
        if (is_apart and is_merged) or (is_joined and not is_merged):
            wrong.append((a.number, b.number))
    return wrong


@pytest.mark.parametrize("family", FAMILIES)
def test_merges_move_the_function_by_less_than_its_error(family: str) -> None:
    for seed in (*range(QUICK), *KNOWN.get(family, ())):
        check(family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_merges(family: str) -> None:
    for seed in range(QUICK, QUICK + CASES):
        check(family, seed)
