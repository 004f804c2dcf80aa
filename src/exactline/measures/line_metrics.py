"""Metrics of a line: regions, variation and slopes of the outputs, the length of their curve, margins, and layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..decide.values import outputs_of_line, select_output
from ..errors import ArgumentError, LineError, MissingError, NumberError
from ..humanize import count_noun
from .margin_profile import MarginProfile, measure_margin
from .slopes import largest_slopes

if TYPE_CHECKING:
    from ..engines.layer_record import LayerTable
    from ..results.restriction import Restriction


@dataclass(frozen=True)
class LayerMetrics:
    """What the units of one layer do on a line; ``dead + always_on + switching`` is the number of units."""

    node: str  # the breaking node
    units: int
    crossings: int  # how often one of its units crosses a knot, or changes its leader, strictly inside the line
    dead: int  # units whose output is constant: they stay on a flat branch, such as a ReLU that is off
    always_on: int  # units that stay on one branch that is not flat

    @property
    def switching(self) -> int:
        """Units that change their branch."""
        return self.units - self.dead - self.always_on


@dataclass(frozen=True, eq=False)
class LineMetrics:
    """What a network does along a line, exactly; tensors have one number for each output.

    All of it is about the part of the line that was swept: `reached` is 1 unless a limit stopped the sweep.

    >>> import exactline as xl
    >>> print(xl.restrict(torch.nn.ReLU(), [-1.0, 1.0], [2.0, 5.0]).metrics())
    2 pieces on a length of 5, 0.4 for each unit of length
    total variation 2, 4; largest slope 3, 4; Lipschitz constant 0.6, 0.8; mean 0.6667, 3
    the curve of the outputs is 4.667 long; the smallest margin is 1 at alpha 0
    """

    pieces: int  # linear regions that the line passes, with repetitions
    reached: float  # the share of the line that was swept
    stopped: str  # the option that stopped the sweep early, or ""
    line_length: float  # Euclidean, in input units, of the swept part
    region_density: float  # pieces for each unit of length
    total_variation: Tensor  # (outputs,) the sum of all rises and falls
    largest_slope: Tensor  # (outputs,) the largest absolute derivative by alpha
    lipschitz: Tensor  # (outputs,) the largest absolute derivative by length: the Lipschitz constant along the line
    mean: Tensor  # (outputs,) the mean over alpha
    length: float  # of the curve in output space
    margin: MarginProfile | None  # the lead of the largest output; None for one output, or for several output tensors
    layers: tuple[LayerMetrics, ...] | None  # None unless the line was restricted with record="layers"

    @property
    def complete(self) -> bool:
        """Whether the whole line was swept."""
        return not self.stopped

    def __str__(self) -> str:
        rows = [
            f"{count_noun(self.pieces, 'piece')} on a length of {self.line_length:.4g}, "
            f"{self.region_density:.4g} for each unit of length",
            f"total variation {_format(self.total_variation)}; largest slope {_format(self.largest_slope)}; "
            f"Lipschitz constant {_format(self.lipschitz)}; mean {_format(self.mean)}",
            f"the curve of the outputs is {self.length:.4g} long",
        ]
        if self.margin is not None:
            rows[-1] += f"; the smallest margin is {self.margin.smallest:.4g} at alpha {self.margin.argmin:.4g}"
        if not self.complete:
            rows[0] += f"; only the first {self.reached:.4g} of the line, where {self.stopped} stopped the sweep"
        for layer in self.layers or ():
            rows.append(
                f"{layer.node}: {count_noun(layer.crossings, 'crossing')}; of {count_noun(layer.units, 'unit')} "
                f"{layer.dead:,} dead, {layer.always_on:,} always on, {layer.switching:,} switching"
            )
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<LineMetrics: {count_noun(self.pieces, 'piece')}, {self.region_density:.4g} for each unit of length>"

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain lists and numbers, for JSON."""
        names = ("total_variation", "largest_slope", "lipschitz", "mean")
        layers = None if self.layers is None else [vars(la) | {"switching": la.switching} for la in self.layers]
        return {
            "pieces": self.pieces,
            "complete": self.complete,
            "reached": self.reached,
            "stopped": self.stopped,
            "line_length": self.line_length,
            "region_density": self.region_density,
            **{name: getattr(self, name).tolist() for name in names},
            "length": self.length,
            "margin": None if self.margin is None else self.margin.to_dict(),
            "layers": layers,
        }


