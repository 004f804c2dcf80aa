"""Train the collision-avoidance network that ships with the package, and write its file. It is not ACAS Xu.

    python scripts/train_encounter.py [FOLDER]

The problem is our own. Two aircraft fly level; the intruder is at distance rho and bearing theta (left is positive)
and flies in direction psi as the ownship sees it. For each of five advisories the ownship turns at that advisory's
rate, the intruder flies straight or turns a little either way, and the advisory costs what its turn costs plus the risk
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

from exactline.zoo.encounter import ADVISORIES, HIGHEST, LOWEST, WEIGHTS, EncounterNetwork

SEED = 0
TURNS = (0.0, 1.5, -1.5, 3.0, -3.0)  # degrees per second, left is positive; in the order of ADVISORIES
PRICES = (0.0, 0.02, 0.02, 0.06, 0.06)  # of alerting at all and of turning hard, where nothing else differs
INTRUDER = ((0.0, 0.5), (0.75, 0.25), (-0.75, 0.25))  # its turns in degrees per second, and how likely each is
HORIZON = 25.0  # seconds that an advisory looks ahead
STEPS = 51  # moments looked at
SCALE = 4.0  # of the risk
PROTECTED = 4000.0  # feet; nearer is a risk that grows to 1 at no distance at all
POOL, HELD = 400_000, 100_000  # encounters to learn from, and to be judged by
BATCH, UPDATES = 2048, 40_000


def encounters(count: int, generator: torch.Generator) -> Tensor:
    """Random encounters (count, 5) in feet, radians and feet per second; near ones are more frequent."""
    share = torch.rand(count, 5, generator=generator, dtype=torch.float64)
    share[:, 0] = share[:, 0] ** 2.5
    low, high = (torch.tensor(side, dtype=torch.float64) for side in (LOWEST, HIGHEST))
    slow = torch.rand(count, generator=generator) < 0.3  # light aircraft deserve a share of their own
    share[slow, 3:] *= 0.3
    return low + share * (high - low)


def flown(speed: Tensor, heading: Tensor, turn: float, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Where an aircraft that turns steadily is at each moment, from where it was: x and y, (count, moments)."""
    rate = math.radians(turn)
    angle = heading[:, None] + rate * moments
    if rate == 0:
        return speed[:, None] * moments * angle.cos(), speed[:, None] * moments * angle.sin()
    radius = speed[:, None] / rate
    return radius * (angle.sin() - heading[:, None].sin()), radius * (heading[:, None].cos() - angle.cos())


def risk(x: Tensor, own_turn: float, intruder_turn: float) -> Tensor:  # (count, 5) -> (count,)
    """How far inside the protected distance the two are, over time, weighed by how soon."""
    rho, theta, psi, v_own, v_int = x.unbind(1)
    moments = torch.linspace(0, HORIZON, STEPS, dtype=x.dtype)
    own_x, own_y = flown(v_own, torch.zeros_like(psi), own_turn, moments)
    int_x, int_y = flown(v_int, psi, intruder_turn, moments)
    apart_x = (rho * theta.cos())[:, None] + int_x - own_x
    apart_y = (rho * theta.sin())[:, None] + int_y - own_y
    depth = (1 - torch.hypot(apart_x, apart_y) / PROTECTED).clamp(min=0)
    return SCALE * (depth * (1 - moments / HORIZON)).mean(1)


def costs(x: Tensor) -> Tensor:  # (count, 5) -> (count, 5)
    """What each advisory costs in each encounter."""
    columns = [
        price + sum(chance * risk(x, turn, other) for other, chance in INTRUDER)
        for turn, price in zip(TURNS, PRICES, strict=True)
    ]
    return torch.stack([torch.as_tensor(c) for c in columns], 1)


def in_parts(x: Tensor) -> Tensor:
    """The costs of many encounters, in memory that stays small."""
    return torch.cat([costs(part) for part in x.split(20_000)])


def train(x: Tensor, wanted: Tensor, generator: torch.Generator) -> EncounterNetwork:
    """Costs by least squares, and the cheapest advisory by cross-entropy, from a seeded start."""
    torch.manual_seed(SEED)
    network = EncounterNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, UPDATES)
    x, wanted = x.float(), wanted.float()
    target = torch.softmax(-wanted / 0.01, 1)
    for _ in range(UPDATES):
        batch = torch.randint(len(x), (BATCH,), generator=generator)
        found = network(x[batch])
        loss = 30 * (found - wanted[batch]).square().mean() - (
            0.1 * (target[batch] * torch.log_softmax(-found / 0.02, 1)).sum(1).mean()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def judged(network: nn.Module, x: Tensor, wanted: Tensor) -> dict[str, float]:
    """How often the network's cheapest advisory is the policy's, over all encounters, near ones and each advisory."""
    with torch.no_grad():
        found = network(x.float()).double()
    chosen, right = found.argmin(1), wanted.argmin(1)
    same = (chosen == right).double()
    near = x[:, 0] < 12_000
    regret = (wanted.gather(1, chosen[:, None]) - wanted.gather(1, right[:, None])).flatten()
    facts = {"agreement": same.mean(), "agreement within 12,000 ft": same[near].mean()}
    facts |= {f"agreement, {name}": same[right == i].mean() for i, name in enumerate(ADVISORIES)}
    facts |= {"mean extra cost": regret.mean(), "root mean square error": (found - wanted).square().mean().sqrt()}
    return {name: round(float(value), 5) for name, value in facts.items()}


def main() -> None:
    """Make encounters, train, judge, write."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src/exactline/zoo"
    torch.set_num_threads(1)  # sums in one order, whatever the machine
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(SEED)
    x, held = encounters(POOL, generator), encounters(HELD, generator)
    wanted, truth = in_parts(x), in_parts(held)
    shares = torch.bincount(truth.argmin(1), minlength=len(ADVISORIES)).double() / len(truth)
    print("policy:", ", ".join(f"{name} {share:.1%}" for name, share in zip(ADVISORIES, shares.tolist(), strict=True)))
    network = train(x, wanted, generator)
    facts = judged(network, held, truth)
    for name, value in facts.items():
        print(f"{name:32s} {value:.5f}")
    about = {"what": "a collision-avoidance network of our own, not ACAS Xu", "facts": facts}
    header = {"about": json.dumps(about)}  # one entry: safetensors writes several in an order that changes
    path = folder / WEIGHTS
    draft = path.with_suffix(".tmp")
    draft.write_bytes(save({name: t.contiguous() for name, t in network.state_dict().items()}, metadata=header))
    draft.replace(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
