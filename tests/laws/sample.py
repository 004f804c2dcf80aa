"""What a sample is: a small model that makes torch.export emit one operator, between two leaky layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]
Body = nn.Module | Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Sample:
    """One way to use one operator."""

    key: str  # in the registry
    number: int  # among the samples of that key
    body: nn.Module
    shape: Shape  # of an input point
    dyadic: bool = True  # all constants have few bits: ties come out as exact ties in float64
    autograd: bool = True  # torch's own gradient is that of the function
    apart: bool = False  # the program holds an in-place operator, so that capture takes it apart first
    fused: bool = False  # a ReLU and a maximum become one envelope
    tail: Callable[[Tensor], Tensor] | None = None  # a smooth operator at the end

    def __str__(self) -> str:
        return f"{self.key}-{self.number}"

    def model(self) -> Model:
        """The network of the sample, in eval mode and in the precision people use."""
        return Model(self).eval()


class Model(nn.Module):
    """A break before the operator, the operator, and a break after it."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.body, self.apart, self.tail = sample.body, sample.apart, sample.tail

    def forward(self, x: Tensor) -> Tensor:
        y = self.before_tail(x)
        return y if self.tail is None else self.tail(y)

    def before_tail(self, x: Tensor) -> Tensor:
        y = self.body(F.leaky_relu(x, 0.5)) - 0.5
        return F.leaky_relu(y, 0.25, inplace=True) if self.apart else F.leaky_relu(y, 0.25)


class Function(nn.Module):
    """A function of data and constants as a module."""

    def __init__(self, function: Callable[..., Tensor], constants: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.function, self.count = function, len(constants)
        for i, constant in enumerate(constants):
            self.register_buffer(f"c{i}", constant)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *(getattr(self, f"c{i}") for i in range(self.count)))


SAMPLES: dict[str, list[Sample]] = {}  # by operator; filled by the modules of the families


def add(key: str, shape: Shape, body: Body, *constants: Tensor, **flags: Any) -> None:
    """One more sample of an operator; a module gets weights that are small multiples of a half."""
    known = SAMPLES.setdefault(key, [])
    if isinstance(body, nn.Module):
        _half_weights(body, len(known))
    else:
        body = Function(body, constants)
    known.append(Sample(key, len(known), body, shape, **flags))


def halves(*shape: int, seed: int = 0) -> Tensor:
    """Numbers such as -1.5, 0.5 and 2, never 0."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.randint(1, 5, shape, generator=generator) * 0.5
    return size * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


def whole(*values: Any) -> Tensor:
    """Indices."""
    return torch.tensor(values, dtype=torch.int64)


def _half_weights(module: nn.Module, seed: int) -> None:
    with torch.no_grad():
        for i, weight in enumerate(module.parameters()):
            weight.copy_(halves(*weight.shape, seed=100 * seed + i))
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
                # eps and variance add up to 1 or 4, so that scale and shift are exact
                part.eps = 0.25
                part.running_mean.copy_(halves(part.num_features, seed=7))
                part.running_var.copy_(torch.where(halves(part.num_features, seed=8) > 0, 0.75, 3.75))
