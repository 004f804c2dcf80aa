"""Points with a batch dimension of one in front: whether a model takes them with it or without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, CaptureError, NumberError, TrainingModeError, UnsupportedError
from ..fp_context import full_precision
from ..network import Network
from ..network.smooth_network import SmoothNetwork
from .model import SmoothModel, prepare_model


def drop_batch_dimension(
    model: Any,
    points: Sequence[Tensor],  # (*in) or (1, *in) each
    device: torch.device,
    output: str | int | None = None,
) -> tuple[SmoothModel, bool]:
    """Prepare a model at points that may have a batch dimension of one in front; says whether they do.

    They do if the model takes the points only without it, or if it passes from the input to the output unchanged.

    >>> drop_batch_dimension(torch.nn.GELU(), [torch.zeros(1, 3)], torch.device("cpu"))[1]
    True
    """
    prepared = _try_model(model, points, device, output)
    is_from_file = isinstance(model, (Network, SmoothNetwork))  # which says what shape it takes
    if not is_from_file and all(p.dim() > 1 and len(p) == 1 for p in points):
        inner = _try_model(model, [p[0] for p in points], device, output)
        if isinstance(inner, SmoothModel) and (isinstance(prepared, CaptureError) or _agree(prepared, inner, points)):
            return inner, True
    if isinstance(prepared, CaptureError):
        raise prepared
    return prepared, False


def _try_model(
    model: Any, points: Sequence[Tensor], device: torch.device, output: str | int | None
) -> SmoothModel | CaptureError:
    """Prepare a model and evaluate it once; returns the error if it does not take such points."""
    try:
        prepared = prepare_model(model, points, device, output)
        with full_precision():
            prepared.evaluate([torch.stack([p, p]).to(torch.float64) for p in points])
    except (TrainingModeError, UnsupportedError, NumberError, ArgumentError):
        raise
    except CaptureError as problem:
        return problem
    return prepared


def _agree(outer: SmoothModel, inner: SmoothModel, points: Sequence[Tensor]) -> bool:
    """Whether the outputs for points with a first dimension of one are those without it, with it in front."""
    with full_precision():
        values = outer.evaluate([p[None].to(torch.float64) for p in points])
        alone = inner.evaluate([p.to(torch.float64) for p in points])
    return all(v.shape[1:] == a.shape and torch.allclose(v[0], a) for v, a in zip(values, alone, strict=True))
