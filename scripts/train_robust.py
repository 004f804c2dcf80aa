"""Train the three networks of `exactline.zoo.robust_network`, and write their file and the digits they learn from.

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
from exactline.paper.training import digits as training
from exactline.zoo import digits
from exactline.zoo.robust import WEIGHTS

SPLIT_SEED = 0  # as in scripts/train_digits.py


def pack_digits() -> bytes:
    """Scikit-learn's digits as the bytes of a .npz file: pixels from 0 to 16, labels, and which are test digits."""
    pixels, labels = load_digits(return_X_y=True)
    _, test = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=SPLIT_SEED, stratify=labels)
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[test] = True
    data = io.BytesIO()
    images = pixels.astype(np.uint8).reshape(-1, 8, 8)
    np.savez_compressed(data, images=images, labels=labels.astype(np.uint8), test=is_test)
    return data.getvalue()


def main() -> None:
    """Pack the digits, train three networks, print their accuracies and write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(digits.__file__).parent
    write_atomically(folder / digits.ALL_DIGITS, pack_digits())
    tensors, facts = {}, {}
    for method in training.METHODS:
        result = training.train(method)
        facts[method] = result.facts
        tensors |= {f"{method}.{name}": t.contiguous() for name, t in result.network.state_dict().items()}
        shares = ", ".join(f"{name} {value:.2%}" for name, value in result.facts.items() if name.endswith("accuracy"))
        print(f"{method}: {shares}, {result.seconds:.1f} s")
    about = {"what": "a convolutional network on 8x8 digits, trained in three ways", "facts": facts}
    header = {"about": json.dumps(about)}  # one entry: the order of several would vary between runs
    write_atomically(folder / WEIGHTS, save(tensors, metadata=header))
    for name in (digits.ALL_DIGITS, WEIGHTS):
        print(f"{name}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
