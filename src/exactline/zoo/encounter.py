"""A small collision-avoidance network for two aircraft in level flight. It is not ACAS Xu.

`scripts/train_encounter.py` states the problem, trains the network and writes its file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .bundled import build_network, read_facts, read_tensors

WEIGHTS = "encounter.safetensors"
ADVISORIES = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")
MAX_ANGLE = 3.141593  # pi, rounded up so that it includes every angle
# distance (ft), bearing and heading of the intruder (radians), speeds of ownship and intruder (ft/s)
INPUT_LOW = (0.0, -MAX_ANGLE, -MAX_ANGLE, 100.0, 0.0)
INPUT_HIGH = (60_760.0, MAX_ANGLE, MAX_ANGLE, 1200.0, 1200.0)
HIDDEN_UNITS = 64


class NormalizeInput(nn.Module):
    """Shifts and scales each input to the range from -1/2 to 1/2."""

    middle: Tensor  # (5,)
    spread: Tensor  # (5,)

    def __init__(self) -> None:
        super().__init__()
        ends = list(zip(INPUT_LOW, INPUT_HIGH, strict=True))  # numbers: arithmetic on "meta" tensors imports a compiler
        self.register_buffer("middle", torch.tensor([(low + high) / 2 for low, high in ends]))
        self.register_buffer("spread", torch.tensor([high - low for low, high in ends]))

    def forward(self, x: Tensor) -> Tensor:  # (n, 5) -> (n, 5)
        return (x - self.middle) / self.spread


class EncounterNetwork(nn.Sequential):
    """Normalization of the input and four hidden layers: 256 ReLU units."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [NormalizeInput(), nn.Linear(5, HIDDEN_UNITS), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(HIDDEN_UNITS, HIDDEN_UNITS), nn.ReLU()]
        super().__init__(*layers, nn.Linear(HIDDEN_UNITS, len(ADVISORIES)))


def encounter_network() -> EncounterNetwork:
    """The trained network in eval mode: (n, 5) encounters become (n, 5) costs; the smallest cost is the advice.

    An encounter is the intruder's distance in feet, its bearing and its heading in radians (left is positive, 0 is the
    direction of the ownship), and the speeds of ownship and intruder in feet per second. The network is not ACAS Xu
    and must not be flown with.

    >>> ahead, behind = [3000.0, 0.3, -3.1, 150.0, 150.0], [9000.0, 3.1, 3.1, 150.0, 150.0]
    >>> with torch.no_grad():
    ...     advice = encounter_network()(torch.tensor([ahead, behind])).argmin(1)
    >>> [ADVISORIES[i] for i in advice]
    ['strong right', 'clear of conflict']

    Raises MissingError where safetensors is not installed.
    """
    return build_network(EncounterNetwork, read_tensors(WEIGHTS))


def encounter_facts() -> dict[str, float]:
    """How often the network agrees with the policy it learnt from, measured in training on test encounters.

    >>> encounter_facts()["agreement"] > 0.9
    True
    """
    return read_facts(WEIGHTS)
