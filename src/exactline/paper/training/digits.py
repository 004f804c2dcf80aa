"""Train the digits network normally, against attacks (PGD), or on interval bounds (as DiffAI does)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import ArgumentError
from ...zoo.digits import digits_set
from ...zoo.robust import METHODS as METHODS
from ...zoo.robust import RobustNetwork, check_method
from ..record import StudyProgress
from .attack import compute_box, measure_robustness, run_pgd
from .bounds import compute_margin_bounds

DEFAULT_RADIUS = 0.1  # by how much a pixel, from 0 to 1, may change
DEFAULT_EPOCHS = {"normal": 60, "pgd": 40, "diffai": 60}
BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 64, 8e-3, 0.3
GROWTH_START, GROWTH_END = 0.1, 0.6  # shares of the training between which the radius grows from 0 to its full size
MAX_BOUND_WEIGHT = 0.5  # share of the worst case in the loss of diffai, once the radius has its full size
LABEL_SMOOTHING = 0.1  # chosen, like learning rate and weight decay, on a quarter of the training digits
TRAINING_ATTACK_STEPS = 7  # of the attack in training, each a quarter of the radius

EpochCallback = Callable[[int, RobustNetwork], None]  # epochs done, and the network at that time


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained network, how it was trained, and how good it is on the test digits."""

    method: str
    seed: int
    epochs: int
    radius: float
    network: RobustNetwork
    facts: dict[str, Any]  # accuracies from 0 to 1, and the settings they were measured with
    losses: tuple[float, ...]  # mean loss of each epoch
    seconds: float


def train(
    method: str = "normal",
    *,
    seed: int = 0,
    epochs: int | None = None,
    radius: float = DEFAULT_RADIUS,
    on_epoch: EpochCallback | None = None,
    progress: StudyProgress | None = None,
) -> TrainingResult:
    """Train the digits network in one of three ways; equal seeds give equal weights.

    Args:
        method: ``"normal"`` minimizes the cross-entropy with smoothed labels; ``"pgd"`` minimizes it at the worst point
            that seven steps of projected gradient descent find in the box around each image; ``"diffai"`` mixes it with
            the cross-entropy of the worst scores that interval bounds allow in that box.
        seed: Seed of all random numbers.
        epochs: Passes through the training digits; 60 by default, 40 for pgd.
        radius: Half the width of the box, at most 1; it grows from 0 during the training.
        on_epoch: Called with the number of finished epochs and the network, before the first and after every epoch.
        progress: Called with the share of the work done and a description of the current step.

    >>> result = train("normal", epochs=1)
    >>> result.facts["clean accuracy"] > 0.3, result.facts["test images"]
    (True, 450)

    Raises ArgumentError for an unknown method and for values out of range.
    """
    check_method(method)
    epochs = _check_whole("epochs", DEFAULT_EPOCHS[method] if epochs is None else epochs, 1)
    seed = _check_whole("seed", seed, 0)
    if isinstance(radius, bool) or not isinstance(radius, (int, float)) or not 0 <= radius <= 1:
        raise ArgumentError(f"radius must be from 0 to 1, not {radius!r}.", where="argument radius", hint="Give 0.1.")
    start = time.perf_counter()
    with _isolate_torch(seed) as generator:
        network = RobustNetwork()
        losses = _fit(
            network,
            method,
            epochs=epochs,
            radius=float(radius),
            generator=generator,
            on_epoch=on_epoch,
            progress=progress,
        )
        if progress is not None:
            progress(1.0, "measuring")
        facts = measure_network(network, method, seed, epochs, float(radius))
    return TrainingResult(
        method=method,
        seed=seed,
        epochs=epochs,
        radius=float(radius),
        network=network,
        facts=facts,
        losses=losses,
        seconds=time.perf_counter() - start,
    )


def measure_network(network: RobustNetwork, method: str, seed: int, epochs: int, radius: float) -> dict[str, Any]:
    """Measure the accuracies of a network on the test digits, to five digits, and record how it was trained."""
    images, labels = digits_set("test")
    accuracies = measure_robustness(network, images, labels, radius)
    return {name: round(share, 5) for name, share in accuracies.items()} | {
        "radius": radius,
        "test images": len(labels),
        "method": method,
        "seed": seed,
        "epochs": epochs,
    }


def _fit(
    network: RobustNetwork,
    method: str,
    *,
    epochs: int,
    radius: float,
    generator: torch.Generator,
    on_epoch: EpochCallback | None,
    progress: StudyProgress | None,
) -> tuple[float, ...]:
    images, labels = digits_set("train")
    total = epochs * math.ceil(len(labels) / BATCH_SIZE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=total + 1, pct_start=0.2)
    losses: list[float] = []
    done = 0
    for epoch in range(epochs):
        if on_epoch is not None:
            on_epoch(epoch, network.eval())
        network.train()
        loss_sum = 0.0
        for batch in torch.randperm(len(labels), generator=generator).split(BATCH_SIZE):
            growth = min(max((done / total - GROWTH_START) / (GROWTH_END - GROWTH_START), 0.0), 1.0)
            loss = _compute_loss(
                network,
                method,
                images[batch],
                labels[batch],
                radius=radius * growth,
                bound_weight=MAX_BOUND_WEIGHT * growth,
                generator=generator,
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            loss_sum += loss.item() * len(batch)
            done += 1
        losses.append(loss_sum / len(labels))
        if progress is not None:
            progress((epoch + 1) / (epochs + 1), f"epoch {epoch + 1} of {epochs}, loss {losses[-1]:.3f}")
    if on_epoch is not None:
        on_epoch(epochs, network.eval())
    network.eval()
    return tuple(losses)


def _compute_loss(
    network: RobustNetwork,
    method: str,
    images: Tensor,  # (n, 1, 8, 8)
    labels: Tensor,  # (n,)
    *,
    radius: float,
    bound_weight: float,
    generator: torch.Generator,
) -> Tensor:
    if method == "pgd":
        images = run_pgd(
            network, images, labels, radius, steps=TRAINING_ATTACK_STEPS, step=radius / 4, generator=generator
        )
    clean = F.cross_entropy(network(images), labels, label_smoothing=LABEL_SMOOTHING)
    if method != "diffai":
        return clean
    worst = F.cross_entropy(compute_margin_bounds(network, *compute_box(images, radius), labels), labels)
    return (1 - bound_weight) * clean + bound_weight * worst


@contextlib.contextmanager
def _isolate_torch(seed: int) -> Generator[torch.Generator]:
    """Use one thread, deterministic algorithms and a separate random state; torch is restored afterwards."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.enable_grad():
            torch.manual_seed(seed)
            yield torch.Generator().manual_seed(seed)
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        torch.set_num_threads(threads)


def _check_whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
        raise ArgumentError(
            f"{name} must be a whole number of at least {least}, not {value!r}.",
            where=f"argument {name}",
            hint="Omit it for the default.",
        )
    return value
