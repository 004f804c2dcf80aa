"""One small convolutional network on 8x8 digits, trained normally, against attacks, and on interval bounds.

`scripts/train_robust.py` writes the file; ``exactline train digits`` repeats the training.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import ArgumentError
from .bundled import build_network, read_facts, read_tensors

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


def robust_network(method: str = "normal") -> RobustNetwork:
    """A trained network in eval mode: (n, 1, 8, 8) pixels become (n, 10) scores.

    Args:
        method: "normal" (cross-entropy), "pgd" (adversarial training) or "diffai" (interval bounds).

    >>> import torch
    >>> from exactline.zoo import digits_images
    >>> images, labels = digits_images()
    >>> with torch.no_grad():
    ...     scores = robust_network("pgd")(images)
    >>> (scores.argmax(1) == labels).double().mean().item() > 0.9
    True

    Raises ArgumentError for other methods, MissingError where safetensors is not installed.
    """
    check_method(method)
    stored = read_tensors(WEIGHTS)
    own = {name.removeprefix(f"{method}."): t for name, t in stored.items() if name.startswith(f"{method}.")}
    return build_network(RobustNetwork, own)


def robust_facts() -> dict[str, dict[str, Any]]:
    """Accuracies (0 to 1) of the three networks on test digits, as measured in training.

    >>> facts = robust_facts()
    >>> list(facts), facts["normal"]["clean accuracy"] >= 0.97, facts["diffai"]["certified accuracy"] > 0.5
    (['normal', 'pgd', 'diffai'], True, True)
    """
    return read_facts(WEIGHTS)


def check_method(method: str) -> str:
    """The method; raises ArgumentError for an unknown one."""
    if method not in METHODS:
        raise ArgumentError(
            f"There is no training method {method!r}.",
            where="argument method",
            hint=f"Give one of {', '.join(METHODS)}.",
        )
    return method
