"""How a breaking node cuts polygons in rationals, one polygon after another and unit by unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from exactline.exact.forms import AffineForms
from exactline.exact.integers import IntegerArray, make_zeros
from exactline.exact.maximum import MaximumRule
from exactline.exact.order import OrderRule
from exactline.exact.pointwise import PointwiseRule

from . import polygons as pg
from .polygons import Line, Polygon

Cut = Callable[[Polygon], list[Polygon]]


class Walk:
    """The pieces so far, and the forms (c, a, b) of every live tensor on each."""

    def __init__(self, live: dict[int, AffineForms], polygons: list[Polygon]) -> None:
        self.live = live
        self.polygons = polygons
        self.loose = False

    def cut(self, cuts: list[list[Cut]]) -> None:
        """Cut every piece one way after another; all tensors keep their forms on the parts."""
        parts: list[Polygon] = []
        parents: list[int] = []
        for k, (shape, ways) in enumerate(zip(self.polygons, cuts, strict=True)):
            new = [shape]
            for way in ways:
                new = [part for old in new for part in way(old)]
            parts += new
            parents += [k] * len(new)
        self.polygons = parts
        self.live = {i: forms.select_pieces(np.array(parents)) for i, forms in self.live.items()}

    def at_corners(self, forms: AffineForms, k: int) -> IntegerArray:  # (elements, corners)
        """Values on a piece's corners, each column times something positive."""
        return forms.numerators[:, :, k] @ np.array(self.polygons[k], dtype=object).T


def pointwise(walk: Walk, rule: PointwiseRule, source: int) -> AffineForms:
    for knot in rule.knots:
        gaps = _above(walk.live[source], knot.numerators, knot.denominator)
        walk.cut([[_line_cut(line) for line in lines] for lines in _crossing(walk, gaps)])
    x = walk.live[source]
    segment = np.zeros((len(x), x.piece_count), dtype=np.int64)
    for knot in rule.knots:
        gaps = _above(x, knot.numerators, knot.denominator)
        for k in range(x.piece_count):
            segment[:, k] += (walk.at_corners(gaps, k) > 0).any(1)
    return rule.apply_affine(2 * segment, x)


def _above(x: AffineForms, top: IntegerArray, bottom: int) -> AffineForms:
    """How far each unit is above a knot."""
    gap = x.numerators * bottom
    gap[:, 0] -= (top * x.denominator)[:, None]
    return AffineForms(gap, x.denominator * bottom)


def _crossing(walk: Walk, gaps: AffineForms) -> list[list[Line]]:
    """For every piece, the functions that are strictly positive and strictly negative on it."""
    found: list[list[Line]] = []
    for k in range(gaps.piece_count):
        values = walk.at_corners(gaps, k)
        mixed = (values > 0).any(1) & (values < 0).any(1)
        found.append([_line(gaps.numerators[unit, :, k]) for unit in np.flatnonzero(mixed)])
    return found


def _line_cut(line: Line) -> Cut:
    return lambda shape: pg.split(shape, line)


def maximum(walk: Walk, rule: MaximumRule, source: int) -> AffineForms:
    def led(k: int) -> NDArray[np.bool_]:  # (windows, size)
        opened = walk.at_corners(rule.signed_lines(walk.live[source]), k)[rule.elements]
        return (opened == opened.max(1, keepdims=True)).all(2)

    up = rule.signed_lines(walk.live[source])
    cuts: list[list[Cut]] = []
    for k in range(up.piece_count):
        open_ = np.flatnonzero(~led(k).any(1))
        cuts.append(
            [_cells({_line(up.numerators[place, :, k]) for place in rule.elements[window]}) for window in open_]
        )
    walk.cut(cuts)
    up = rule.signed_lines(walk.live[source])
    top = make_zeros(len(rule.elements), 3, up.piece_count)
    for k in range(up.piece_count):
        leader = np.take_along_axis(rule.elements, led(k).argmax(1)[:, None], axis=1)[:, 0]
        top[:, :, k] = up.numerators[leader, :, k]
    return AffineForms(top * rule.op.sign, up.denominator)


def _cells(lines: set[Line]) -> Cut:
    """For each function the part where no other is larger."""

    def cut(shape: Polygon) -> list[Polygon]:
        cells: list[Polygon] = []
        for line in sorted(lines):
            cell: Polygon | None = shape
            for other in lines - {line}:
                if cell is not None:
                    _, cell = pg.halves(cell, _minus(line, other))
            if cell is not None:
                cells.append(cell)
        return cells

    return cut


def order(walk: Walk, rule: OrderRule, source: int) -> AffineForms:
    x = walk.live[source]
    windows = [
        [[_line(x.numerators[place, :, k]) for place in places] for places in rule.elements]
        for k in range(x.piece_count)
    ]
    walk.cut([[_ranked(walk, lines, rule.ranks) for lines in opened] for opened in windows])
    x = walk.live[source]
    top = make_zeros(len(rule.elements) * len(rule.ranks), 3, x.piece_count)
    for k, shape in enumerate(walk.polygons):
        opened = [[_line(x.numerators[place, :, k]) for place in places] for places in rule.elements]
        top[:, :, k] = [line for lines in opened for line in _standing(shape, lines, rule.ranks)]
    return AffineForms(top, x.denominator)


def _ranked(walk: Walk, lines: list[Line], ranks: Sequence[int]) -> Cut:
    """The regions in which the same functions stand at the returned ranks."""

    def cut(shape: Polygon) -> list[Polygon]:
        cells = [shape]
        for one, two in combinations(sorted(set(lines)), 2):
            cells = [part for cell in cells for part in pg.split(cell, _minus(one, two))]
        return _joined(walk, cells, [_standing(cell, lines, ranks) for cell in cells])

    return cut


def _standing(shape: Polygon, lines: list[Line], ranks: Sequence[int]) -> tuple[Line, ...]:
    """The function at each returned rank on a piece, read where no two different functions meet."""
    for one, two in combinations(sorted(set(lines)), 2):
        shape = pg.split(shape, _minus(one, two))[0]
    at = pg.corner(*pg.centre(shape))
    ordered = sorted(lines, key=lambda line: (-pg.side(line, at), line))
    return tuple(ordered[rank] for rank in ranks)


def _joined(walk: Walk, cells: list[Polygon], names: list[tuple[Line, ...]]) -> list[Polygon]:
    """Neighbours of one name as one polygon, unless that would not be convex."""
    group = list(range(len(cells)))
    for i, j in combinations(range(len(cells)), 2):
        if names[i] == names[j] and group[i] != group[j] and len(set(cells[i]) & set(cells[j])) > 1:
            group = [group[i] if g == group[j] else g for g in group]
    out: list[Polygon] = []
    for label in dict.fromkeys(group):
        members = [cell for cell, g in zip(cells, group, strict=True) if g == label]
        whole = members[0] if len(members) == 1 else pg.hull(at for cell in members for at in cell)
        if len(members) == 1 or pg.area(whole) == sum(map(pg.area, members)):
            out.append(whole)
        else:
            walk.loose = True
            out += members
    return out


def _line(row: IntegerArray) -> Line:  # (3,)
    c, a, b = (int(v) for v in row)
    return c, a, b


def _minus(one: Line, two: Line) -> Line:
    return one[0] - two[0], one[1] - two[1], one[2] - two[2]
