"""An adaptive quadrature rule for integrated gradients: refines where the gradient changes most."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# All three are empirical: chosen on the digits network from a black baseline. Mean relative errors over 20 images and
# their true labels, divided by those of the trapezoidal rule with 16, 32 and 64 gradients: 0.87, 0.69, 0.55 on the
# digits network from black; 1.06, 0.88, 0.96 from white; 1.21, 0.89, 2.04 on CIFAR10 convSmall from black.
GRADING_EXPONENT = 1.5  # the first nodes are (j/k) ** 1.5: breaks are dense near a black baseline
REFINEMENT_ROUNDS = 4  # batches of the second half of the nodes
ATTRIBUTION_FLOOR = 0.1  # in mean attributions: features below it do not weigh more


def integrate_adaptively(
    sample: Callable[[Tensor], Tensor],  # (k,) alphas -> (k, features): gradients times the step along the line
    n: int,
) -> Tensor:  # (features,)
    """Integrate ``sample`` over alpha from 0 to 1 with n nodes, in a few batches.

    The error of the trapezoidal rule on an interval is about its width times the change along it. The intervals where
    this product is largest, relative to the attribution of each feature, are halved.
    """
    first = max(2, n // 2)
    alphas = torch.linspace(0, 1, first, dtype=torch.float64) ** GRADING_EXPONENT
    samples = sample(alphas)
    while len(alphas) < n:
        widths, changes = alphas.diff(), samples.diff(dim=0).abs()
        size = _apply_trapezoid(alphas, samples).abs()
        scale = 1 / (size + ATTRIBUTION_FLOOR * size.mean()).clamp(min=torch.finfo(size.dtype).tiny)
        count = min(max(1, (n - first) // REFINEMENT_ROUNDS), n - len(alphas), len(widths))
        worst = torch.topk(widths.to(changes) * (changes @ scale), count).indices
        middles = (alphas[worst] + alphas[worst + 1]) / 2
        alphas, order = torch.cat([alphas, middles]).sort()
        samples = torch.cat([samples, sample(middles)])[order]
    return _apply_trapezoid(alphas, samples)


def _apply_trapezoid(alphas: Tensor, samples: Tensor) -> Tensor:  # (k,), (k, features) -> (features,)
    halves = alphas.diff().to(samples) / 2
    return halves @ (samples[1:] + samples[:-1])
