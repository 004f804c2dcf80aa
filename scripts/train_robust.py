"""Train the three digits networks of `exactline.zoo.robust`, and write their file and the digits they learn from.

    python scripts/train_robust.py [FOLDER]

Deterministic: same versions of torch and scikit-learn, same files. Takes about a minute of one core.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.torch import save
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from exactline.files import write_atomically
from exactline.paper import training
from exactline.zoo import digit_set
from exactline.zoo.robust import WEIGHTS

SPLIT = 0  # seed of the split, which is that of scripts/train_digits.py


def pack() -> bytes:
    """Scikit-learn's digits as bytes of a .npz: pixels from 0 to 16, labels, and which are for the test."""
    pixels, labels = load_digits(return_X_y=True)
    _, test = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=SPLIT, stratify=labels)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[test] = True
    data = io.BytesIO()
    images = pixels.astype(np.uint8).reshape(-1, 8, 8)
    np.savez_compressed(data, images=images, labels=labels.astype(np.uint8), test=chosen)
    return data.getvalue()


def main() -> None:
    """Pack the digits, train three times, measure, write."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(digit_set.__file__).parent
    write_atomically(folder / digit_set.IMAGES, pack())
    tensors, facts = {}, {}
    for method in training.METHODS:
        found = training.train(method)
        facts[method] = found.facts
        tensors |= {f"{method}.{name}": t.contiguous() for name, t in found.network.state_dict().items()}
        shares = ", ".join(f"{name} {value:.2%}" for name, value in found.facts.items() if name.endswith("accuracy"))
        print(f"{method}: {shares}, {found.seconds:.1f} s")
    about = {"what": "a convolutional network on 8x8 digits, trained in three ways", "facts": facts}
    header = {"about": json.dumps(about)}  # one entry: safetensors writes several in an order that changes
    write_atomically(folder / WEIGHTS, save(tensors, metadata=header))
    for name in (digit_set.IMAGES, WEIGHTS):
        print(f"{name}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
