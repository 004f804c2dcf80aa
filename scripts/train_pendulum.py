"""Train the bundled pendulum controller, and write its file.

    python scripts/train_pendulum.py [FOLDER]

A rod of one kilogram and one metre stands on a joint with a motor. From a random angle and angular velocity near
upright the controller applies a torque for 50 milliseconds at a time. It learns by gradients through the simulation to
keep both small at little torque. The simulation is the usual one: semi-implicit Euler steps of
``velocity += dt (15 sin(angle) + 3 torque)``.

Deterministic: same version of torch, same file. Takes about a minute on one core.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from exactline.zoo.pendulum import WEIGHTS, PendulumController

SEED = 0
STEP_SECONDS = 0.05
GRAVITY, TORQUE = 15.0, 3.0  # angular accelerations: 3 g / (2 l) of the sine, 3 / (m l^2) of the torque
START_ANGLE, START_VELOCITY = 0.25, 0.5  # radians, radians per second: the largest of random starts
HORIZON_STEPS = 40  # of a simulation while training
TEST_STEPS = 100
BATCH_SIZE, UPDATES = 256, 1500
UPRIGHT_ANGLE = 0.02  # radians: closer ends count as upright


def simulate(controller: nn.Module, state: Tensor, steps: int) -> Tensor:  # (n, 2) -> (steps, n, 3)
    """Angles, velocities and torques of some steps."""
    states: list[Tensor] = []
    for _ in range(steps):
        torque = controller(state)
        velocity = state[:, 1:] + STEP_SECONDS * (GRAVITY * state[:, :1].sin() + TORQUE * torque)
        state = torch.cat([state[:, :1] + STEP_SECONDS * velocity, velocity], 1)
        states.append(torch.cat([state, torque], 1))
    return torch.stack(states)


def draw_starts(count: int, generator: torch.Generator) -> Tensor:  # (count, 2)
    """Random angles and velocities near upright."""
    return (2 * torch.rand(count, 2, generator=generator) - 1) * torch.tensor([START_ANGLE, START_VELOCITY])


def train(generator: torch.Generator) -> PendulumController:
    """Minimise the mean of squared angles, velocities and torques over a simulation."""
    torch.manual_seed(SEED)
    controller = PendulumController()
    optimiser = torch.optim.Adam(controller.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, UPDATES)
    weights = torch.tensor([10.0, 1.0, 0.05])
    for _ in range(UPDATES):
        states = simulate(controller, draw_starts(BATCH_SIZE, generator), HORIZON_STEPS)
        loss = (weights * states.square().clamp(max=25.0)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(controller.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return controller.eval()


def evaluate(controller: nn.Module, starts: Tensor) -> dict[str, float]:
    """How many of some starts end upright, the largest angle at the end, and on the way."""
    with torch.no_grad():
        angles = simulate(controller, starts, TEST_STEPS)[..., 0].abs()
    facts = {
        "upright": (angles[-1] < UPRIGHT_ANGLE).double().mean(),
        "largest angle at the end": angles[-1].max(),
        "largest angle on the way": angles.max(),
    }
    return {name: round(float(value), 5) for name, value in facts.items()}


def main() -> None:
    """Train the controller, print how well it does and write its file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src/exactline/zoo"
    torch.set_num_threads(1)  # a fixed order of summation
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(SEED)
    controller = train(generator)
    facts = evaluate(controller, draw_starts(10_000, generator))
    for name, value in facts.items():
        print(f"{name:32s} {value:.5f}")
    header = {"about": json.dumps({"what": "a pendulum controller of our own", "facts": facts})}
    path = folder / WEIGHTS
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(save({name: t.contiguous() for name, t in controller.state_dict().items()}, metadata=header))
    temporary.replace(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
