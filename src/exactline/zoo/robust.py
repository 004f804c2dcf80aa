"""One small convolutional network on 8x8 digits, trained in three ways: normally, against attacks, and with bounds.

`scripts/train_robust.py` writes the file; ``exactline train digits`` trains any of them again.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import torch
from torch import nn

from ..errors import ArgumentError
from ..optional import require_package

WEIGHTS = "robust.safetensors"
METHODS = ("normal", "pgd", "diffai")


class RobustNetwork(nn.Sequential):
    """Two convolutions, the second with stride 2, and two linear layers: 800 ReLU units."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )


def robust(method: str = "normal") -> RobustNetwork:
    """The network as one of three methods trained it, in eval mode: (n, 1, 8, 8) pixels become (n, 10) scores.

    ``"normal"`` is plain cross-entropy, ``"pgd"`` adversarial training, ``"diffai"`` training on interval bounds.

    >>> from exactline.zoo import digits_images
    >>> images, labels = digits_images()
    >>> with torch.no_grad():
    ...     scores = robust("pgd")(images)
    >>> (scores.argmax(1) == labels).double().mean().item() > 0.9
    True

    Raises ArgumentError for other methods, MissingError where safetensors is not installed.
    """
    known_method(method)
    with require_package(
        "The digits networks need the package safetensors.", where=WEIGHTS, hint="pip install safetensors"
    ):
        from safetensors.torch import load
    stored = load(_file())
    with torch.device("meta"):  # the weights come from the file: spend no random numbers
        network = RobustNetwork()
    own = {name.removeprefix(f"{method}."): t for name, t in stored.items() if name.startswith(f"{method}.")}
    network.load_state_dict(own, assign=True)
    return network.eval()


def robust_facts() -> dict[str, dict[str, Any]]:
    """How good each of the three is on digits it never saw, as its training measured: accuracies from 0 to 1.

    >>> facts = robust_facts()
    >>> list(facts), facts["normal"]["clean accuracy"] >= 0.97, facts["diffai"]["certified accuracy"] > 0.5
    (['normal', 'pgd', 'diffai'], True, True)
    """
    data = _file()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["about"])["facts"]


def known_method(method: str) -> str:
    """A way to train that we know; raises ArgumentError for others."""
    if method not in METHODS:
        raise ArgumentError(
            f"There is no training method {method!r}.",
            where="argument method",
            hint=f"Give one of {', '.join(METHODS)}.",
        )
    return method


def _file() -> bytes:
    return resources.files("exactline.zoo").joinpath(WEIGHTS).read_bytes()
