"""A small controller that keeps a pendulum upright: angle and angular velocity in, torque out.

`scripts/train_pendulum.py` states the problem, trains the network and writes its file.
"""

from __future__ import annotations

from torch import nn

from .bundled import build_network, read_facts, read_tensors

WEIGHTS = "pendulum.safetensors"
HIDDEN_UNITS = 16
MAX_TORQUE = 2.0  # newton metres, to either side


class PendulumController(nn.Sequential):
    """Two hidden layers, and the limits of the motor: 32 ReLU units and one clamped output."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(2, HIDDEN_UNITS),
            nn.ReLU(),
            nn.Linear(HIDDEN_UNITS, HIDDEN_UNITS),
            nn.ReLU(),
            nn.Linear(HIDDEN_UNITS, 1),
            nn.Hardtanh(-MAX_TORQUE, MAX_TORQUE),
        )


def pendulum_controller() -> PendulumController:
    """The trained controller in eval mode: (n, 2) angles from upright and angular velocities become (n, 1) torques.

    Angles are in radians, velocities in radians per second, torques in newton metres.

    >>> import torch
    >>> with torch.no_grad():
    ...     torque = pendulum_controller()(torch.tensor([[0.2, 0.0], [-0.2, 0.0]])).flatten()
    >>> torque.sign().tolist()
    [-1.0, 1.0]

    Raises MissingError where safetensors is not installed.
    """
    return build_network(PendulumController, read_tensors(WEIGHTS))


def pendulum_facts() -> dict[str, float]:
    """What training measured: how many of random starts end upright, and how far from it at most.

    >>> pendulum_facts()["upright"] > 0.99
    True
    """
    return read_facts(WEIGHTS)
