"""Metrics of a plane: against polygons summed one by one, their affine maps, and networks solved by hand."""

import pytest
import torch
from torch import nn

import exactline as xl

SQUARE = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]


def small_plane(seed, inputs=3):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()
    return xl.restrict_plane(model, 2 * torch.randn(3, inputs, dtype=torch.float64))


@pytest.mark.parametrize("seed", range(3))
def test_metrics_agree_with_sums_over_single_polygons(seed):
    plane = small_plane(seed)
    found = plane.metrics()
    variation, steepest, integral = torch.zeros(2).double(), torch.zeros(2).double(), torch.zeros(2).double()
    for i, polygon in enumerate(plane):
        corners = polygon.corners
        sides = corners.roll(-1, 0) - corners
        assert found.perimeters[i] == pytest.approx(sides.norm(dim=1).sum().item(), rel=1e-9)
        assert found.areas[i] == pytest.approx(polygon.area, rel=1e-12)
        matrix, _ = polygon.affine()
        gradient = (matrix.reshape(2, -1) @ plane.axes.T).norm(dim=1)
        variation += polygon.area * gradient
        steepest = torch.maximum(steepest, gradient)
        base, rest = corners[0], corners[1:]
        for a, b in zip(range(len(rest) - 1), range(1, len(rest)), strict=True):
            u, v = rest[a] - base, rest[b] - base
            area = abs(u[0] * v[1] - u[1] * v[0]) / 2
            integral += area * polygon.values[[0, a + 1, b + 1]].mean(0)
    assert found.regions == len(plane)
    assert torch.allclose(found.total_variation, variation, rtol=1e-9)
    assert torch.allclose(found.lipschitz, steepest, rtol=1e-9)
    assert torch.allclose(found.mean, integral / plane.area, rtol=1e-9, atol=1e-12)
    assert found.area == pytest.approx(float(found.areas.sum()), rel=1e-12)


def test_boundaries_are_counted_once_and_the_outline_not_at_all():
    """Two axes of length 2 cut the square; every region is a unit square."""
    found = xl.restrict_plane(nn.ReLU(), SQUARE).metrics()
    assert found.boundary_lengths == {"relu": pytest.approx(4.0)}
    assert found.perimeters.tolist() == pytest.approx([4.0] * 4)
    assert (found.regions, found.region_density) == (4, 1.0)
    assert found.lipschitz.tolist() == pytest.approx([1.0, 1.0])
    assert found.mean.tolist() == pytest.approx([0.25, 0.25])
    assert found.total_variation.tolist() == pytest.approx([2.0, 2.0])


def test_perimeters_add_up_to_the_outline_and_twice_the_boundaries():
    plane = small_plane(7)
    found = plane.metrics()
    outline = (plane.outline.roll(-1, 0) - plane.outline).norm(dim=1).sum().item()
    total = outline + 2 * sum(found.boundary_lengths.values())
    assert float(found.perimeters.sum()) == pytest.approx(total, rel=1e-9)


def test_a_plane_without_values_and_network_still_has_its_geometry(tmp_path):
    path = tmp_path / "plane.safetensors"
    xl.restrict_plane(nn.ReLU(), SQUARE, values=False).save(path)
    found = xl.PlaneRestriction.load(path).metrics()
    assert (found.regions, found.lipschitz, found.total_variation, found.mean) == (4, None, None, None)
    assert found.to_dict()["perimeters"] == pytest.approx([4.0] * 4)


def test_an_affine_network_has_one_region():
    found = xl.restrict_plane(nn.Identity(), SQUARE).metrics()
    assert (found.regions, found.boundary_lengths) == (1, {})
    assert found.lipschitz.tolist() == pytest.approx([1.0, 1.0])
