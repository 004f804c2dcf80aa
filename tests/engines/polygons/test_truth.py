"""Planes compared with the rational oracle, the network itself, and restrictions to lines."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import as_network
from exactline.network.graph import Network
from tests.engines.polygons import checks
from tests.engines.polygons.families import FAMILIES, make_case
from tests.oracle.families import seeded
from tests.oracle.plane import restrict_plane

QUICK_SEEDS, ALL_SEEDS = 38, 1000
POINT_COUNT, LINE_COUNT = 10_000, 50


def check_all(network: Network, vertices: Tensor, seed: int, *, oracle: bool = True, lines: int = LINE_COUNT) -> None:
    generator = torch.Generator().manual_seed(seed)
    plane = xl.restrict_plane(network, vertices)
    checks.check_areas(plane, vertices)
    checks.check_convexity(plane)
    checks.check_edges(plane)
    checks.check_weights(plane, vertices)
    checks.check_disjoint(plane, generator)
    checks.check_values(plane, network, vertices, generator, POINT_COUNT)
    checks.check_affine_maps(plane, network, vertices)
    exact = restrict_plane(network, vertices) if oracle else None
    if exact is not None and not exact.loose:
        checks.check_against_oracle(plane, exact, vertices)
    if exact is None or not exact.loose:
        checks.check_lines(plane, network, vertices, generator, lines)


def check_case(seed: int) -> None:
    """Check all properties of one case; failures name the case."""
    case = make_case(seed)
    try:
        check_all(case.network, case.vertices, seed)
    except AssertionError as failure:
        raise AssertionError(f"{case.name}: {failure}") from failure


@pytest.mark.parametrize("block", range(QUICK_SEEDS // len(FAMILIES)))
@pytest.mark.every(2)
def test_every_kind_of_network_has_the_polygons_of_the_oracle(block):
    for seed in range(len(FAMILIES) * block, len(FAMILIES) * (block + 1)):
        check_case(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_networks():
    for seed in range(QUICK_SEEDS, ALL_SEEDS):
        check_case(seed)


def smooth_images(generator: torch.Generator, spread: float) -> Tensor:  # (3, 3, 32, 32)
    """Three smooth images that differ a little."""
    coarse = torch.rand(4, 3, 4, 4, generator=generator, dtype=torch.float64)
    images = nn.functional.interpolate(coarse, size=32, mode="bilinear", align_corners=False)
    return images[0] + spread * (images[1:] - images[0])


def build_pooling_network(generator: torch.Generator, channels: int) -> nn.Module:
    """The shape of a small CIFAR network: convolutions, ReLU and max-pooling, two linear layers."""
    body = [nn.Conv2d(3, channels, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(channels, channels, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()]
    return seeded(nn.Sequential(*body, nn.Linear(4 * channels, 8), nn.ReLU(), nn.Linear(8, 10)), generator)


@pytest.mark.slow
def test_a_pooling_network_on_three_images():
    generator = torch.Generator().manual_seed(0)
    vertices = smooth_images(generator, 0.2)
    network = as_network(build_pooling_network(generator, 3), [vertices[0]])
    check_all(network, vertices, 0, oracle=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_a_pooling_network_on_three_distant_images(seed):
    generator = torch.Generator().manual_seed(seed)
    vertices = smooth_images(generator, 0.3)
    network = as_network(build_pooling_network(generator, 6), [vertices[0]])
    check_all(network, vertices, seed, oracle=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("widths", [(2, 20, 20, 3), (5, 16, 16, 16, 16, 2), (40, 32, 32, 4)], ids=str)
def test_wider_random_networks(widths):
    torch.manual_seed(len(widths))
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1]).double()
    vertices = torch.randn(3, widths[0], dtype=torch.float64) * 3
    check_all(as_network(model, [vertices[0]]), vertices, 0)


def test_the_answer_says_how_far_it_is_from_the_network():
    case = make_case(6)
    plane = xl.restrict_plane(case.network, case.vertices)
    assert plane.check().worst <= 1e-11 * (1 + float(plane.values.abs().max()))
