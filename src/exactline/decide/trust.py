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
from numpy.typing import NDArray

from ..line import Lines
from ..network.graph import Network
from ..sweep.noise import LOOK, SAFETY
from ..sweep.plan import plan
from ..sweep.precise import precise
from ..sweep.walk import PROBES, Walk

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAMPLES = 32  # points that tell how large errors are
WIDER = 64.0  # how much wider than their errors the first look is
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

    def probes(self, owner: Ints, alphas: Floats) -> Floats | None:  # (probes, points, outputs)
        """What each of some random roundings adds to the outputs at some points; None without a network."""
        if self.network is None:
            return None
        if not len(alphas):
            return np.zeros((PROBES, 0, prod(self.network.nodes[self.place].shape)))
        step = max(1, LOOK // ((PROBES + 1) * plan(self._network).bytes_live))
        parts = [slice(at, at + step) for at in range(0, len(alphas), step)]
        found = [self._walked(owner[some], alphas[some]) for some in parts]
        return np.concatenate(found, 1) * (SAFETY * self.slack)

    def differences(self, owner: Ints, alphas: Floats, first: Ints, second: Ints) -> Floats:
        """How far each difference of two outputs may be off, (points, pairs), as first and second are."""
        probes = self.probes(owner, alphas)
        if probes is None:
            return np.full(first.shape, 2 * SAFETY * self.slack * self.known)
        largest = np.zeros(first.shape)
        for probe in probes:
            both = np.take_along_axis(probe, first, 1) - np.take_along_axis(probe, second, 1)
            np.maximum(largest, np.abs(both), out=largest)
        return largest

    def functionals(self, owner: Ints, alphas: Floats, weights: Floats) -> Floats:
        """How far linear functionals (functionals, outputs) of the outputs may be off, (points, functionals)."""
        probes = self.probes(owner, alphas)
        if probes is None:
            each = np.abs(weights).sum(1) * (SAFETY * self.slack * self.known)
            return np.broadcast_to(each, (len(alphas), len(weights))).copy()
        return np.abs(probes @ weights.T).max(0, initial=0.0)

    def doubtful(self, largest: float, weight: float = 1.0) -> float:
        """Below this size, a difference of values (or a functional of such a weight) wants a closer look."""
        least = ROUNDINGS * float(torch.finfo(self.dtype).eps) * largest
        return max(WIDER * self.level * weight, least)

    @cached_property
    def level(self) -> float:
        """The largest error met at breaks spread over all lines."""
        if self.network is None:
            return SAFETY * self.slack * self.known
        rows = np.unique(np.linspace(0, len(self.alphas) - 1, min(SAMPLES, len(self.alphas))).astype(np.int64))
        probes = self.probes(self.owner[rows], self.alphas[rows])
        return 0.0 if probes is None else float(np.abs(probes).max(initial=0.0))

    @cached_property
    def _network(self) -> Network:
        if self.network is None:
            raise TypeError("there is no network to ask")
        return self.network if self.dtype == torch.float64 else self.network.to(dtype=self.dtype)

    @cached_property
    def _lines(self) -> Lines:
        return self.lines.to(torch.device("cpu"), self.dtype)

    def _walked(self, owner: Ints, alphas: Floats) -> Floats:
        with precise():
            walk = Walk(self._network, *self._lines.at(torch.from_numpy(owner), torch.from_numpy(alphas)))
            walk.to(self.place)
            probes = walk.probes[self.place]
            return probes.reshape(*probes.shape[:2], probes.shape[2:].numel()).to(torch.float64).numpy()
