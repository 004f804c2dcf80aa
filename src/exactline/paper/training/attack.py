"""How robust a small classifier is: clean accuracy, accuracy under attack, and certified accuracy."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .bounds import compute_margin_bounds

ATTACK_STEPS, ATTACK_RESTARTS = 40, 5  # of the attack that measures robustness
# A bound on a margin must be below 0 by this much: scores are of the order of 10, so float64 rounds them by 1e-14.
CERTIFIED_MARGIN = 1e-9


def compute_box(images: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the lower and upper corners of the box of all images whose pixels change by at most the radius."""
    return (images - radius).clamp(0, 1), (images + radius).clamp(0, 1)


def run_pgd(
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
    """Attack images by projected gradient descent (PGD): steps along the sign of the gradient, projected into the box.

    Args:
        network: The classifier.
        images: The images to attack, (n, *in).
        labels: Their classes, (n,).
        radius: Half the width of the box around each image.
        steps: Number of steps.
        step: Size of a step.
        generator: Draws the random start in the box.
        margin: Whether to maximize the margin of the best other class, which does not saturate, instead of the
            cross-entropy.
    """
    low, high = compute_box(images, radius)
    start = torch.rand(images.shape, generator=generator, dtype=images.dtype)
    points = low + start * (high - low)
    for _ in range(steps):
        points.requires_grad_(True)
        with torch.enable_grad():
            scores = network(points)
            if margin:
                objective = _compute_margin(scores, labels).sum()
            else:
                objective = F.cross_entropy(scores, labels, reduction="sum")
        (gradient,) = torch.autograd.grad(objective, points)
        points = torch.minimum(torch.maximum(points.detach() + step * gradient.sign(), low), high)
    return points.detach()


def measure_robustness(
    network: nn.Sequential, images: Tensor, labels: Tensor, radius: float, seed: int = 0
) -> dict[str, float]:
    """Measure the accuracy on clean images, under attack, and certified for the whole box, in float64.

    The attack is PGD on the margin with 40 steps and 5 restarts; an image counts only if all of them fail. Interval
    bounds certify. So certified <= true robust accuracy <= accuracy under attack <= clean accuracy.

    Args:
        network: The classifier, which must end in a linear layer.
        images: Images with pixels from 0 to 1, (n, *in).
        labels: Their classes, (n,).
        radius: Half the width of the box around each image.
        seed: Seed of the random starts of the attack.
    """
    exact = deepcopy(network).double().eval()
    images = images.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        correct = exact(images).argmax(1) == labels
        margins = compute_margin_bounds(exact, *compute_box(images, radius), labels)
        certified = (margins.scatter(1, labels[:, None], -torch.inf) < -CERTIFIED_MARGIN).all(1)
    robust = correct.clone()
    for _ in range(ATTACK_RESTARTS):
        attacked = run_pgd(
            exact,
            images,
            labels,
            radius,
            steps=ATTACK_STEPS,
            step=2.5 * radius / ATTACK_STEPS,
            generator=generator,
            margin=True,
        )
        with torch.no_grad():
            robust &= exact(attacked).argmax(1) == labels
    shares = {"clean accuracy": correct, "pgd accuracy": robust, "certified accuracy": certified}
    return {name: share.double().mean().item() for name, share in shares.items()}


def _compute_margin(scores: Tensor, labels: Tensor) -> Tensor:  # (n, classes), (n,) -> (n,)
    """Return by how much the best other class exceeds the label."""
    own = scores.gather(1, labels[:, None])[:, 0]
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - own
