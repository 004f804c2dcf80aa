"""Exact integrated gradients as an explanation function for Quantus: arrays in, arrays out."""

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
    inputs: Any,
    targets: Any,
    *,
    baseline: Any = None,
    baselines: Any = None,
    tail: bool = True,
    device: torch.device | str | None = None,
    memory: int | None = None,
    **unknown: Any,
) -> NDArray[np.float64]:  # (n, *in)
    """Compute exact integrated gradients; pass this function to Quantus as ``explain_func=explain_func``.

    Options go into Quantus' ``explain_func_kwargs``. The attributions of a point add up to f(x) - f(baseline).

    Args:
        model: A module in eval mode.
        inputs: A batch of points, (n, *in).
        targets: The flat position in the output for each point, (n,), or one for all.
        baseline: A number, a point (*in), or one for each input (n, *in); zero by default.
        baselines: captum's name for baseline.
        tail: Whether to explain the probability if the model ends in a smooth tail, rather than the logit.
        device: Where to compute; by default where the model's weights are.
        memory: Bytes of the working set; by default a share of the free memory.
        **unknown: Any other option is refused.

    >>> explain_func(torch.nn.ReLU(), np.array([[3.0, -1.0]]), [0], baseline=-1.0)
    array([[3., 0.]])

    Raises LineError for inputs or baselines that do not fit, ArgumentError for targets or options that do not exist.
    """
    if unknown:
        raise ArgumentError(
            f"Unknown options: {', '.join(sorted(unknown))}.",
            where="explain_func",
            hint="Options are baseline, baselines, tail, device and memory.",
        )
    if baseline is not None and baselines is not None:
        raise ArgumentError("baseline and baselines are both given.", where="explain_func", hint="Give one of them.")
    (x,) = as_points(_as_single(inputs), "inputs")
    if x.dim() == 0:
        raise LineError("The inputs are a single number.", where="argument inputs", hint="Give a batch (n, *in).")
    given = baseline if baseline is not None else 0.0 if baselines is None else baselines
    (b,) = as_points(_as_single(given), "baseline")
    lines = as_lines(_expand_baseline(b, x), x, ("baseline", "inputs"), many=True)
    with full_precision(kernels=False):
        network = as_network(model, [x.new_zeros(x.shape[1:])], device=select_device(model, device))
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    positions = _parse_targets(targets, len(x), network.nodes[network.outputs[0]].shape)
    integral = path_integral(
        network,
        lines.to(network.device, network.dtype),
        positions,
        tail=tail,
        memory=memory,
        with_subgradient_range=False,
    )
    return (integral.gradients[0].cpu() * (x - lines.starts[0])).numpy()


def _as_single(value: Any) -> Any:
    """Turn a tuple into a list, because here it is an array rather than several inputs."""
    return list(value) if isinstance(value, tuple) else value


def _expand_baseline(baseline: torch.Tensor, x: torch.Tensor) -> torch.Tensor:  # (n, *in)
    """Repeat a single baseline for every input."""
    if baseline.dim() == 0 or baseline.shape == x.shape[1:] or baseline.shape == (1, *x.shape[1:]):
        return baseline.expand_as(x).clone()
    return baseline  # one for each input; `as_lines` checks the shape


def _parse_targets(targets: Any, count: int, shape: tuple[int, ...]) -> torch.Tensor:  # (n,)
    """Check the targets: one flat position in the output for each input."""
    positions = np.asarray(targets.detach().cpu() if isinstance(targets, torch.Tensor) else targets)
    if positions.size == 1:
        positions = np.full(count, positions.reshape(()))
    size = int(np.prod(shape))
    is_whole = positions.dtype.kind in "iu" or (
        positions.dtype.kind == "f" and bool((positions == np.floor(positions)).all())
    )
    if positions.size != count or not is_whole or (count and not (positions.min() >= 0 and positions.max() < size)):
        raise ArgumentError(
            f"targets must be {count:,} whole numbers from 0 to {size - 1}.",
            where="argument targets",
            hint="Give one class for each input, or one for all.",
        )
    return torch.from_numpy(positions.reshape(-1).astype(np.int64))
