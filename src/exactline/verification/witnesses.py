"""Turns points and regions where a disjunct holds into counterexamples that the network itself confirms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..fp_context import full_precision
from .complete.constraints import FeasibleRegion
from .complete.groups import Group
from .flatten import FlatNetwork
from .property import Box, Property
from .replay import Replay, Witness, make_replay, replay_point

MAX_SAMPLED_BOXES = 64  # boxes that are sampled before they are decided
SAMPLES_PER_SIDE = {1: 65, 2: 17}  # by number of free inputs
MAX_REPLAYED_SAMPLES = 8  # of one box
MAX_REGIONS = 200  # regions without a confirmed counterexample, after which the search ends
MAX_REGIONS_WITH_NEIGHBOURS = 20  # for whose points the neighbouring floats are tried, too


class WitnessSearch:
    """Replays points of one property, and remembers where it is violated in rationals only."""

    def __init__(self, flat: FlatNetwork, model: Any, prop: Property) -> None:
        self.flat, self.model, self.prop = flat, model, prop
        self.regions = 0  # without a confirmed counterexample
        self.exact_point: tuple[Fraction, ...] | None = None  # (inputs,)
        self.disjunct: int | None = None

    @cached_property
    def replay(self) -> Replay:
        """The program that evaluates counterexamples, made for the first of them: most proofs need none."""
        return make_replay(self.model, self.flat)

    @property
    def replayed_by(self) -> str:
        """The name of that program; "" if there was nothing to replay."""
        return self.replay.name if "replay" in vars(self) else ""

    @property
    def is_exhausted(self) -> bool:
        """Whether so many regions were tried in vain that further ones are not worth it."""
        return self.regions >= MAX_REGIONS

    def look(self, groups: Sequence[Group], holds_at: Callable[[int, list[float]], bool]) -> Witness | None:
        """Sample a grid in a few boxes: where much of a box violates the property, that is the fastest answer.

        A counterexample must also hold in exact arithmetic, which ``holds_at`` tells for a disjunct and a point: with
        rounding, a constraint may hold that holds nowhere without.
        """
        box_of_disjunct = self.prop.table.box.tolist()
        if len({box_of_disjunct[i] for g in groups for i in g.disjuncts}) > MAX_SAMPLED_BOXES:
            return None
        for group in groups:
            by_box: dict[int, list[int]] = {}
            for index in group.disjuncts:
                by_box.setdefault(box_of_disjunct[index], []).append(index)
            for box, indices in by_box.items():
                points = _make_grid(self.prop.boxes[box], group.axes)
                with full_precision(), torch.no_grad():
                    values = self.flat(points.to(self.flat.network.device)).cpu()
                for index in indices:
                    witness = self._replay_samples(index, points, values)
                    if witness is not None and holds_at(index, witness.x.tolist()):
                        return witness
        return None

    def _replay_samples(self, index: int, points: Tensor, values: Tensor) -> Witness | None:
        disjunct = self.prop.disjuncts[index]
        margins = disjunct.margin(points, values)
        hits = torch.nonzero(disjunct.holds(points, values)).flatten()
        for k in hits[margins[hits].argsort()][:MAX_REPLAYED_SAMPLES].tolist():
            witness = self._replay_at(index, points[k])
            if witness is not None:
                return witness
        return None

    def replay_region(self, group: Group, region: FeasibleRegion) -> Witness | None:
        """Replay points of a region; None, and a note of its exact point, if none of them is a counterexample."""
        wide = self.regions < MAX_REGIONS_WITH_NEIGHBOURS
        tried: set[bytes] = set()
        for free in region.candidates:
            exact = _make_point(group, free)
            center = torch.tensor([float(v) for v in exact], dtype=torch.float64)
            for point in self._neighbours(center, group.axes) if wide else [center]:
                key = point.numpy().tobytes()
                if key in tried:
                    continue
                tried.add(key)
                witness = self._replay_at(region.disjunct, point)
                if witness is not None:
                    return witness
        self.regions += 1
        if self.exact_point is None:
            self.exact_point, self.disjunct = _make_point(group, region.point), region.disjunct
        return None

    def explain(self) -> str:
        """Say why a violation in rationals is not an answer."""
        point = ", ".join(f"X_{i} = {v}" for i, v in enumerate(self.exact_point or ()) if len(str(v)) < 40)
        at = f" at {point}" if point else ""
        return f"a disjunct holds in rationals{at}, but {self.replay.name} confirms it at no input that was tried"

    def _replay_at(self, index: int, point: Tensor) -> Witness | None:
        disjunct = self.prop.disjuncts[index]
        witness = replay_point(self.replay, index, disjunct, self.prop.boxes[disjunct.box], point)
        return witness if witness is not None and witness.is_strict else None

    def _neighbours(self, center: Tensor, axes: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield the float nearest to a point, in the precision of the replay, and the floats around it."""
        near = center.to(self.replay.dtype)
        yield near.to(torch.float64)
        infinity = torch.tensor(torch.inf, dtype=near.dtype)
        sides = [(near[a], torch.nextafter(near[a], -infinity), torch.nextafter(near[a], infinity)) for a in axes]
        for values in product(*sides):
            point = near.clone()
            for axis, value in zip(axes, values, strict=True):
                point[axis] = value
            yield point.to(torch.float64)


def _make_grid(box: Box, axes: tuple[int, ...]) -> Tensor:  # (n, inputs)
    """Make a grid of points in a box, with its corners."""
    count = SAMPLES_PER_SIDE[len(axes)]
    sides = [torch.linspace(0, 1, count, dtype=torch.float64) for _ in axes]
    shares = torch.cartesian_prod(*sides).reshape(-1, len(axes))
    points = box.lower.expand(len(shares), -1).clone()
    for k, axis in enumerate(axes):
        points[:, axis] = torch.lerp(box.lower[axis], box.upper[axis], shares[:, k])
    return points.clamp(box.lower, box.upper)


def _make_point(group: Group, free: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Complete the free inputs of a point by the fixed ones."""
    point = [Fraction(v) for v in np.asarray(group.point).tolist()]
    for axis, value in zip(group.axes, free, strict=True):
        point[axis] = value
    return tuple(point)
