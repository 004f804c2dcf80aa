"""All 1,797 handwritten digits of 8x8 pixels, split into those to learn from and those to be judged by.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49, licensed CC BY 4.0, as scikit-learn ships it; the pixels are
unchanged, the split is ours. `scripts/train_robust.py` writes the file.
"""

from __future__ import annotations

import io
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError

IMAGES = "digits_all.npz"
LEVELS = 16  # a pixel counts the dark ones among 16 finer ones


def digits_set(part: str = "test") -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) from 0 to 1 and labels (n,): of the 450 digits to be judged by, or of the others.

    >>> images, labels = digits_set("test")
    >>> images.shape, labels[:4].tolist(), digits_set("train")[0].shape
    (torch.Size([450, 1, 8, 8]), [1, 4, 8, 6], torch.Size([1347, 1, 8, 8]))

    Raises ArgumentError for other parts.
    """
    if part not in ("test", "train"):
        raise ArgumentError(f"There is no part {part!r}.", where="argument part", hint="Give 'test' or 'train'.")
    data = resources.files("exactline.zoo").joinpath(IMAGES).read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        chosen = stored["test"] if part == "test" else ~stored["test"]
        images, labels = stored["images"][chosen], stored["labels"][chosen]
    return torch.from_numpy(images).float().view(-1, 1, 8, 8) / LEVELS, torch.from_numpy(labels).long()
