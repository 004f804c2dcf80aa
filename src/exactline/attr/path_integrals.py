"""Exact path integrals of gradients along straight lines, on which all attributions are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..budget import Budget, enforce_budget
from ..engines.dense.cotangents import OutputCotangent, TailCotangent
from ..engines.dense.gradients import BackwardSweep, LayerHook
from ..engines.dense.sweep import SweepLimits
from ..engines.patches.gradients import patch_integral
from ..engines.select import SEGMENT_SHARE, EngineChoice
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..numerics.plan import sweep_plan
from ..options import free_memory

BACKWARD_MEMORY_DIVISOR = 2  # gradients and activation patterns take as much memory as values


@dataclass(frozen=True)
class PathIntegral:
    """Gradients integrated along lines, and how much they depend on the choice of subgradients.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> lines = Lines((torch.tensor([[-1.0, 1.0]]).double(),), (torch.tensor([[3.0, 3.0]]).double(),))
    >>> path_integral(network, lines, torch.tensor([0])).gradients
    (tensor([[0.7500, 0.0000]], dtype=torch.float64),)
    """

    gradients: tuple[Tensor, ...]  # (lines, *in) each: the integral of dF/dx over alpha
    pieces: int  # of all lines together
    ambiguous: int  # pairs of a piece and a unit that stays on a knot along it, where its gradient is a convention
    # (lines, *in) each: how much the gradients change if each of them is taken on its other side; None without any
    subgradient_range: tuple[Tensor, ...] | None


def path_integral(
    network: Network,
    lines: Lines,
    targets: Tensor,
    *,
    output: int = 0,
    tail: bool = False,
    hooks: dict[int, LayerHook] | None = None,
    other_side_hooks: dict[int, LayerHook] | None = None,
    memory: int | None = None,
    progress: Callable[[float, int], None] | None = None,
    with_subgradient_range: bool = True,
    ignores_fixed_inputs: bool = False,
    layers_only: bool = False,
    engine: str = "auto",
) -> PathIntegral:
    """Integrate the gradient of one output element along many lines, exactly up to rounding.

    Args:
        network: The captured network.
        lines: The lines, on the network's device and in its precision.
        targets: The flat position in the output for each line, (lines,).
        output: The index among the network's outputs.
        tail: Whether to integrate the gradient of the smooth tail's result instead of the output's.
        hooks: Functions called with the values and gradients of a node, by node.
        other_side_hooks: The hooks of the second backward sweep, which takes ambiguous units on their other side; by
            default ``hooks``.
        memory: Bytes of the working set; by default a share of the free memory.
        progress: Called with the number of lines done, fractions of a line included, and of pieces so far.
        with_subgradient_range: False skips the second backward sweep.
        ignores_fixed_inputs: Whether the gradients at inputs that do not move along their line may be any subgradients,
            as where they are multiplied by the change of the inputs.
        layers_only: Whether only what the hooks integrate is wanted; gradients at the inputs may then be incomplete.
        engine: "dense", "patches" or "auto"; see `restrict`.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> lines = Lines((torch.tensor([[-1.0, 1.0]]).double(),), (torch.tensor([[3.0, 3.0]]).double(),))
    >>> found = path_integral(network, lines, torch.tensor([0]))
    >>> found.gradients, found.pieces, found.ambiguous
    ((tensor([[0.7500, 0.0000]], dtype=torch.float64),), 2, 0)

    Raises NumberError if values overflow.
    """
    kind = TailCotangent if tail and network.tails[output] is not None else OutputCotangent
    cotangent = kind(network, output, targets)
    share = 1.0 if memory is None else SEGMENT_SHARE  # the adjoint sweep holds as many numbers as the segment
    memory = free_memory(network.device) if memory is None else memory
    limits = SweepLimits(sweep_plan(network).max_points(memory // BACKWARD_MEMORY_DIVISOR), memory=memory)
    if EngineChoice(network, engine, limits, memory, values=False, in_advance=True).uses_patches:
        with full_precision(), enforce_budget(Budget(memory=memory)):
            found = patch_integral(
                network,
                lines,
                cotangent,
                limits,
                int(share * memory),
                hooks or {},
                other_side_hooks=other_side_hooks,
                ignores_fixed_inputs=ignores_fixed_inputs,
                layers_only=layers_only,
                progress=progress,
            )
        if found is not None:
            sides = zip(found.gradients, found.other_gradients, strict=True)
            differences = tuple((a - b).abs() for a, b in sides) if found.ambiguous else None
            return PathIntegral(found.gradients, found.pieces, found.ambiguous, differences)

    def integrate(other_side: bool, hooks: dict[int, LayerHook]) -> tuple[tuple[Tensor, ...], BackwardSweep]:
        sweep = BackwardSweep(network, cotangent, limits, hooks, other_side)
        parts = [gradients for _, gradients in sweep.run(lines, None if other_side else progress)]
        shapes = [network.nodes[i].shape for i in network.inputs]
        empty = [torch.zeros(0, *s, dtype=network.dtype, device=network.device) for s in shapes]
        columns = zip(*parts, strict=True) if parts else [[e] for e in empty]
        return tuple(torch.cat(list(column)) for column in columns), sweep

    with full_precision(), enforce_budget(Budget(memory=memory)):
        gradients, sweep = integrate(False, hooks or {})
        subgradient_range = None
        if sweep.ambiguous and with_subgradient_range:
            other, _ = integrate(True, (hooks or {}) if other_side_hooks is None else other_side_hooks)
            subgradient_range = tuple((a - b).abs() for a, b in zip(gradients, other, strict=True))
    return PathIntegral(gradients, sweep.pieces, sweep.ambiguous, subgradient_range)
