"""Train the bundled collision-avoidance network, and write its file. It is not ACAS Xu.

    python scripts/train_encounter.py [FOLDER]

Two aircraft are in level flight. The intruder is at distance rho and bearing theta (left is positive) and flies in
direction psi relative to the ownship. For each of five advisories the ownship turns at that advisory's rate, and the
intruder flies straight or turns a little to either side. The cost of an advisory is the cost of its turn plus the risk
of the encounter: how far inside a protected distance the two are, for how long, and how soon. The network learns the
five costs.

Deterministic: same version of torch, same file. Takes some minutes on one core.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from exactline.zoo.encounter import ADVISORIES, INPUT_HIGH, INPUT_LOW, WEIGHTS, EncounterNetwork

SEED = 0
ADVISORY_TURNS = (0.0, 1.5, -1.5, 3.0, -3.0)  # degrees per second, left is positive; in the order of ADVISORIES
ADVISORY_COSTS = (0.0, 0.02, 0.02, 0.06, 0.06)  # of the turn itself, where the risk is the same
INTRUDER_TURNS = ((0.0, 0.5), (0.75, 0.25), (-0.75, 0.25))  # degrees per second, and the probability of each
HORIZON_SECONDS = 25.0  # of flight over which the risk is averaged
TIME_STEPS = 51  # at which the distance is evaluated
RISK_SCALE = 4.0  # weight of the risk against the cost of a turn
PROTECTED_FEET = 4000.0  # the risk grows from 0 at this distance to 1 at distance 0
TRAINING_ENCOUNTERS, TEST_ENCOUNTERS = 400_000, 100_000  # encounters
BATCH_SIZE, UPDATES = 2048, 40_000


def draw_encounters(count: int, generator: torch.Generator) -> Tensor:
    """Random encounters (count, 5) in feet, radians and feet per second; near ones are drawn more often."""
    share = torch.rand(count, 5, generator=generator, dtype=torch.float64)
    share[:, 0] = share[:, 0] ** 2.5
    low, high = (torch.tensor(side, dtype=torch.float64) for side in (INPUT_LOW, INPUT_HIGH))
    slow = torch.rand(count, generator=generator) < 0.3  # slow aircraft
    share[slow, 3:] *= 0.3
    return low + share * (high - low)


def fly(speed: Tensor, heading: Tensor, turn: float, moments: Tensor) -> tuple[Tensor, Tensor]:
    """The position of an aircraft that turns at a constant rate, relative to its start: x and y, (count, moments)."""
    rate = math.radians(turn)
    angle = heading[:, None] + rate * moments
    if rate == 0:
        return speed[:, None] * moments * angle.cos(), speed[:, None] * moments * angle.sin()
    radius = speed[:, None] / rate
    return radius * (angle.sin() - heading[:, None].sin()), radius * (heading[:, None].cos() - angle.cos())


def risk(x: Tensor, own_turn: float, intruder_turn: float) -> Tensor:  # (count, 5) -> (count,)
    """How far inside the protected distance the two are, over time, weighted by how soon."""
    rho, theta, psi, v_own, v_int = x.unbind(1)
    moments = torch.linspace(0, HORIZON_SECONDS, TIME_STEPS, dtype=x.dtype)
    own_x, own_y = fly(v_own, torch.zeros_like(psi), own_turn, moments)
    int_x, int_y = fly(v_int, psi, intruder_turn, moments)
    apart_x = (rho * theta.cos())[:, None] + int_x - own_x
    apart_y = (rho * theta.sin())[:, None] + int_y - own_y
    depth = (1 - torch.hypot(apart_x, apart_y) / PROTECTED_FEET).clamp(min=0)
    return RISK_SCALE * (depth * (1 - moments / HORIZON_SECONDS)).mean(1)


def costs(x: Tensor) -> Tensor:  # (count, 5) -> (count, 5)
    """The cost of each advisory in each encounter."""
    columns = [
        price + sum(chance * risk(x, turn, other) for other, chance in INTRUDER_TURNS)
        for turn, price in zip(ADVISORY_TURNS, ADVISORY_COSTS, strict=True)
    ]
    return torch.stack([torch.as_tensor(c) for c in columns], 1)


def costs_in_chunks(x: Tensor) -> Tensor:
    """The costs of many encounters, computed in chunks to save memory."""
    return torch.cat([costs(part) for part in x.split(20_000)])


def train(x: Tensor, true_costs: Tensor, generator: torch.Generator) -> EncounterNetwork:
    """Fit the costs by least squares and the cheapest advisory by cross-entropy, from a seeded initialization."""
    torch.manual_seed(SEED)
    network = EncounterNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, UPDATES)
    x, true_costs = x.float(), true_costs.float()
    target = torch.softmax(-true_costs / 0.01, 1)
    for _ in range(UPDATES):
        batch = torch.randint(len(x), (BATCH_SIZE,), generator=generator)
        predicted = network(x[batch])
        loss = 30 * (predicted - true_costs[batch]).square().mean() - (
            0.1 * (target[batch] * torch.log_softmax(-predicted / 0.02, 1)).sum(1).mean()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def evaluate(network: nn.Module, x: Tensor, true_costs: Tensor) -> dict[str, float]:
    """How often the network's cheapest advisory is the policy's: over all encounters, near ones, and by advisory."""
    with torch.no_grad():
        predicted = network(x.float()).double()
    chosen, best = predicted.argmin(1), true_costs.argmin(1)
    same = (chosen == best).double()
    near = x[:, 0] < 12_000
    regret = (true_costs.gather(1, chosen[:, None]) - true_costs.gather(1, best[:, None])).flatten()
    facts = {"agreement": same.mean(), "agreement within 12,000 ft": same[near].mean()}
    facts |= {f"agreement, {name}": same[best == i].mean() for i, name in enumerate(ADVISORIES)}
    facts |= {
        "mean extra cost": regret.mean(),
        "root mean square error": (predicted - true_costs).square().mean().sqrt(),
    }
    return {name: round(float(value), 5) for name, value in facts.items()}


def main() -> None:
    """Draw encounters, train the network, print its agreement with the policy and write its file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src/exactline/zoo"
    torch.set_num_threads(1)  # a fixed order of summation
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(SEED)
    x, test = draw_encounters(TRAINING_ENCOUNTERS, generator), draw_encounters(TEST_ENCOUNTERS, generator)
    true_costs, test_costs = costs_in_chunks(x), costs_in_chunks(test)
    shares = torch.bincount(test_costs.argmin(1), minlength=len(ADVISORIES)).double() / len(test_costs)
    print("policy:", ", ".join(f"{name} {share:.1%}" for name, share in zip(ADVISORIES, shares.tolist(), strict=True)))
    network = train(x, true_costs, generator)
    facts = evaluate(network, test, test_costs)
    for name, value in facts.items():
        print(f"{name:32s} {value:.5f}")
    about = {"what": "a collision-avoidance network of our own, not ACAS Xu", "facts": facts}
    header = {"about": json.dumps(about)}  # one entry: the order of several would vary between runs
    path = folder / WEIGHTS
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(save({name: t.contiguous() for name, t in network.state_dict().items()}, metadata=header))
    temporary.replace(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
