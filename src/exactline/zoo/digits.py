"""A convolutional network that reads 8x8 handwritten digits, a few test digits, and the whole set of 1,797 digits.

`scripts/train_digits.py` writes the network and the test digits, `scripts/train_robust.py` the whole set. The digits
are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49, licensed CC BY 4.0, as scikit-learn ships it; the pixels are
unchanged, the split into training and test digits is ours.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from .bundled import build_network, read_bytes, read_tensors

WEIGHTS = "digits.safetensors"
TEST_DIGITS = "digits_images.safetensors"
ALL_DIGITS = "digits_all.npz"
PIXEL_LEVELS = 16  # a pixel counts the dark ones among 16 finer ones


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
    return build_network(DigitsNetwork, read_tensors(WEIGHTS))


def digits_images() -> tuple[Tensor, Tensor]:
    """Two test digits of each class: images (20, 1, 8, 8) and labels (20,).

    >>> images, labels = digits_images()
    >>> images.shape, labels[:4].tolist()
    (torch.Size([20, 1, 8, 8]), [0, 0, 1, 1])

    Raises MissingError where safetensors is not installed.
    """
    stored = read_tensors(TEST_DIGITS)
    return stored["images"], stored["labels"].long()


def digits_set(part: str = "test") -> tuple[Tensor, Tensor]:
    """All digits of one part: images (n, 1, 8, 8) from 0 to 1 and labels (n,).

    Args:
        part: "test" (450 digits) or "train" (the other 1,347).

    >>> images, labels = digits_set("test")
    >>> images.shape, labels[:4].tolist(), digits_set("train")[0].shape
    (torch.Size([450, 1, 8, 8]), [1, 4, 8, 6], torch.Size([1347, 1, 8, 8]))

    Raises ArgumentError for another part.
    """
    if part not in ("test", "train"):
        raise ArgumentError(f"There is no part {part!r}.", where="argument part", hint="Give 'test' or 'train'.")
    with np.load(io.BytesIO(read_bytes(ALL_DIGITS)), allow_pickle=False) as stored:
        mask = stored["test"] if part == "test" else ~stored["test"]
        images, labels = stored["images"][mask], stored["labels"][mask]
    return torch.from_numpy(images).float().view(-1, 1, 8, 8) / PIXEL_LEVELS, torch.from_numpy(labels).long()
