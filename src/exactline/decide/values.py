"""The values of one output tensor at all breaks of one or many lines, with estimates of their errors."""

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
from ..network.outputs import describe_outputs, find_output
from ..results.evaluate import evaluate_in_batches
from ..tolerances import DECISION_OVERFLOW_GUARD, DECISION_OVERFLOW_SCALE, MINIMAL_ERROR_FACTOR
from .comparison import Comparison
from .errors import OutputErrors

if TYPE_CHECKING:
    from torch import Tensor

    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions


@dataclass(frozen=True, eq=False)
class OutputValues:
    """The values of one output tensor at the breaks of one or many lines, line after line."""

    values: Floats  # (breaks, outputs), scaled
    offsets: Ints  # (lines + 1,) the breaks of line i are offsets[i] to offsets[i + 1]
    errors: OutputErrors
    output: int  # index among the network's outputs

    def negate(self) -> OutputValues:
        """Return the negative values, whose maximum is the minimum of the originals."""
        scales = -self.errors.scale_of(np.arange(len(self.offsets) - 1))
        return replace(self, values=-self.values, errors=replace(self.errors, scales=scales))

    def compare(self, comparison: Comparison) -> OutputValues:
        """Return the values of the compared elements only."""
        network, node = self.errors.network, self.errors.output_node
        if network is not None:
            network, node = comparison.append_to(network, node)
        scales = self.errors.scale_of(self.errors.line_index)
        errors = replace(self.errors, network=network, output_node=node)
        return replace(self, values=comparison.select(self.values, scales), errors=errors)


def outputs_of_line(line: Restriction, output: int, where: str) -> Floats:  # (breaks, outputs)
    """Return the values of one output tensor, flattened; raises ArgumentError where there is none of that index."""
    outputs = _all_outputs(line, where)
    return _flatten(outputs[select_output(len(outputs), output, line.network, where)])


def values_of_line(line: Restriction, output: str | int | None, where: str) -> OutputValues:
    """Collect the values of one line, which may have been stopped early.

    Args:
        line: The restriction.
        output: Name or index of an output of the network; None where there is only one.
        where: The public call that error messages name.
    """
    line_index = torch.zeros(len(line.alphas), dtype=torch.int64)
    outputs = _all_outputs(line, where)
    selected = select_output(len(outputs), output, line.network, where)
    errors = OutputErrors(
        line.lines,
        line_index.numpy(),
        line.alphas.numpy(),
        line.network,
        output_node=-1 if line.network is None else line.network.outputs[selected],
        dtype=line.dtype,
        known_error=0.0 if line.network is not None else line.error,
        error_factor=MINIMAL_ERROR_FACTOR if line.is_minimal else 1.0,
    )
    return _scale_values(outputs[selected], np.array([0, len(line.alphas)]), errors, selected, where)


def values_of_lines(lines: Restrictions, output: str | int | None, where: str) -> OutputValues:
    """Collect the values of many lines; arguments as for `values_of_line`."""
    line_index = torch.repeat_interleave(torch.arange(len(lines)), lines.offsets[1:] - lines.offsets[:-1])
    outputs = lines.breaks.values
    if outputs is None:
        outputs = _evaluate_outputs(lines.network, lines.lines, line_index, lines.alphas)
    selected = select_output(len(outputs), output, lines.network, where)
    errors = OutputErrors(
        lines.lines,
        line_index.numpy(),
        lines.alphas.numpy(),
        lines.network,
        output_node=lines.network.outputs[selected],
        dtype=lines.dtype,
        known_error=0.0,
    )
    return _scale_values(outputs[selected], lines.offsets.numpy(), errors, selected, where)


def _all_outputs(line: Restriction, where: str) -> tuple[Tensor, ...]:
    if line.stored_values is not None:
        return line.stored_values
    line_index = torch.zeros(len(line.alphas), dtype=torch.int64)
    return _evaluate_outputs(line.require_network(where), line.lines, line_index, line.alphas)


def _evaluate_outputs(network: Network, lines: Lines, line_index: Tensor, alphas: Tensor) -> tuple[Tensor, ...]:
    with full_precision():
        return evaluate_in_batches(network, lines.at(line_index, alphas)[0])


def _flatten(values: Tensor) -> Floats:
    return values.detach().cpu().to(torch.float64).reshape(len(values), values.shape[1:].numel()).numpy()


def select_output(count: int, output: str | int | None, network: Network | None, where: str) -> int:
    """Index of one of ``count`` outputs, chosen by name or index; raises ArgumentError where there is none."""
    if output is None and count == 1:
        return 0
    names = f"{count} outputs" if network is None else describe_outputs(network.list_output_names())
    if output is None:
        raise ArgumentError(
            f"The network has {names}.",
            where=where,
            hint=f"Choose one with output=0 to output={count - 1}.",
        )
    if network is not None:
        return find_output(network, output)
    if isinstance(output, bool) or not isinstance(output, int) or not 0 <= output < count:  # pyright: ignore
        raise ArgumentError(
            f"There is no output {output!r}: the network has {names}.",
            where="argument output",
            hint=f"Give a number from 0 to {count - 1}.",
        )
    return output


def _scale_values(values: Tensor, offsets: Ints, errors: OutputErrors, output: int, where: str) -> OutputValues:
    flat = _flatten(values)
    if flat.size and not np.isfinite(flat).all():
        raise NumberError(
            "The outputs overflow on this line.",
            where=where,
            hint="Give a shorter line, or scale the network.",
        )
    scales = None
    if flat.size and np.abs(flat).max() > DECISION_OVERFLOW_GUARD:
        largest = np.zeros(len(offsets) - 1)
        np.maximum.at(largest, errors.line_index, np.abs(flat).max(1))
        scales = np.where(largest > DECISION_OVERFLOW_GUARD, DECISION_OVERFLOW_SCALE, 1.0)
        flat = flat * scales[errors.line_index][:, None]
    return OutputValues(flat, offsets, replace(errors, scales=scales), output)
