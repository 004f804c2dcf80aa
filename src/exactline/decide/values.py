"""What is decided upon: the values of one output tensor at all breaks, and whom to ask how far they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..errors import ArgumentError, NumberError
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from ..results.check import evaluate_in_batches
from .errors import Trust

if TYPE_CHECKING:
    from torch import Tensor

    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

HUGE = 2.0**1000  # values beyond are scaled down, for their differences could overflow
DOWN = 2.0**-64
LOOSE = 4.0  # how much further the values of a minimal partition may be off


@dataclass(frozen=True, eq=False)
class Given:
    """Breaks of one or many lines, flat, and the values there."""

    values: Floats  # (breaks, outputs), scaled
    offsets: Ints  # (lines + 1,)
    trust: Trust
    output: int

    def turned(self) -> Given:
        """The same with the smallest output as the largest."""
        factors = -self.trust.scale(np.arange(len(self.offsets) - 1))
        return replace(self, values=-self.values, trust=replace(self.trust, factors=factors))


def outputs_of_line(line: Restriction, output: int, where: str) -> Floats:  # (breaks, outputs)
    """The values of one output tensor, flat."""
    return _flat(_every(line, where)[output])


def _every(line: Restriction, where: str) -> tuple[Tensor, ...]:
    if line.stored_values is not None:
        return line.stored_values
    owner = torch.zeros(len(line.alphas), dtype=torch.int64)
    return _evaluated(line.require_network(where), line.lines, owner, line.alphas)


def _flat(values: Tensor) -> Floats:
    return values.detach().cpu().to(torch.float64).reshape(len(values), values.shape[1:].numel()).numpy()


def of_line(line: Restriction, output: int | None, where: str) -> Given:
    """One restriction, complete or not."""
    owner = torch.zeros(len(line.alphas), dtype=torch.int64)
    every = _every(line, where)
    chosen = _chosen(len(every), output, line.network, where)
    offsets = np.array([0, len(line.alphas)])
    place = -1 if line.network is None else line.network.outputs[chosen]
    trust = Trust(
        line.lines,
        owner.numpy(),
        line.alphas.numpy(),
        line.network,
        place,
        line.dtype,
        0.0 if line.network is not None else line.error,
        LOOSE if line.is_minimal else 1.0,
    )
    return _given(every[chosen], offsets, trust, chosen, where)


def of_lines(lines: Restrictions, output: int | None, where: str) -> Given:
    """Many lines that were swept together."""
    owner = torch.repeat_interleave(torch.arange(len(lines)), lines.offsets[1:] - lines.offsets[:-1])
    every = lines.breaks.values
    if every is None:
        every = _evaluated(lines.network, lines.lines, owner, lines.alphas)
    chosen = _chosen(len(every), output, lines.network, where)
    place = lines.network.outputs[chosen]
    trust = Trust(lines.lines, owner.numpy(), lines.alphas.numpy(), lines.network, place, lines.dtype, 0.0)
    return _given(every[chosen], lines.offsets.numpy(), trust, chosen, where)


def _evaluated(network: Network, lines: Lines, owner: Tensor, alphas: Tensor) -> tuple[Tensor, ...]:
    """Values that were not kept."""
    with full_precision():
        return evaluate_in_batches(network, lines.at(owner, alphas)[0])


def _chosen(count: int, output: int | None, network: Network | None, where: str) -> int:
    if output is None and count == 1:
        return 0
    names = "" if network is None else ": " + ", ".join(network.nodes[i].name for i in network.outputs)
    if output is None:
        raise ArgumentError(
            f"The network has {count} outputs{names}.", where=where, hint=f"Say which: output=0 to output={count - 1}."
        )
    if isinstance(output, bool) or not isinstance(output, int) or not 0 <= output < count:  # pyright: ignore
        raise ArgumentError(
            f"There is no output {output!r}: the network has {count}{names}.",
            where="argument output",
            hint=f"Give a number from 0 to {count - 1}.",
        )
    return output


def _given(values: Tensor, offsets: Ints, trust: Trust, output: int, where: str) -> Given:
    heights = _flat(values)
    if heights.size and not np.isfinite(heights).all():
        raise NumberError(
            "Outputs are not finite: they overflow on this line.",
            where=where,
            hint="Give a shorter line, or scale the network.",
        )
    factors = None
    if heights.size and np.abs(heights).max() > HUGE:
        largest = np.zeros(len(offsets) - 1)
        np.maximum.at(largest, trust.owner, np.abs(heights).max(1))
        factors = np.where(largest > HUGE, DOWN, 1.0)
        heights = heights * factors[trust.owner][:, None]
    return Given(heights, offsets, replace(trust, factors=factors), output)
