"""Three ways to train the digits network: normally, against attacks (PGD), and on interval bounds (as DiffAI does)."""

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

from ..errors import ArgumentError
from ..zoo.digit_set import digits_set
from ..zoo.robust import METHODS as METHODS
from ..zoo.robust import RobustNetwork, known_method
from .attack import box, measured, projected_gradient
from .bounds import rival_bounds

RADIUS = 0.1  # of the range of a pixel
EPOCHS = {"normal": 60, "pgd": 40, "diffai": 60}
BATCH, RATE, DECAY = 64, 8e-3, 0.3
WARM, FULL = 0.1, 0.6  # shares of the training when the radius begins to grow, and when it is whole
MIX = 0.5  # share of the worst case in the loss of diffai, when the radius is whole
SMOOTH = 0.1  # of the labels: chosen, as rate and decay were, on a quarter of the training digits
CLIMB = 7  # steps of the attack in training, each a quarter of the radius

Each = Callable[[int, RobustNetwork], None]  # epochs done, and the network as it is then
Report = Callable[[float, str], None]  # share done, and of what


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, how it was made, and how good it is on digits it never saw."""

    method: str
    seed: int
    epochs: int
    radius: float
    network: RobustNetwork
    facts: dict[str, Any]  # accuracies from 0 to 1, and what they were measured with
    losses: tuple[float, ...]  # mean of each epoch
    seconds: float


def train(
    method: str = "normal",
    *,
    seed: int = 0,
    epochs: int | None = None,
    radius: float = RADIUS,
    each: Each | None = None,
    progress: Report | None = None,
) -> Trained:
    """Train the digits network in one of three ways; the same seed gives the same weights.

    ``"normal"`` minimises cross-entropy with smoothed labels; ``"pgd"`` does so at the worst point that seven steps of
    projected gradient descent find in the box of ``radius`` around each image; ``"diffai"`` mixes it with the
    cross-entropy of the worst scores that interval bounds allow there. The radius grows from 0 while they train.
    ``each`` is called before the first epoch and after every one.

    >>> found = train("normal", epochs=1)
    >>> found.facts["clean accuracy"] > 0.3, found.facts["test images"]
    (True, 450)

    Raises ArgumentError for methods, seeds, epochs and radii that make no sense.
    """
    known_method(method)
    epochs = _whole("epochs", EPOCHS[method] if epochs is None else epochs, 1)
    seed = _whole("seed", seed, 0)
    if isinstance(radius, bool) or not isinstance(radius, (int, float)) or not 0 <= radius <= 1:
        raise ArgumentError(f"radius must be from 0 to 1, not {radius!r}.", where="argument radius", hint="Give 0.1.")
    began = time.perf_counter()
    with _alone(seed) as generator:
        network = RobustNetwork()
        losses = _fit(network, method, epochs, float(radius), generator, each, progress)
        if progress is not None:
            progress(1.0, "measuring")
        facts = judged(network, method, seed, epochs, float(radius))
    return Trained(method, seed, epochs, float(radius), network, facts, losses, time.perf_counter() - began)


def judged(network: RobustNetwork, method: str, seed: int, epochs: int, radius: float) -> dict[str, Any]:
    """What is told of a network: accuracies on the test digits to five digits, and how it was trained."""
    images, labels = digits_set("test")
    found = measured(network, images, labels, radius)
    shares = {name: round(share, 5) for name, share in found.items()}
    return shares | {
        "radius": radius,
        "test images": len(labels),
        "method": method,
        "seed": seed,
        "epochs": epochs,
    }


def _fit(
    network: RobustNetwork,
    method: str,
    epochs: int,
    radius: float,
    generator: torch.Generator,
    each: Each | None,
    progress: Report | None,
) -> tuple[float, ...]:
    images, labels = digits_set("train")
    total = epochs * math.ceil(len(labels) / BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=total + 1, pct_start=0.2)
    losses: list[float] = []
    done = 0
    for epoch in range(epochs):
        if each is not None:
            each(epoch, network.eval())
        network.train()
        summed = 0.0
        for batch in torch.randperm(len(labels), generator=generator).split(BATCH):
            grown = min(max((done / total - WARM) / (FULL - WARM), 0.0), 1.0)
            loss = _loss(network, method, images[batch], labels[batch], radius * grown, MIX * grown, generator)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            summed += loss.item() * len(batch)
            done += 1
        losses.append(summed / len(labels))
        if progress is not None:
            progress((epoch + 1) / (epochs + 1), f"epoch {epoch + 1} of {epochs}, loss {losses[-1]:.3f}")
    if each is not None:
        each(epochs, network.eval())
    network.eval()
    return tuple(losses)


def _loss(
    network: RobustNetwork,
    method: str,
    images: Tensor,  # (n, 1, 8, 8)
    labels: Tensor,  # (n,)
    radius: float,
    mix: float,
    generator: torch.Generator,
) -> Tensor:
    if method == "pgd":
        images = projected_gradient(network, images, labels, radius, steps=CLIMB, step=radius / 4, generator=generator)
    clean = F.cross_entropy(network(images), labels, label_smoothing=SMOOTH)
    if method != "diffai":
        return clean
    worst = F.cross_entropy(rival_bounds(network, *box(images, radius), labels), labels)
    return (1 - mix) * clean + mix * worst


@contextlib.contextmanager
def _alone(seed: int) -> Generator[torch.Generator]:
    """One thread, sums in one order, random numbers of our own; torch is left as it was."""
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


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
        raise ArgumentError(
            f"{name} must be a whole number of at least {least}, not {value!r}.",
            where=f"argument {name}",
            hint="Leave it out for the usual one.",
        )
    return value
