"""All samples by operator, and the operators that no model can bring to their rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import affine, breaking, shapes
from .sample import SAMPLES, Sample, Shape

__all__ = ["SAMPLES", "UNREACHABLE", "Attempt", "Sample", "affine", "breaking", "shapes"]


@dataclass(frozen=True)
class Attempt:
    """Why an operator's rule is never obeyed, and a model that would obey it if any could."""

    reason: str
    shape: Shape
    function: Callable[[Tensor], Tensor]


UNREACHABLE: dict[str, Attempt] = {
    "dot": Attempt("sums over the batch, the only dim", (), lambda x: torch.dot(x, x.new_ones(x.shape[0]))),
    "vstack": Attempt("lays points on top of one another", (3,), lambda x: torch.vstack([x, x])),
    "take_along_dim": Attempt(
        "torch.export fixes the batch size",
        (4,),
        lambda x: torch.take_along_dim(x, torch.zeros_like(x, dtype=torch.int64), 1),
    ),
    "relu_": Attempt("capture takes programs with in-place operators apart", (3,), lambda x: x.clone().relu_()),
    "hardtanh_": Attempt(
        "capture takes programs with in-place operators apart",
        (3,),
        lambda x: torch.nn.functional.hardtanh_(x.clone()),
    ),
}
