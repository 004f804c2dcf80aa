"""Random small networks with properties around their true extrema: what the oracles say, and what verify says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, pairwise
from math import inf, nextafter, prod

import torch
from torch import Tensor

import exactline as xl
from exactline.network import Network, as_network
from exactline.verification.property import Box, Disjunct, Property
from tests.oracle.families import FAMILIES, pick, seeded, small_integers
from tests.oracle.plane import restrict_plane

Corners = list[tuple[Fraction, ...]]


@dataclass
class Tally:
    """How often each answer was given, and all wrong ones."""

    answers: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of a box: its corners, and the values of inputs and outputs there."""

    corners: Corners
    values: list[list[Fraction]]  # outputs, then inputs, at each corner


def draw_network(seed: int) -> tuple[str, Network, int, torch.Generator]:
    """Draw a network of some family; every other one has small integers as weights, and so is full of ties."""
    generator = torch.Generator().manual_seed(seed)
    name = list(FAMILIES)[seed % len(FAMILIES)]
    torch.manual_seed(seed)
    model, shape = FAMILIES[name](generator)
    has_ties = pick(generator, 0, 1) == 1
    model = small_integers(generator, model) if has_ties else seeded(model, generator)
    return f"{name} {seed}", as_network(model, [torch.zeros(shape)]), prod(shape), generator


def draw_box(inputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor, list[int]]:
    """Draw a box with one or two free inputs; its bounds are small binary fractions, so that ties are met exactly."""
    free = torch.randperm(inputs, generator=generator)[: pick(generator, 1, 2)].tolist()
    lower = torch.randint(-4, 5, (inputs,), generator=generator).double() / 2
    upper = lower.clone()
    for axis in free:
        upper[axis] += pick(generator, 1, 8) / 4
    return lower, upper, sorted(free)


def find_pieces(network: Network, lower: Tensor, upper: Tensor, free: list[int]) -> list[Piece]:
    """All pieces of a box, by the rational oracles."""
    shape = network.nodes[network.inputs[0]].shape
    if len(free) == 1:
        line = xl.exact.restrict(network, lower.view(shape), upper.view(shape))
        points = [
            tuple(
                Fraction(a) + t * (Fraction(b) - Fraction(a))
                for a, b in zip(lower.tolist(), upper.tolist(), strict=True)
            )
            for t in line.alphas
        ]
        return [
            Piece([(s,), (t,)], [line.value(s) + list(points[k]), line.value(t) + list(points[k + 1])])
            for k, (s, t) in enumerate(pairwise(line.alphas))
        ]
    one, two = lower.clone(), lower.clone()
    one[free[0]], two[free[1]] = upper[free[0]], upper[free[1]]
    plane = restrict_plane(network, torch.stack([v.view(shape) for v in (lower, one, upper, two)]))
    pieces = []
    for k in range(len(plane)):
        corners = plane.corners(k)
        ends = [[Fraction(v) for v in end.tolist()] for end in (lower, one, upper)]
        points = [[a + s * (b - a) + t * (c - a) for a, b, c in zip(*ends, strict=True)] for s, t in corners]
        pieces.append(Piece(list(corners), [v + p for v, p in zip(plane.values(k), points, strict=True)]))
    return pieces


def holds_somewhere(pieces: list[Piece], weights: Tensor, limits: list[float], strict: list[bool]) -> bool:
    """Whether all rows of weights, (rows, outputs + inputs), hold at some point of some piece."""
    exact = [[Fraction(w) for w in row] for row in weights.tolist()]
    for piece in pieces:
        rows = [
            [sum((w * v for w, v in zip(row, at, strict=True)), Fraction(0)) - Fraction(limit) for at in piece.values]
            for row, limit in zip(exact, limits, strict=True)
        ]
        points = [found for found in _vertices(piece.corners, rows) if all(v <= 0 for v in found)]
        if points and all(not s or any(p[r] < 0 for p in points) for r, s in enumerate(strict)):
            return True
    return False


