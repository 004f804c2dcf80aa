"""A small collision-avoidance network for two aircraft in level flight: our own problem, not ACAS Xu.

`scripts/train_encounter.py` states the problem, trains the network and writes its file.
"""

from __future__ import annotations

import json
from importlib import resources

import torch
from torch import Tensor, nn

from ..optional import require_package

WEIGHTS = "encounter.safetensors"
ADVISORIES = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")
PI = 3.141593  # rounded up, so that no angle is outside
LOWEST = (0.0, -PI, -PI, 100.0, 0.0)  # of distance, bearing, the intruder's heading, and both speeds ...
HIGHEST = (60_760.0, PI, PI, 1200.0, 1200.0)  # ... in feet, radians and feet per second
WIDTH = 64


class Normalise(nn.Module):
    """Each input shifted and scaled to the range -1/2 to 1/2."""

    middle: Tensor  # (5,)
    spread: Tensor  # (5,)

    def __init__(self) -> None:
        super().__init__()
        low, high = torch.tensor(LOWEST), torch.tensor(HIGHEST)
        self.register_buffer("middle", (low + high) / 2)
        self.register_buffer("spread", high - low)

    def forward(self, x: Tensor) -> Tensor:  # (n, 5) -> (n, 5)
        return (x - self.middle) / self.spread


class EncounterNetwork(nn.Sequential):
    """Normalisation and four hidden layers: 256 ReLU units."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [Normalise(), nn.Linear(5, WIDTH), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        super().__init__(*layers, nn.Linear(WIDTH, len(ADVISORIES)))


def encounter() -> EncounterNetwork:
    """The trained network in eval mode: (n, 5) encounters become (n, 5) costs; the smallest is the advice.

    An encounter is the intruder's distance in feet, its bearing and its heading in radians (left is positive, 0 is
    where the ownship flies), and the speeds of ownship and intruder in feet per second. It is not ACAS Xu, and
    nobody should fly with it.

    >>> ahead, behind = [3000.0, 0.3, -3.1, 150.0, 150.0], [9000.0, 3.1, 3.1, 150.0, 150.0]
    >>> with torch.no_grad():
    ...     advice = encounter()(torch.tensor([ahead, behind])).argmin(1)
    >>> [ADVISORIES[i] for i in advice]
    ['strong right', 'clear of conflict']

    Raises MissingError where safetensors is not installed.
    """
    with require_package(
        "The encounter network needs the package safetensors.", where=WEIGHTS, hint="pip install safetensors"
    ):
        from safetensors.torch import load
    with torch.device("meta"):  # the weights come from the file: spend no random numbers
        network = EncounterNetwork()
    network.load_state_dict(load(_file()), assign=True)
    return network.eval()


def encounter_facts() -> dict[str, float]:
    """How well the network follows the policy it learnt from, as its training measured on encounters it never saw.

    >>> encounter_facts()["agreement"] > 0.9
    True
    """
    data = _file()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["about"])["facts"]


def _file() -> bytes:
    return resources.files("exactline.zoo").joinpath(WEIGHTS).read_bytes()
