"""The largest slope of every output along a line, also where pieces are so narrow that differences lose their digits.

On a piece the slope is the difference of the values divided by the width. Rounding of the values is divided by the
width too, so that narrow pieces get slopes that are nothing but noise. For those that could be the steepest, the affine
map of the piece is evaluated at both ends of the whole line instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..decide.values import select_output
from ..engines.activation_pattern import activation_patterns
from ..fp_context import full_precision
from ..tolerances import VALUE_ERROR_ROUNDINGS
from .refined_maximum import refined_maximum

if TYPE_CHECKING:
    from ..results.restriction import Restriction

MAX_BATCH_NUMBERS = 1 << 22  # numbers of the widest tensors of a batch of pieces


def largest_slopes(
    line: Restriction,
    output: str | int | None,
    values: Floats,  # (breaks, outputs)
) -> Floats:  # (outputs,)
    """The largest absolute derivative by alpha of each output."""
    widths = np.diff(line.alphas.numpy())
    slopes = np.abs(np.diff(values, axis=0)) / widths[:, None]
    if line.network is None or not values.size:
        return slopes.max(0)
    error = VALUE_ERROR_ROUNDINGS * float(torch.finfo(line.dtype).eps) * np.abs(values).max()
    return refined_maximum(slopes, error / widths, partial(_piece_slopes, line, output))


def _piece_slopes(line: Restriction, output: str | int | None, pieces: Ints) -> Floats:  # (pieces, outputs)
    """Absolute slopes of some pieces: the difference of their affine maps between both ends of the line."""
    network = line.require_network("line.metrics")
    outputs = network.outputs
    if output is not None:
        outputs = (outputs[select_output(len(outputs), output, network, "line.metrics")],)
    width = max(torch.Size(node.shape).numel() for node in network.nodes)
    step = max(1, MAX_BATCH_NUMBERS // (2 * max(width, 1)))
    batches: list[Floats] = []
    for at in range(0, len(pieces), step):
        some = torch.from_numpy(pieces[at : at + step])
        index = torch.zeros(len(some), dtype=torch.int64)
        with full_precision():
            patterns = activation_patterns(network, line.lines, index, line.alphas[some], line.alphas[some + 1])
            ends = [
                network.evaluate([t.expand(len(some), *t.shape[1:]) for t in side], outputs, patterns)
                for side in (line.lines.starts, line.lines.ends)
            ]
        columns = [(ends[1][i] - ends[0][i]).reshape(len(some), -1) for i in outputs]
        batches.append(torch.cat(columns, 1).abs().to(torch.float64).numpy())
    return np.concatenate(batches)