def _vertices(corners: Corners, rows: list[list[Fraction]]) -> Iterator[list[Fraction]]:
    """The values of all rows at the corners, where rows meet edges, and where two rows meet."""
    count = len(corners)
    yield from (list(at) for at in zip(*rows, strict=True))
    for k in range(count):
        after = (k + 1) % count
        for row in rows:
            if (row[k] < 0) != (row[after] < 0) and row[k] != row[after]:
                share = row[k] / (row[k] - row[after])
                yield [r[k] + share * (r[after] - r[k]) for r in rows]
    for one, two in combinations(rows, 2):
        for a, b in combinations(range(1, count), 2):  # a fan of triangles from the first corner
            if b != a + 1 or count < 3:
                continue
            ones, twos = [one[a] - one[0], one[b] - one[0]], [two[a] - two[0], two[b] - two[0]]
            det = ones[0] * twos[1] - ones[1] * twos[0]
            if det:
                s = (-one[0] * twos[1] + two[0] * ones[1]) / det
                t = (-two[0] * ones[0] + one[0] * twos[0]) / det
                if s >= 0 and t >= 0 and s + t <= 1:
                    yield [r[0] + s * (r[a] - r[0]) + t * (r[b] - r[0]) for r in rows]


def weigh(weights: Tensor, values: list[Fraction]) -> Fraction:
    """The weighted sum of some values."""
    return sum((Fraction(w) * v for w, v in zip(weights.tolist(), values, strict=True)), Fraction(0))


def draw_questions(pieces: list[Piece], weights: Tensor) -> Iterator[tuple[Tensor, list[float], list[bool]]]:
    """Rows of weights, limits, and which of them are strict: at the true minimum, one float beside it, and near it."""
    near = float(min(weigh(weights[0], at) for piece in pieces for at in piece.values))
    other = float(weigh(weights[1], pieces[0].values[0]))
    for limit in (near, nextafter(near, -inf), nextafter(near, inf)):
        yield weights[:1], [limit], [False]
    yield weights[:1], [near], [True]
    yield weights[:1], [near + 0.5], [True]
    yield weights, [near + 0.25, other], [False, False]
    yield weights, [near, other], [True, False]


def ask(seed: int, tally: Tally) -> None:
    """Ask seven questions about one network, compare the answers with the oracles, and check the proofs."""
    name, network, inputs, generator = draw_network(seed)
    lower, upper, free = draw_box(inputs, generator)
    pieces = find_pieces(network, lower, upper, free)
    outputs = len(pieces[0].values[0]) - inputs
    weights = torch.zeros(2, outputs + inputs, dtype=torch.float64)
    weights[:, :outputs] = torch.randint(-2, 3, (2, outputs), generator=generator).double()
    if pick(generator, 0, 2) == 0:
        weights[:, outputs + free[0]] = torch.randint(-1, 2, (2,), generator=generator).double()
    for rows, limits, strict in draw_questions(pieces, weights):
        limit = torch.tensor(limits, dtype=torch.float64)
        disjunct = Disjunct(0, rows[:, :outputs], limit, torch.tensor(strict), rows[:, outputs:])
        prop = Property(inputs, outputs, (Box(lower, upper),), (disjunct,))
        truth = holds_somewhere(pieces, rows, limits, strict)
        found = xl.verify(network, prop, seconds=60)
        tally.answers[f"{found.result} where {'true' if truth else 'false'}"] += 1
        where = f"{name}, {len(free)} free, limits {limits}, strict {strict}: {found}"
        if found.result == ("unsat" if truth else "sat") or (found.result == "unknown" and not truth):
            tally.wrong.append(where)
        if found.result == "unknown" and found.exact_point is None:
            tally.wrong.append(f"no exact point: {where}")
        if found.proof is not None and not (check := xl.check_proof(network, prop, found.proof)):
            tally.wrong.append(f"{check}: {where}")
