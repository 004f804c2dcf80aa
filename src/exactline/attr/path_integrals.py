"""Exact path integrals of gradients along straight lines: the one function on which all attributions stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..engines.dense.cotangents import Output, Smoothed
from ..engines.dense.gradients import Backward, Seed, Watcher
from ..engines.dense.sweep import SweepLimits
from ..engines.patches.gradients import patch_integral
from ..engines.select import EngineChoice
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..options import free_memory

SHARE = 3  # values, gradients and patterns stand side by side


@dataclass(frozen=True)
class PathIntegral:
    """Gradients integrated along lines, and how sure one can be of them.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> lines = Lines((torch.tensor([[-1.0, 1.0]]).double(),), (torch.tensor([[3.0, 3.0]]).double(),))
    >>> path_integral(network, lines, torch.tensor([0])).gradients
    (tensor([[0.7500, 0.0000]], dtype=torch.float64),)
    """

    gradients: tuple[Tensor, ...]  # (lines, *in) each: the integral over alpha of dF/dx
    pieces: int  # of all lines together
    stuck: int  # pairs of a piece and a unit that is on a knot all along it, where its gradient is a convention
    swing: tuple[Tensor, ...] | None  # by how much the gradients change if each of those is taken on its other side


def path_integral(
    network: Network,
    lines: Lines,
    targets: Tensor,  # (lines,) flat position in the output
    *,
    output: int = 0,
    tail: bool = False,  # of what the smooth tail makes of the output
    watch: dict[int, Watcher] | None = None,
    rival: dict[int, Watcher] | None = None,  # who watches the second way back; by default the same
    memory: int | None = None,
    progress: Callable[[int, int], None] | None = None,  # lines done, pieces so far
    doubts: bool = True,  # whether to go back once more where a gradient is a convention
    engine: str = "auto",  # see `restrict`
) -> PathIntegral:
    """Integrals of the gradient of one output along many lines, exact but for rounding.

    The lines are on the network's device and in its precision.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> lines = Lines((torch.tensor([[-1.0, 1.0]]).double(),), (torch.tensor([[3.0, 3.0]]).double(),))
    >>> found = path_integral(network, lines, torch.tensor([0]))
    >>> found.gradients, found.pieces, found.stuck
    ((tensor([[0.7500, 0.0000]], dtype=torch.float64),), 2, 0)
    """
    kind = Smoothed if tail and network.tails[output] is not None else Output
    seed: Seed = kind(network, output, targets)
    memory = free_memory(network.device) if memory is None else memory
    limits = SweepLimits(sweep_plan(network).max_points(memory // SHARE))
    if not watch and kind is Output and EngineChoice(network, engine, limits, memory, False).uses_patches:
        with full_precision():
            found = patch_integral(network, lines, targets, output, limits, memory, progress)
        if found is not None:
            return PathIntegral(*found, 0, None)

    def go(other_side: bool, watched: dict[int, Watcher]) -> tuple[tuple[Tensor, ...], Backward]:
        way = Backward(network, seed, limits, watched, other_side)
        parts = [grads for _, grads in way.run(lines, None if other_side else progress)]
        shapes = [network.nodes[i].shape for i in network.inputs]
        empty = [torch.zeros(0, *s, dtype=network.dtype, device=network.device) for s in shapes]
        columns = zip(*parts, strict=True) if parts else [[e] for e in empty]
        return tuple(torch.cat(list(column)) for column in columns), way

    with full_precision():
        found, way = go(False, watch or {})
        swing = None
        if way.stuck and doubts:
            other, _ = go(True, (watch or {}) if rival is None else rival)
            swing = tuple((a - b).abs() for a, b in zip(found, other, strict=True))
    return PathIntegral(found, way.pieces, way.stuck, swing)
