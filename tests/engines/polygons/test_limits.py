"""Limits of a plane: too many polygons and too much time end it with an error that says how far it came."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import exactline as xl
from tests.engines.polygons.test_parts import SQUARE, build_relu_network

MODEL = build_relu_network(2, 24, 24, 24, 3)


@pytest.mark.parametrize("memory", [None, 200_000], ids=["one part", "several parts"])
def test_max_polygons_refuses_exactly_the_planes_that_have_more(memory):
    count = len(xl.restrict_plane(MODEL, SQUARE))
    assert len(xl.restrict_plane(MODEL, SQUARE, max_polygons=count, memory=memory)) == count
    with pytest.raises(xl.LimitError, match="more than") as caught:
        xl.restrict_plane(MODEL, SQUARE, max_polygons=count - 1, memory=memory)
    assert caught.value.reached == count
    with pytest.raises(xl.LimitError) as caught:
        xl.restrict_plane(MODEL, SQUARE, max_polygons=10, memory=memory)
    assert 10 < (caught.value.reached or 0) < count


def test_polygons_that_are_merged_again_do_not_count():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)), nn.MaxPool2d(2)).double().eval()
    count = len(xl.restrict_plane(model, SQUARE))
    reports: list[int] = []
    plane = xl.restrict_plane(
        model, SQUARE, max_polygons=count, progress=lambda share, polygons: reports.append(polygons)
    )
    assert len(plane) == count
    assert reports == sorted(reports)


def test_time_is_limited_and_the_error_says_how_far_it_came():
    with pytest.raises(
        xl.LimitError, match=r"not finished after 0 seconds: it has 1 polygon or more, and 0\.0%"
    ) as caught:
        xl.restrict_plane(MODEL, SQUARE, seconds=0)
    assert caught.value.reached == 1
    assert len(xl.restrict_plane(MODEL, SQUARE, seconds=600)) == len(xl.restrict_plane(MODEL, SQUARE))


def test_a_deadline_ends_a_plane_in_the_middle_of_a_node():
    """A thousand units cut a plane into some hundred thousand polygons, all of them at one node."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(2, 1_000), nn.ReLU(), nn.Linear(1_000, 1)).double().eval()
    with pytest.raises(xl.LimitError, match="of the work is done"):
        xl.restrict_plane(wide, SQUARE, seconds=0.3)


@pytest.mark.parametrize("option", [{"max_polygons": 0}, {"max_polygons": 1.5}, {"seconds": -1.0}])
def test_a_limit_must_make_sense(option):
    with pytest.raises(xl.ArgumentError):
        xl.restrict_plane(MODEL, SQUARE, **option)
