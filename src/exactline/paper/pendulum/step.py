"""One step of a pendulum and its controller as a piecewise-linear network, and many steps as one network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ...errors import ArgumentError, FileError
from ...formats import load_network
from ...network import Network, as_network
from ...network.graph import Node
from ...network.simplify import remove_dead_nodes
from ...ops.base import Input
from ...zoo.pendulum import pendulum_controller

STEP_SECONDS = 0.05
GRAVITY, TORQUE = 15.0, 3.0  # angular accelerations of the sine of the angle and of the torque
SINE_KNOTS = 17  # angles from -1.6 to 1.6 radians between which the sine is replaced by straight lines
MAX_SINE_ANGLE = 1.6
PUBLISHED_FILE = "vnncomp/2026r_cersyve/pendulum_finetune_inv.onnx"  # below the folder of published networks
PUBLISHED_STATE = "dense_21"  # the node of that network that holds the state after one step, clamped


class PiecewiseSine(nn.Module):
    """The sine, interpolated by straight lines between `SINE_KNOTS` angles; at most 0.005 off up to 1.6 radians."""

    knots: Tensor  # (inner knots,)
    bends: Tensor  # (inner knots,) change of slope at each

    def __init__(self) -> None:
        super().__init__()
        angles = torch.linspace(-MAX_SINE_ANGLE, MAX_SINE_ANGLE, SINE_KNOTS, dtype=torch.float64)
        slopes = angles.sin().diff() / angles.diff()
        self.first_angle, self.first_value = float(angles[0]), float(angles[0].sin())
        self.first_slope = float(slopes[0])
        self.register_buffer("knots", angles[1:-1])
        self.register_buffer("bends", slopes.diff())

    def forward(self, angle: Tensor) -> Tensor:  # (n, 1) -> (n, 1)
        line = self.first_value + self.first_slope * (angle - self.first_angle)
        return line + (torch.relu(angle - self.knots) * self.bends).sum(1, keepdim=True)


class PendulumStep(nn.Module):
    """The state (angle, velocity) after one step of a pendulum that a controller moves."""

    def __init__(self, controller: nn.Module) -> None:
        super().__init__()
        self.controller, self.sine = controller.double(), PiecewiseSine()

    def forward(self, state: Tensor) -> Tensor:  # (n, 2) -> (n, 2)
        angle, velocity = state[:, :1], state[:, 1:]
        acceleration = GRAVITY * self.sine(angle) + TORQUE * self.controller(state)
        velocity = velocity + STEP_SECONDS * acceleration
        return torch.cat([angle + STEP_SECONDS * velocity, velocity], 1)


def bundled_step() -> Network:
    """One step of the pendulum with the bundled controller."""
    return as_network(PendulumStep(pendulum_controller()).eval(), [torch.zeros(2)])


def published_step(data: Path) -> Network:
    """One step of the published closed loop of Cersyve: dynamics and controller as one network.

    Args:
        data: The folder of published networks.

    Raises FileError if the file is missing or another one.
    """
    network = load_network(data / PUBLISHED_FILE)
    found = [i for i, node in enumerate(network.nodes) if node.name == PUBLISHED_STATE and node.shape == (2,)]
    if not found:
        raise FileError(
            f"The network has no state {PUBLISHED_STATE}.",
            where=str(data / PUBLISHED_FILE),
            hint="Give the published file.",
        )
    return remove_dead_nodes(replace(network, outputs=(found[0],), tails=(None,), output_names=(), device_copies={}))


def repeat_step(step: Network, count: int) -> Network:
    """The network that takes ``count`` steps, one after the other.

    >>> double = as_network(lambda x: 2 * x.relu(), [torch.zeros(2)])
    >>> repeat_step(double, 3)(torch.tensor([[1.0, -1.0]]))
    tensor([[8., 0.]], dtype=torch.float64)

    Raises ArgumentError for a step whose output is no state, and for less than one step.
    """
    if step.several_inputs or step.several_outputs or step.input_shape != step.output_shape:
        raise ArgumentError(
            f"A step from shape {step.input_shape} to {step.output_shape} cannot be repeated.",
            where="argument step",
            hint="Give a network that maps a state to the next state.",
        )
    if count < 1:
        raise ArgumentError(f"{count} steps are none.", where="argument count", hint="Take at least one step.")
    nodes, state = list(step.nodes), step.outputs[0]
    for repetition in range(1, count):
        index = {step.inputs[0]: state}
        for i, node in enumerate(step.nodes):
            if not isinstance(node.op, Input):
                index[i] = len(nodes)
                inputs = tuple(index[j] for j in node.inputs)
                nodes.append(Node(f"{node.name}.{repetition}", node.op, inputs, node.shape, node.path))
        state = index[step.outputs[0]]
    return replace(step, nodes=tuple(nodes), outputs=(state,), device_copies={})
