"""The time to capture a model is told apart from the time of the sweep, and only where the call captured it."""

import re

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network

CORNERS = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


@pytest.fixture
def model():
    torch.manual_seed(27)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def test_the_first_line_tells_both_times_and_the_second_one(model):
    first, second = (xl.restrict(model, [0.0, 0.0], [1.0, 1.0]) for _ in range(2))
    assert first.setup_seconds > 0
    assert second.setup_seconds == 0
    assert re.match(r"\d+ pieces? in [\d.]+ m?s, 4 ReLU units, .*; first use of this model: [\d.]+ m?s$", str(first))
    assert re.match(r"\d+ pieces? in [\d.]+ m?s, 4 ReLU units, .*ambiguous$", str(second))


def test_a_changed_model_is_captured_again(model):
    xl.restrict(model, [0.0, 0.0], [1.0, 1.0])
    with torch.no_grad():
        model[0].weight[0, 0] += 1
    assert xl.restrict(model, [0.0, 0.0], [1.0, 1.0]).setup_seconds > 0


def test_lines_and_planes_of_one_model_share_the_capture(model):
    plane = xl.restrict_plane(model, CORNERS)
    lines = xl.restrict_many(model, CORNERS[:2], CORNERS[1:])
    assert "first use of this model" in str(plane)
    assert "first use" not in repr(lines)
    assert lines.setup_seconds == lines[0].setup_seconds == 0


def test_a_network_needs_no_capture(model):
    network = as_network(model, [torch.zeros(2)])
    assert xl.restrict(network, [0.0, 0.0], [1.0, 1.0]).setup_seconds == 0


def test_only_the_first_part_of_a_stream_has_the_capture(model):
    parts = list(xl.sweep(model, [-9.0, -9.0], [9.0, 9.0], memory=1))
    assert parts[0].setup_seconds > 0
    assert all(part.setup_seconds == 0 for part in parts[1:])
