"""The oracle: complex ball arithmetic on arrays of python-flint's acb."""

from __future__ import annotations

import math

import flint
import numpy as np
import torch
from flint import acb, arb
from torch import Tensor

from exactline.smooth.certified.error_bound import ErrorBound
from exactline.smooth.certified.taylor_model import TaylorModel

flint.ctx.prec = 160
ORACLE_ERROR = 1e-40  # far above the radii of balls with 160 bits, far below float64 rounding

sigmoid = np.vectorize(lambda z: 1 / (1 + (-z).exp()), otypes=[object])
exp = np.vectorize(lambda z: z.exp(), otypes=[object])
log = np.vectorize(lambda z: z.log(), otypes=[object])
sqrt = np.vectorize(lambda z: z.sqrt(), otypes=[object])
sin = np.vectorize(lambda z: z.sin(), otypes=[object])
cos = np.vectorize(lambda z: z.cos(), otypes=[object])
tanh = np.vectorize(lambda z: z.tanh(), otypes=[object])
erf = np.vectorize(lambda z: z.erf(), otypes=[object])
normal = np.vectorize(lambda z: (1 + (z / arb(2).sqrt()).erf()) / 2, otypes=[object])
density = np.vectorize(lambda z: (-z * z / 2).exp() / (2 * arb.pi()).sqrt(), otypes=[object])


def to_balls(values: Tensor | np.ndarray) -> np.ndarray:
    """Floats as an array of acb."""
    array = np.asarray(values)
    out = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        out[index] = acb(float(array[index]))
    return out


class RandomModel:
    """A Taylor model, and one function that it describes: its polynomial plus an error within the bound."""

    def __init__(self, shape, *, center=0.0, spread=0.3, order=6, discs=2, radius=1e-3, seed=0, axis=-1, decay=0.4):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *sizes: torch.randn(*sizes, dtype=torch.float64, generator=generator)  # noqa: E731
        coefficients = draw(order, discs, *shape)
        for k in range(1, order):
            coefficients[k] *= spread * decay**k
        coefficients[0] += center
        self.direction = torch.rand(discs, *shape, dtype=torch.float64, generator=generator) * 2 - 1
        elements = self.direction.abs() * radius
        if shape:
            norm = torch.linalg.vector_norm(elements, dim=axis, keepdim=True)
            elements = elements * (1 + torch.rand(elements.shape, dtype=torch.float64, generator=generator))
            self.model = TaylorModel(coefficients, ErrorBound(elements, norm * 1.0001, axis))
        else:
            self.model = TaylorModel(coefficients, ErrorBound(elements))
        self.radius = radius

    def at(self, t: acb, disc: int) -> np.ndarray:
        """The function at t, an array of acb."""
        total = to_balls(self.model.coefficients[-1, disc])
        for k in range(self.model.order - 2, -1, -1):
            total = total * t + to_balls(self.model.coefficients[k, disc])
        return total + to_balls(self.direction[disc] * self.radius) * t**3


def points_of_the_disc(count: int = 7) -> list[acb]:
    """Points of the closed unit disc, most of them on the circle, where errors are largest."""
    angles = [2 * math.pi * k / count for k in range(count)]
    circle = [acb(math.cos(a) * (1 - 1e-15), math.sin(a) * (1 - 1e-15)) for a in angles]
    return [*circle, acb(0), acb(0.5, 0.2), acb(-0.3, 0.6)]


def evaluate(model: TaylorModel, t: acb, disc: int) -> np.ndarray:
    """The polynomial of a model at t."""
    coefficients = model.coefficients[:, min(disc, model.coefficients.shape[1] - 1)]
    total = to_balls(coefficients[-1])
    for k in range(model.order - 2, -1, -1):
        total = total * t + to_balls(coefficients[k])
    return total


def contains(model: TaylorModel, values: np.ndarray, t: acb, disc: int) -> bool:
    """Whether values of functions at t lie within the bounds of a model, elements and norms."""
    distance = np.vectorize(lambda z: float(abs(z).upper()), otypes=[float])(values - evaluate(model, t, disc))
    row = min(disc, len(model.radius) - 1)
    if not (distance <= model.radius[row].numpy() + ORACLE_ERROR).all():
        return False
    if model.error.norm is None:
        return True
    norms = np.sqrt((distance**2).sum(model.error.axis, keepdims=True))
    return bool((norms <= model.error.norm[row].numpy() * (1 + 1e-12) + ORACLE_ERROR).all())
