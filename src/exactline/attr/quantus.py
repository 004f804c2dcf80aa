"""Exact integrated gradients as Quantus asks for explanations: arrays in, arrays out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import ArgumentError, LineError
from ..fp_context import full_precision
from ..lines import as_lines, as_points, check_shapes
from ..network import as_network
from ..options import select_device
from .path_integrals import path_integral


def explain_func(
    model: Any,
    inputs: Any,  # (n, *in)
    targets: Any,  # (n,) or one for all: flat position in the output
    *,
    baseline: Any = None,  # a number, a point (*in) or one for each input (n, *in); None: 0
    baselines: Any = None,  # the same, as captum spells it
    tail: bool = True,  # of the probability where the model ends in a smooth tail
    device: torch.device | str | None = None,
    memory: int | None = None,  # bytes of the working set
    **unknown: Any,
) -> NDArray[np.float64]:  # (n, *in)
    """Exact integrated gradients, to be given to Quantus as ``explain_func=explain_func``.

    Options go into Quantus' ``explain_func_kwargs``. The attributions of a point add up to f(x) - f(baseline).

    >>> explain_func(torch.nn.ReLU(), np.array([[3.0, -1.0]]), [0], baseline=-1.0)
    array([[3., 0.]])

    Raises LineError for inputs or baselines that do not fit, ArgumentError for targets out of range or unknown options.
    """
    if unknown:
        raise ArgumentError(
            f"Unknown options: {', '.join(sorted(unknown))}.",
            where="explain_func",
            hint="There are baseline, baselines, tail, device and memory.",
        )
    if baseline is not None and baselines is not None:
        raise ArgumentError("baseline and baselines are the same.", where="explain_func", hint="Give one of them.")
    (x,) = as_points(_alone(inputs), "inputs")
    if x.dim() == 0:
        raise LineError("The inputs are a single number.", where="argument inputs", hint="Give a batch (n, *in).")
    given = baseline if baseline is not None else 0.0 if baselines is None else baselines
    (b,) = as_points(_alone(given), "baseline")
    lines = as_lines(_spread(b, x), x, ("baseline", "inputs"), many=True)
    place = select_device(model, device)
    with full_precision(kernels=False):
        network = as_network(model, [x.new_zeros(x.shape[1:])], device=place)
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    wanted = _targets(targets, len(x), network.nodes[network.outputs[0]].shape)
    found = path_integral(
        network, lines.to(network.device, network.dtype), wanted, tail=tail, memory=memory, doubts=False
    )
    return (found.gradients[0].cpu() * (x - lines.starts[0])).numpy()


def _alone(value: Any) -> Any:
    """A tuple of numbers is an array here, not several inputs."""
    return list(value) if isinstance(value, tuple) else value


def _spread(baseline: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A baseline for every input."""
    if baseline.dim() == 0 or baseline.shape == x.shape[1:] or baseline.shape == (1, *x.shape[1:]):
        return baseline.expand_as(x).clone()
    return baseline  # one for each, or refused with both shapes


def _targets(targets: Any, count: int, shape: tuple[int, ...]) -> torch.Tensor:  # (n,)
    """One position in the output for each input."""
    found = np.asarray(targets.detach().cpu() if isinstance(targets, torch.Tensor) else targets)
    if found.size == 1:
        found = np.full(count, found.reshape(()))
    size = int(np.prod(shape))
    whole = found.dtype.kind in "iu" or (found.dtype.kind == "f" and bool((found == np.floor(found)).all()))
    if found.size != count or not whole or (count and not (found.min() >= 0 and found.max() < size)):
        raise ArgumentError(
            f"targets must be {count:,} whole numbers from 0 to {size - 1}.",
            where="argument targets",
            hint="Give one class for each input, or one for all.",
        )
    return torch.from_numpy(found.reshape(-1).astype(np.int64))
