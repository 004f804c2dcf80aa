"""How far outputs, and differences of outputs, can be trusted at points of some lines.

Errors of two outputs are much alike, for they come the same way: so what counts is the error of their difference,
which the probes of a walk know. Such a walk costs as much as nine evaluations and is made only where a look is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..engines.dense.error_model import MAX_PROBE_BYTES, PROBE_SAFETY
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..numerics.roundoff_probes import PROBE_COUNT, RoundoffProbes

SAMPLES = 32  # points that tell how large errors are
FAR = 64  # lines whose ends are looked at
WIDER = 64.0  # how much wider than their errors the first look is
AGAIN = 4.0  # how much more than the distance between two evaluations is believed
ROUNDINGS = 4096.0  # the least width of the first look, in roundings of the largest value


@dataclass(frozen=True, eq=False)
class Trust:
    """Errors of one output tensor at points of some lines, found by probes; all are multiplied by SAFETY."""

    lines: Lines
    owner: Ints  # (breaks,) the line of each break
    alphas: Floats  # (breaks,)
    network: Network | None
    place: int  # of the output among the network's nodes
    dtype: torch.dtype  # in which the sweep was done
    known: float  # the error of all values, where there is no network to ask
    slack: float = 1.0  # values of a minimal partition are off by more
    factors: Floats | None = None  # (lines,) by which values were multiplied, -1 where the smallest decides; None: 1

    def scale(self, owner: Ints) -> Floats:
        """By how much the values of some lines were multiplied."""
        return np.ones(len(owner)) if self.factors is None else self.factors[owner]

    def differences(self, owner: Ints, alphas: Floats, values: Floats, first: Ints, second: Ints) -> Floats:
        """How far each difference of two outputs may be off, (points, pairs), as first and second are.

        The walk evaluates the outputs (points, outputs) once more, in another way: where it finds another difference,
        that is evidence too. Two maxima with a shared leader have the same error for the probes, but need not round
        alike where other elements tie with it.
        """
        looked = self._look(owner, alphas)
        if looked is None:
            return np.broadcast_to(
                2 * PROBE_SAFETY * self.slack * self.known * np.abs(self.scale(owner))[:, None], first.shape
            )
        again, probes = looked

        def gaps(of: Floats) -> Floats:
            return np.take_along_axis(of, first, 1) - np.take_along_axis(of, second, 1)

        largest = np.zeros(first.shape)
        for probe in probes:
            np.maximum(largest, np.abs(gaps(probe)), out=largest)
        return largest + AGAIN * np.abs(gaps(values - again))

    def functionals(self, owner: Ints, alphas: Floats, values: Floats, weights: Floats) -> Floats:
        """How far a linear functional of the outputs may be off at each point, (points,); each has its own weights."""
        looked = self._look(owner, alphas)
        if looked is None:
            return PROBE_SAFETY * self.slack * self.known * np.abs(self.scale(owner)) * np.abs(weights).sum(1)
        again, probes = looked
        found = np.abs(np.einsum("pno,no->pn", probes, weights)).max(0, initial=0.0)
        return found + AGAIN * np.abs(((values - again) * weights).sum(1))

    def doubtful(self, largest: float, weight: float = 1.0) -> float:
        """Below this size, a difference of values (or a functional of such a weight) wants a closer look."""
        least = ROUNDINGS * float(torch.finfo(self.dtype).eps) * largest
        return max(WIDER * self.level * weight, least)

    @cached_property
    def level(self) -> float:
        """The largest error met at breaks spread over all lines, and at the ends of those that go furthest."""
        if self.network is None or not len(self.alphas):
            return PROBE_SAFETY * self.slack * self.known
        spread = np.linspace(0, len(self.alphas) - 1, SAMPLES).astype(np.int64)
        first = np.searchsorted(self.owner, self._furthest)
        last = np.searchsorted(self.owner, self._furthest, side="right") - 1
        rows = np.unique(np.concatenate([spread, first, last]).clip(0, len(self.alphas) - 1))
        looked = self._look(self.owner[rows], self.alphas[rows])
        return 0.0 if looked is None else float(np.abs(looked[1]).max(initial=0.0))

    @property
    def _furthest(self) -> Ints:
        """Lines with the largest coordinates: rounding begins with these."""
        sides = [t.reshape(len(t), t.shape[1:].numel()) for side in (self.lines.starts, self.lines.ends) for t in side]
        size = torch.cat(sides, 1).abs().amax(1) if sum(t.shape[1] for t in sides) else torch.zeros(len(self.lines))
        return size.argsort(descending=True)[:FAR].numpy()

    @cached_property
    def _network(self) -> Network:
        if self.network is None:
            raise TypeError("there is no network to ask")
        return self.network if self.dtype == torch.float64 else self.network.to(dtype=self.dtype)

    @cached_property
    def _lines(self) -> Lines:
        return self.lines.to(torch.device("cpu"), self.dtype)

    def _look(self, owner: Ints, alphas: Floats) -> tuple[Floats, Floats] | None:
        """Outputs at some points (points, outputs), and what each of some random roundings adds (probes, ...)."""
        if self.network is None:
            return None
        if not len(alphas):
            outputs = prod(self.network.nodes[self.place].shape)
            return np.zeros((0, outputs)), np.zeros((PROBE_COUNT, 0, outputs))
        step = max(1, MAX_PROBE_BYTES // ((PROBE_COUNT + 1) * sweep_plan(self._network).bytes_live))
        parts = [slice(at, at + step) for at in range(0, len(alphas), step)]
        values, probes = zip(*(self._walked(owner[some], alphas[some]) for some in parts), strict=True)
        scale = self.scale(owner)[:, None]
        return np.concatenate(values) * scale, np.concatenate(probes, 1) * (PROBE_SAFETY * self.slack * scale)

    def _walked(self, owner: Ints, alphas: Floats) -> tuple[Floats, Floats]:
        with full_precision():
            walk = RoundoffProbes(self._network, *self._lines.at(torch.from_numpy(owner), torch.from_numpy(alphas)))
            walk.advance_to(self.place)
            values, probes = (t[self.place].to(torch.float64) for t in (walk.values, walk.probes))
            outputs = probes.shape[2:].numel()
            return values.reshape(len(values), outputs).numpy(), probes.reshape(*probes.shape[:2], outputs).numpy()
