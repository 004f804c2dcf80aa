"""How robust a small classifier is: clean accuracy, accuracy under attack, and accuracy that bounds certify."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .bounds import rival_bounds

STEPS, RESTARTS = 40, 5  # of the attack that measures
SLACK = 1e-9  # a bound must clear 0 by this much: float64 rounds, and scores are of the order of 10


def box(images: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Lower and upper corners of all images whose pixels differ by no more than the radius and stay in 0 to 1."""
    return (images - radius).clamp(0, 1), (images + radius).clamp(0, 1)


def projected_gradient(
    network: nn.Module,
    images: Tensor,  # (n, *in)
    labels: Tensor,  # (n,)
    radius: float,
    *,
    steps: int,
    step: float,
    generator: torch.Generator,
    margin: bool = False,
) -> Tensor:  # (n, *in)
    """Projected gradient descent (PGD): from a random point of the box, steps along the gradient's sign, kept inside.

    It climbs cross-entropy or, with ``margin``, the lead of the best other class, which does not saturate.
    """
    low, high = box(images, radius)
    share = torch.rand(images.shape, generator=generator, dtype=images.dtype)
    found = low + share * (high - low)
    for _ in range(steps):
        found.requires_grad_(True)
        with torch.enable_grad():
            scores = network(found)
            height = _lead(scores, labels).sum() if margin else F.cross_entropy(scores, labels, reduction="sum")
        (slope,) = torch.autograd.grad(height, found)
        found = torch.minimum(torch.maximum(found.detach() + step * slope.sign(), low), high)
    return found.detach()


def measured(network: nn.Sequential, images: Tensor, labels: Tensor, radius: float, seed: int = 0) -> dict[str, float]:
    """Shares of images read correctly: as they are, under attack, and provably everywhere in the box (float64).

    The attack is PGD on the margin with 40 steps and 5 restarts; an image counts only where all of them fail. The proof
    is by interval bounds. So certified <= true robust accuracy <= under attack <= clean.
    """
    exact = deepcopy(network).double().eval()
    images = images.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        right = exact(images).argmax(1) == labels
        rivals = rival_bounds(exact, *box(images, radius), labels)
        certified = (rivals.scatter(1, labels[:, None], -torch.inf) < -SLACK).all(1)
    standing = right.clone()
    for _ in range(RESTARTS):
        size = 2.5 * radius / STEPS
        moved = projected_gradient(
            exact, images, labels, radius, steps=STEPS, step=size, generator=generator, margin=True
        )
        with torch.no_grad():
            standing &= exact(moved).argmax(1) == labels
    shares = {"clean accuracy": right, "pgd accuracy": standing, "certified accuracy": certified}
    return {name: share.double().mean().item() for name, share in shares.items()}


def _lead(scores: Tensor, labels: Tensor) -> Tensor:  # (n, classes), (n,) -> (n,)
    """By how much the best other class is ahead of the label."""
    own = scores.gather(1, labels[:, None])[:, 0]
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - own
