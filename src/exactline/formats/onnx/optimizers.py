"""Read the steps of optimizers in ONNX's training domain: linear in their tensors as long as nothing is squared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator
from .arithmetic import elementwise
from .values import OnnxNode, Value, operator

DOMAIN = "ai.onnx.preview.training"


@dataclass(frozen=True)
class _Arithmetic:
    """Sums and products of values; only constants are squared, divided by or put under a root."""

    node: OnnxNode

    def scale(self, value: Value, factor: float | Tensor) -> Value:
        return elementwise(self.node, "mul.Tensor", value, torch.as_tensor(factor, dtype=torch.float64))

    def step(self, parameter: Value, direction: Value, rate: Value) -> Value:
        return self.add(parameter, self.scale(elementwise(self.node, "mul.Tensor", direction, rate), -1.0))

    def add(self, *values: Value) -> Value:
        total = values[0]
        for value in values[1:]:
            total = elementwise(self.node, "add.Tensor", total, value)
        return total

    def require_constant(self, value: Value, role: str) -> Tensor:
        if not isinstance(value, Tensor):
            raise UnsupportedOperator(f"is not linear in {role}")
        return value.to(torch.float64)


@operator(f"{DOMAIN}.Momentum")
def momentum(node: OnnxNode, inputs: list[Value]) -> Value:
    use = _Arithmetic(node)
    decay = node.get_number("alpha", 0.0)
    is_first = float(use.require_constant(inputs[1], "its step")) == 0
    beta = 1.0 if is_first else node.get_number("beta", 1.0)
    parameters, gradients, velocities = _split(inputs[2:], 3)
    new_parameters, new_velocities = list[Value](), list[Value]()
    for x, g, v in zip(parameters, gradients, velocities, strict=True):
        gradient = _regularize(use, node, x, g)
        velocity = use.add(use.scale(v, decay), use.scale(gradient, beta))
        step = velocity
        if node.get_attribute("mode", "standard") == "nesterov":
            step = use.add(gradient, use.scale(velocity, decay))
        new_parameters.append(use.step(x, step, inputs[0]))
        new_velocities.append(velocity)
    return (*new_parameters, *new_velocities)


@operator(f"{DOMAIN}.Adagrad")
def adagrad(node: OnnxNode, inputs: list[Value]) -> Value:
    use = _Arithmetic(node)
    count = float(use.require_constant(inputs[1], "its step"))
    rate = use.scale(inputs[0], 1 / (1 + count * node.get_number("decay_factor", 0.0)))
    new_parameters, new_squares = list[Value](), list[Value]()
    for x, g, h in zip(*_split(inputs[2:], 3), strict=True):
        gradient = use.require_constant(_regularize(use, node, x, g), "its gradients")
        squares = use.require_constant(h, "its squared gradients") + gradient.square()
        step = gradient / (squares.sqrt() + node.get_number("epsilon", 0.0))
        new_parameters.append(use.step(x, step, rate))
        new_squares.append(squares)
    return (*new_parameters, *new_squares)


@operator(f"{DOMAIN}.Adam")
def adam(node: OnnxNode, inputs: list[Value]) -> Value:
    use = _Arithmetic(node)
    rate, count = inputs[0], float(use.require_constant(inputs[1], "its step"))
    alpha, beta = node.get_number("alpha", 0.9), node.get_number("beta", 0.999)
    if count > 0:
        rate = use.scale(rate, (1 - beta**count) ** 0.5 / (1 - alpha**count))
    outputs = list[list[Value]]([[], [], []])
    for x, g, v, h in zip(*_split(inputs[2:], 4), strict=True):
        gradient = use.require_constant(_regularize(use, node, x, g), "its gradients")
        squares = beta * use.require_constant(h, "its squared gradients") + (1 - beta) * gradient.square()
        velocity = use.add(use.scale(v, alpha), (1 - alpha) * gradient)
        step = use.scale(velocity, 1 / (squares.sqrt() + node.get_number("epsilon", 0.0)))
        moved = use.scale(use.step(x, step, rate), 1 - node.get_number("norm_coefficient_post", 0.0))
        for values, value in zip(outputs, (moved, velocity, squares), strict=True):
            values.append(value)
    return tuple(value for values in outputs for value in values)


def _split(values: list[Value], groups: int) -> list[list[Value]]:
    """Inputs that are ordered by role, each role with one tensor for each parameter."""
    count = len(values) // groups
    return [values[at : at + count] for at in range(0, count * groups, count or 1)]


def _regularize(use: _Arithmetic, node: OnnxNode, parameter: Value, gradient: Value) -> Value:
    """The gradient plus that of the norm of the parameters."""
    factor = node.get_number("norm_coefficient", 0.0)
    return gradient if factor == 0 else use.add(use.scale(parameter, factor), gradient)
