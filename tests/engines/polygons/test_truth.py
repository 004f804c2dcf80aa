"""Planes against the truth: the rational oracle, the network itself, and restrictions to lines."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import as_network
from exactline.network.graph import Network
from tests.engines.polygons import checks
from tests.engines.polygons.families import FAMILIES, case
from tests.oracle.families import seeded
from tests.oracle.plane import restrict_plane

QUICK, ALL = 38, 1000
POINTS, LINES = 10_000, 50


def all_truths(network: Network, vertices: Tensor, seed: int, *, oracle: bool = True, lines: int = LINES) -> None:
    generator = torch.Generator().manual_seed(seed)
    plane = xl.restrict_plane(network, vertices)
    checks.fills_the_whole(plane, vertices)
    checks.is_convex(plane)
    checks.edges_fit(plane)
    checks.corners_are_mixtures(plane, vertices)
    checks.is_disjoint(plane, generator)
    checks.equals_the_network(plane, network, vertices, generator, POINTS)
    checks.maps_are_affine(plane, network, vertices)
    exact = restrict_plane(network, vertices) if oracle else None
    if exact is not None and not exact.loose:
        checks.equals_the_oracle(plane, exact, vertices)
    if exact is None or not exact.loose:
        checks.lines_agree(plane, network, vertices, generator, lines)


def told(seed: int) -> None:
    """All truths of one case; what fails says which."""
    one = case(seed)
    try:
        all_truths(one.network, one.vertices, seed)
    except AssertionError as wrong:
        raise AssertionError(f"{one.name}: {wrong}") from wrong


@pytest.mark.parametrize("block", range(QUICK // len(FAMILIES)))
def test_every_kind_of_network_has_the_polygons_of_the_oracle(block):
    for seed in range(len(FAMILIES) * block, len(FAMILIES) * (block + 1)):
        told(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_networks():
    for seed in range(QUICK, ALL):
        told(seed)


def smooth_images(generator: torch.Generator, spread: float) -> Tensor:  # (3, 3, 32, 32)
    """Three images without sharp edges that differ a little."""
    coarse = torch.rand(4, 3, 4, 4, generator=generator, dtype=torch.float64)
    images = nn.functional.interpolate(coarse, size=32, mode="bilinear", align_corners=False)
    return images[0] + spread * (images[1:] - images[0])


def pooled(generator: torch.Generator, channels: int) -> nn.Module:
    """The shape of a small CIFAR network: convolutions, ReLU and max-pooling, two linear layers."""
    body = [nn.Conv2d(3, channels, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(channels, channels, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()]
    return seeded(nn.Sequential(*body, nn.Linear(4 * channels, 8), nn.ReLU(), nn.Linear(8, 10)), generator)


def test_a_pooling_network_on_three_images():
    generator = torch.Generator().manual_seed(0)
    vertices = smooth_images(generator, 0.2)
    network = as_network(pooled(generator, 3), [vertices[0]])
    all_truths(network, vertices, 0, oracle=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_a_pooling_network_on_three_distant_images(seed):
    generator = torch.Generator().manual_seed(seed)
    vertices = smooth_images(generator, 0.3)
    network = as_network(pooled(generator, 6), [vertices[0]])
    all_truths(network, vertices, seed, oracle=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("widths", [(2, 20, 20, 3), (5, 16, 16, 16, 16, 2), (40, 32, 32, 4)], ids=str)
def test_wider_random_networks(widths):
    torch.manual_seed(len(widths))
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1]).double()
    vertices = torch.randn(3, widths[0], dtype=torch.float64) * 3
    all_truths(as_network(model, [vertices[0]]), vertices, 0)


def test_the_answer_says_how_far_it_is_from_the_network():
    one = case(6)
    plane = xl.restrict_plane(one.network, one.vertices)
    assert plane.check().worst <= 1e-11 * (1 + float(plane.values.abs().max()))
