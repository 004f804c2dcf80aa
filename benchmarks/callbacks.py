"""The share of training time that `RegionDensity` takes with its defaults, on a ResNet18-size network for CIFAR.

    python benchmarks/callbacks.py [--batch 128] [--steps 4] [--seconds 0]

Trains on random images, because only times matter here, and prints the fewest seconds of a training step, the seconds
of the first and of a later measurement, and the overhead of one measurement every so many steps as the defaults have
it. With --seconds it then trains for so long with the callback and prints the overhead of that run.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

import exactline as xl

STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))  # channels, stride of a block


class Block(nn.Module):
    """Two convolutions with batch norms, and a skip connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        same = stride == 1 and before == after
        skip = [] if same else [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
        self.skip = nn.Sequential(*skip)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Module):
    """The ResNet18 of CIFAR studies: 11 million weights, 557,056 ReLU units."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        before = 64
        for after, stride in STAGES:
            blocks.append(Block(before, after, stride))
            before = after
        self.body, self.head = nn.Sequential(*blocks), nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:  # (n, 3, 32, 32) -> (n, 10)
        return self.head(self.body(x).mean((2, 3)))


def main() -> None:
    """Measure steps and measurements, and print the overhead."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = ResNet18().to(device).train()
    images = torch.rand(options.batch, 3, 32, 32).to(device)
    labels = torch.randint(10, (options.batch,)).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def update() -> float:
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        _ = loss.item()  # waits for the device
        return time.perf_counter() - began

    seconds = min(update() for _ in range(options.steps))
    monitor = xl.callbacks.RegionDensity(images[:2])
    print(f"{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, batches of {options.batch}")
    print(f"a training step: {seconds:.3f} s")
    for title in ("first", "second"):
        record = monitor.measure(model, 0)
        print(
            f"the {title} measurement: {record.seconds:.2f} s, {record.crossings:.0f} crossings of "
            f"{record.local_complexity:.0f} units, {record.vertex_complexity:.0f} of them seen at the corners"
        )
    share = monitor.history[-1].seconds / (monitor.every * seconds)
    print(f"one every {monitor.every} steps: an overhead of {share:.2%}; above {monitor.max_overhead:.0%} it waits")
    if options.seconds:
        monitor = xl.callbacks.RegionDensity(images[:2])
        began, step = time.perf_counter(), 0
        while time.perf_counter() - began < options.seconds:
            update()
            monitor.step(model, step)
            step += 1
        share = monitor.seconds / (time.perf_counter() - began)
        print(f"{step:,} steps, {len(monitor.history)} measurements: an overhead of {share:.2%}")


if __name__ == "__main__":
    main()
