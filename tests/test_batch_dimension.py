"""A batch dimension of one in a point: it is that point, whatever the model."""

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network


def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()


def pooled(x):
    """A network that takes any number of leading dimensions."""
    return x.relu().mean((-2, -1))


def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def same_lines(one, other):
    assert torch.equal(one.alphas, other.alphas)
    assert torch.equal(one.values, other.values)
    assert torch.equal(one.points, other.points)


@pytest.mark.parametrize(("model", "shape"), [(convolutional(), (3, 8, 8)), (pooled, (3, 8, 8)), (dense(), (5,))])
@pytest.mark.every(3)
def test_a_point_with_a_batch_dimension_is_that_point(model, shape):
    g = torch.Generator().manual_seed(0)
    start, end = torch.randn(2, *shape, generator=g)
    plain = xl.restrict(model, start, end)
    batched = xl.restrict(model, start[None], end[None])
    same_lines(batched, plain)
    assert batched.values.shape == (len(plain) + 1, 3)
    same_lines(xl.restrict_many(model, start[None, None], end[None, None])[0], plain)
    (part,) = xl.sweep(model, start[None], end[None])
    same_lines(part, plain)


def test_a_network_takes_it_too():
    model = convolutional()
    network = as_network(model, [torch.zeros(3, 8, 8)])
    start, end = torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)
    same_lines(xl.restrict(network, start, end), xl.restrict(model, start[0], end[0]))
    with pytest.raises(xl.LineError, match=r"takes points of shape \(3, 8, 8\), not \(2, 3, 8, 8\)"):
        xl.restrict(network, torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8))


def test_an_exported_program_takes_it_too():
    model, batch = dense(), torch.export.Dim("batch")
    program = torch.export.export(model, (torch.zeros(2, 5),), dynamic_shapes=({0: batch},))
    start, end = torch.zeros(1, 5), torch.ones(1, 5)
    same_lines(xl.restrict(program, start, end), xl.restrict(program, start[0], end[0]))


def test_a_plane_takes_it_too():
    g = torch.Generator().manual_seed(0)
    corners = torch.randn(3, 5, generator=g)
    plain, batched = (xl.restrict_plane(dense(), c) for c in (corners, corners[:, None]))
    assert torch.equal(plain.corners, batched.corners)
    assert torch.equal(plain.values, batched.values)


def test_a_channel_is_not_a_batch_dimension():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 1, 3, padding=1)).eval()
    line = xl.restrict(model, torch.zeros(1, 6, 6), torch.ones(1, 6, 6))
    assert line.values.shape[1:] == (1, 6, 6)
    assert line.points.shape[1:] == (1, 6, 6)


def test_a_first_dimension_that_the_model_uses_is_kept():
    line = xl.restrict(lambda x: x.sum(1), torch.tensor([[-1.0, 2.0]]), torch.tensor([[1.0, 2.0]]))
    assert line.values.shape == (2, 2)
    assert line.points.shape == (2, 1, 2)


def test_an_operator_that_is_not_supported_is_named_for_either_shape():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 1, 1)).eval()
    for point in (torch.zeros(3, 8, 8), torch.zeros(1, 3, 8, 8)):
        with pytest.raises(xl.UnsupportedError, match="not piecewise linear") as error:
            xl.restrict(model, point, point + 1)
        assert "gelu" in error.value.where


def test_a_shape_that_does_not_fit_is_named_as_it_was_given():
    with pytest.raises(xl.CaptureError, match=r"points have shape \(1, 7\)"):
        xl.restrict(dense(), torch.zeros(1, 7), torch.ones(1, 7))