def measure_line(line: Restriction, output: str | int | None = None) -> LineMetrics:
    """Measure a line; see `Restriction.metrics`."""
    length = _line_length(line)
    alphas, values = line.alphas.numpy(), _values(line, output)
    span, widths = float(alphas[-1] - alphas[0]), np.diff(alphas)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(values, axis=0)
        slopes = largest_slopes(line, output, values)
        mean = ((values[:-1] / 2 + values[1:] / 2) * (widths / span)[:, None]).sum(0)
        variation, curve_length = np.abs(steps).sum(0), _curve_length(steps)
    if not np.isfinite([*variation, *slopes, *mean, curve_length]).all():
        raise NumberError(
            "The outputs vary so much that a metric overflows.",
            where="line.metrics",
            hint="Give a shorter line, or scale the network.",
        )
    return LineMetrics(
        pieces=len(line),
        reached=span,
        stopped=line.stopped,
        line_length=length * span,
        region_density=len(line) / (length * span),
        total_variation=torch.from_numpy(variation),
        largest_slope=torch.from_numpy(slopes),
        lipschitz=torch.from_numpy(slopes / length),
        mean=torch.from_numpy(mean),
        length=curve_length,
        margin=_margin(line, output, values),
        layers=None if line.layers is None else _layer_metrics(line.layers, line.names),
    )


def _curve_length(steps: Floats) -> float:  # (pieces, outputs)
    """The sum of the Euclidean lengths of all steps, scaled so that squares neither overflow nor vanish."""
    scale = float(np.abs(steps).max(initial=0.0))
    return scale * float(np.sqrt(np.square(steps / scale).sum(1)).sum()) if scale > 0 else 0.0


def _line_length(line: Restriction) -> float:
    """The Euclidean length of the whole line; checks that there is something to measure."""
    if line.is_minimal:
        raise ArgumentError(
            "A piece of a minimal partition may hold several linear regions.",
            where="line.minimal().metrics",
            hint="Call metrics on the line itself, before minimal().",
        )
    if not len(line):
        raise MissingError(
            f"The sweep was stopped by {line.stopped} before its first piece.",
            where="line.metrics",
            hint="Allow more breaks or more time.",
        )
    steps = [(end - start).flatten() for start, end in zip(line.lines.starts, line.lines.ends, strict=True)]
    step = torch.cat(steps).to(torch.float64)
    largest = float(step.abs().max()) if len(step) else 0.0
    if largest == 0.0:
        raise LineError(
            "The line has length 0: it has no density and no slope.",
            where="line.metrics",
            hint="Give two different points.",
        )
    return largest * float(torch.linalg.vector_norm(step / largest))  # scaled: squares of huge steps overflow


def _values(line: Restriction, output: str | int | None) -> Floats:  # (breaks, outputs)
    """The values of one output tensor, or of all of them side by side, in float64."""
    count = 1 if line.stored_values is None and line.network is None else _count_outputs(line)
    if output is None:
        return np.concatenate([outputs_of_line(line, k, "line.metrics") for k in range(count)], 1)
    return outputs_of_line(line, select_output(count, output, line.network, "line.metrics"), "line.metrics")


def _count_outputs(line: Restriction) -> int:
    if line.stored_values is not None:
        return len(line.stored_values)
    return len(line.require_network("line.metrics").outputs)


def _margin(line: Restriction, output: str | int | None, values: Floats) -> MarginProfile | None:
    if values.shape[1] < 2 or (output is None and _count_outputs(line) > 1):
        return None
    return measure_margin(line, output, values)


def _layer_metrics(table: LayerTable, names: tuple[str, ...]) -> tuple[LayerMetrics, ...]:
    return tuple(LayerMetrics(**row) for row in table.to_rows(names))


def _format(numbers: Tensor, most: int = 8) -> str:
    shown = ", ".join(f"{number:.4g}" for number in numbers[:most].tolist())
    return f"{shown}, ... ({len(numbers)} outputs)" if len(numbers) > most else shown
