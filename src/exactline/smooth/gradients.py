"""Gradients of a model's output along many lines, as functions of alpha: the integrands of all attributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import NumberError
from ..fp_context import full_precision
from ..lines import Lines
from .kinks import KinkRecorder, Watched
from .line_function import Inspection
from .model import SmoothModel

GRADIENT_MEMORY_FACTOR = 4  # bytes of a backward pass, relative to the results of all operators of a forward pass


@dataclass(frozen=True)
class Sample:
    """Integrands at some points, and the arguments of operators with kinks there."""

    rows: Tensor  # (points, features)
    watched: list[Watched]


class Integrand(Protocol):
    """A function of a line and an alpha that an attribution integrates over alpha."""

    @property
    def model(self) -> SmoothModel:
        """The model whose kinks split the panels."""
        ...

    @property
    def lines(self) -> Lines:
        """The lines."""
        ...

    @property
    def inspection(self) -> Inspection:
        """What is known of the model."""
        ...

    def sample(self, line: Tensor, alphas: Tensor) -> Sample:
        """Evaluate points (n,) on lines (n,)."""
        ...


def watch_units(integrand: Integrand, line: Tensor, alphas: Tensor) -> list[Watched]:
    """The arguments of operators with kinks at points (n,) on lines (n,), without gradients."""
    points = integrand.lines.at(line, alphas)[0]
    with full_precision(), torch.no_grad(), KinkRecorder(integrand.inspection.batch_dims, len(alphas)) as recorder:
        integrand.model.evaluate(points)
    return recorder.found


@dataclass(frozen=True, eq=False)
class OutputGradient:
    """The gradient of one output element by the inputs.

    >>> from .model import prepare_model
    >>> from .line_function import inspect_model
    >>> lines = Lines((torch.zeros(1, 2).double(),), (torch.ones(1, 2).double(),))
    >>> model = prepare_model(torch.nn.Tanh(), [torch.zeros(2)], torch.device("cpu"))
    >>> gradient = OutputGradient(model, lines, torch.tensor([1]), inspect_model(model, lines))
    >>> gradient.sample(torch.tensor([0]), torch.tensor([0.0]).double()).rows
    tensor([[0., 1.]], dtype=torch.float64)
    """

    model: SmoothModel
    lines: Lines
    targets: Tensor  # (lines,) flat position in the output
    inspection: Inspection
    inputs: int | None = None  # gradients by so many first inputs; None for all

    def sample(self, line: Tensor, alphas: Tensor) -> Sample:
        """Evaluate points (n,) on lines (n,); rows are the gradients by all inputs, flattened."""
        points = self.lines.at(line, alphas)[0]
        with full_precision(), torch.enable_grad(), KinkRecorder(self.inspection.batch_dims, len(alphas)) as recorder:
            gradients = gradients_at(self.model, points, self.targets[line], self.inputs)
        return Sample(_to_rows(gradients), recorder.found)


@dataclass(frozen=True, eq=False)
class LayerFlow:
    """The gradient of one output element by a layer's tensors, times the layer's derivative by alpha if asked for."""

    model: SmoothModel  # returns the output, followed by the layer's tensors
    rest: SmoothModel  # from the layer on: takes the layer's tensors, then the inputs
    lines: Lines
    targets: Tensor  # (lines,)
    inspection: Inspection  # of ``model``
    times_change: bool  # True for conductance, False for internal influence

    def sample(self, line: Tensor, alphas: Tensor) -> Sample:
        """Evaluate points (n,) on lines (n,); rows are the flows through all units of the layer, flattened."""
        points = self.lines.at(line, alphas)[0]
        with full_precision(), KinkRecorder(self.inspection.batch_dims, len(alphas)) as recorder:
            layer = list(self.model.evaluate(points)[1:])
        slopes = self._layer_slopes(points, line) if self.times_change else []
        with full_precision(), torch.enable_grad():
            found = gradients_at(self.rest, [*layer, *points], self.targets[line], len(layer))
        if self.times_change:
            found = [g * s for g, s in zip(found, slopes, strict=True)]
        return Sample(_to_rows(found), recorder.found)

    def _layer_slopes(self, points: Sequence[Tensor], line: Tensor) -> list[Tensor]:
        """The derivatives of the layer's tensors by alpha.

        They are those of the vector-Jacobian product by its vector: two backward passes, which torch has for more
        operators than forward-mode derivatives.
        """
        changes = [(b - a)[line] for a, b in zip(self.lines.starts, self.lines.ends, strict=True)]
        with full_precision(), torch.enable_grad():
            inputs = [p.detach().requires_grad_() for p in points]
            layer = self.model.evaluate(inputs)[1:]
            vectors = [torch.zeros_like(y).requires_grad_() for y in layer]
            products = torch.autograd.grad(layer, inputs, vectors, create_graph=True, allow_unused=True)
            total = sum(
                ((g * c.to(g)).sum() for g, c in zip(products, changes, strict=True) if g is not None),
                start=torch.zeros(()),
            )
            slopes = torch.autograd.grad(total, vectors, allow_unused=True)
        return [torch.zeros_like(y) if s is None else s.detach() for s, y in zip(slopes, layer, strict=True)]


@dataclass(frozen=True, eq=False)
class NeuronFlow:
    """The gradient of one output element by one unit of a layer, times the gradient of the unit by the inputs."""

    model: SmoothModel  # returns the output, followed by the layer's tensor
    rest: SmoothModel  # from the layer on: takes the layer's tensor, then the inputs
    lines: Lines
    targets: Tensor  # (lines,)
    inspection: Inspection  # of ``model``
    unit: int  # flat position in the layer's tensor

    def sample(self, line: Tensor, alphas: Tensor) -> Sample:
        """Evaluate points (n,) on lines (n,); rows are flows from all inputs through the unit, flattened."""
        points = self.lines.at(line, alphas)[0]
        count = len(alphas)
        with full_precision(), torch.enable_grad(), KinkRecorder(self.inspection.batch_dims, count) as recorder:
            inputs = [p.detach().requires_grad_() for p in points]
            layer = self.model.evaluate(inputs)[1]
            (influence,) = gradients_at(self.rest, [layer.detach(), *points], self.targets[line], 1)
            flow = layer.reshape(count, -1)[:, self.unit] * influence.reshape(count, -1)[:, self.unit]
            found = _gradients(flow.sum(), inputs)
        return Sample(_to_rows(found), recorder.found)


def gradients_at(
    model: SmoothModel,
    points: Sequence[Tensor],  # (n, *in) each
    targets: Tensor,  # (n,)
    inputs: int | None = None,
) -> list[Tensor]:
    """The gradient of each point's target by the first inputs, (n, *in) each; in grad mode."""
    count = len(points) if inputs is None else inputs
    leaves = [p.detach().requires_grad_(i < count) for i, p in enumerate(points)]
    output = model.evaluate(leaves)[0]
    flat = output.reshape(len(output), -1)
    return _gradients(flat.gather(1, targets.to(flat.device)[:, None]).sum(), leaves[:count])


def _gradients(total: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    if not all(bool(g.isfinite().all()) for g in gradients):
        raise NumberError(
            "A gradient is NaN or infinite.",
            where="the gradient of the model",
            hint="Choose a baseline where the model is differentiable.",
        )
    return gradients


def _to_rows(tensors: Sequence[Tensor]) -> Tensor:  # (n, features)
    return torch.cat([t.detach().reshape(len(t), -1) for t in tensors], 1).cpu()
