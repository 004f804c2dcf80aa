"""Point location in the polygons of a plane."""

import numpy as np
import torch

from exactline.results.locate import enclosing_triangles


def test_a_point_on_an_edge_of_a_thin_triangle_is_a_combination_of_its_ends():
    """A value far away must not enter with a weight that only rounding makes: it may be huge."""
    corners = np.array([[0.7725527610, 7.3e-13], [1.0, 0.344577203], [0.0, 0.0], [0.386283748, 3.2e-17]])
    points = np.stack([np.linspace(0.0, 0.3862837, 50), np.zeros(50)], 1)
    first, count = np.zeros(50, dtype=np.int64), np.full(50, 4)
    triangle, weights = enclosing_triangles(points, np.arange(4), first, count, corners)
    far = torch.where(triangle == 1, weights, 0.0).abs().amax(1)
    assert float(far.max()) < 1e-15
    assert np.abs((weights.numpy()[:, :, None] * corners[triangle.numpy()]).sum(1) - points).max() < 1e-15
