"""A convolutional network that reads 8x8 handwritten digits, and a few digits for it to read.

`scripts/train_digits.py` makes both files; the digits are from its test set.
"""

from __future__ import annotations

from importlib import resources

import torch
from torch import Tensor, nn

from ..optional import require_package

WEIGHTS = "digits.safetensors"
IMAGES = "digits_images.safetensors"


class DigitsNetwork(nn.Sequential):
    """Two convolutions with max-pooling and two linear layers: 1,600 ReLU units."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


def digits_network() -> DigitsNetwork:
    """The trained network in eval mode: (n, 1, 8, 8) pixels from 0 to 1 become (n, 10) scores.

    >>> images, labels = digits_images()
    >>> with torch.no_grad():
    ...     scores = digits_network()(images)
    >>> (scores.argmax(1) == labels).all().item()
    True

    Raises MissingError where safetensors is not installed.
    """
    with torch.device("meta"):  # the weights come from the file: spend no random numbers
        network = DigitsNetwork()
    network.load_state_dict(_read(WEIGHTS), assign=True)
    return network.eval()


def digits_images() -> tuple[Tensor, Tensor]:
    """Two digits of each class, not seen in training: images (20, 1, 8, 8) and labels (20,).

    >>> images, labels = digits_images()
    >>> images.shape, labels[:4].tolist()
    (torch.Size([20, 1, 8, 8]), [0, 0, 1, 1])

    Raises MissingError where safetensors is not installed.
    """
    stored = _read(IMAGES)
    return stored["images"], stored["labels"].long()


def _read(name: str) -> dict[str, Tensor]:
    with require_package(
        "The digits network needs the package safetensors.", where=name, hint="pip install safetensors"
    ):
        from safetensors.torch import load
    return load(resources.files("exactline.zoo").joinpath(name).read_bytes())
