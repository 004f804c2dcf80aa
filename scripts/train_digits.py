"""Train the bundled digits network, and write its files.

    python scripts/train_digits.py [FOLDER]

Deterministic: same versions of torch and scikit-learn, same files. Takes under a minute on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from exactline.zoo import digits

SEED = 0
EPOCHS = 60
DIGITS_PER_CLASS = 2  # test digits that are bundled


def split_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scikit-learn's digits as training images, test images, training labels, test labels."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    targets = torch.tensor(labels, dtype=torch.int64)
    rows = torch.arange(len(targets)).numpy()
    train, test = train_test_split(rows, test_size=0.25, random_state=SEED, stratify=targets.numpy())
    return images[train], images[test], targets[train], targets[test]


def train(images: Tensor, labels: Tensor) -> digits.DigitsNetwork:
    """Train from a seeded initialization."""
    torch.manual_seed(SEED)
    network = digits.DigitsNetwork()
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(64):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return network.eval()


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that the network classifies correctly."""
    with torch.no_grad():
        return (network(images).argmax(1) == labels).double().mean().item()


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(save(tensors))
    temporary.replace(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Train the network, print its accuracy and write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(digits.__file__).parent
    torch.set_num_threads(1)  # a fixed order of summation
    torch.use_deterministic_algorithms(True)
    images, test_images, labels, test_labels = split_digits()
    network = train(images, labels)
    print(f"training accuracy {accuracy(network, images, labels):.2%}")
    print(f"test accuracy     {accuracy(network, test_images, test_labels):.2%} of {len(test_labels)} digits")
    chosen = torch.cat([(test_labels == digit).nonzero().flatten()[:DIGITS_PER_CLASS] for digit in range(10)])
    write(folder / digits.WEIGHTS, {name: tensor.contiguous() for name, tensor in network.state_dict().items()})
    write(folder / digits.TEST_DIGITS, {"images": test_images[chosen], "labels": test_labels[chosen].to(torch.uint8)})


if __name__ == "__main__":
    main()
