"""The choice between the engines: by the breaks that a line turns out to have, and without a change of the answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines import select
from exactline.engines.dense.sweep import SweepLimits
from exactline.engines.patches import plan as patches_plan
from exactline.engines.select import EngineChoice
from exactline.network import as_network


@pytest.fixture
def model():
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(64, 3)).double()


@pytest.fixture
def points():
    torch.manual_seed(1)
    return torch.randn(2, 1, 10, 10, dtype=torch.float64)


@pytest.fixture
def set_least_points(model, monkeypatch):
    """Sets from how many points of a line on the model counts as faster by patches."""
    network = as_network(model, [torch.zeros(1, 10, 10)])
    plan = patches_plan.patch_plan(network)
    return lambda points: monkeypatch.setitem(
        patches_plan._plans, network, replace(plan, least_points=dict.fromkeys(plan.least_points, points))
    )


def _columns(line):
    return [] if line.layers is None else list(vars(line.layers).values())


def assert_equal(one, two):
    assert torch.equal(one.origin_table, two.origin_table)
    assert (one.alphas - two.alphas).abs().max() <= 1e-11
    for a, b in zip(one.stored_values, two.stored_values, strict=True):
        assert (a - b).abs().max() <= 16 * max(one.error, two.error) + 1e-13
    for a, b in zip(_columns(one), _columns(two), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("seconds", [None, 1000])
@pytest.mark.parametrize("record", [None, "layers"])
def test_many_breaks_need_patches(model, points, set_least_points, record, seconds):
    start, end = points
    near = start + 0.02 * (end - start)
    set_least_points(40.0)
    for stop, engine in ((near, "dense"), (end, "patches")):
        found = xl.restrict(model, start, stop, record=record, seconds=seconds)
        assert found.engine.startswith(engine)
        for other in ("dense", "patches"):
            assert_equal(found, xl.restrict(model, start, stop, engine=other, record=record))


def test_the_engine_is_the_same_for_parts_of_a_line(model, points, set_least_points):
    set_least_points(40.0)
    whole = xl.restrict(model, *points)
    parts = list(xl.sweep(model, *points))
    assert all(part.engine.startswith("patches") for part in (whole, *parts))
    assert sum(map(len, parts)) == len(whole)


def test_few_wanted_breaks_need_no_patches(model, points, set_least_points):
    set_least_points(40.0)
    assert xl.restrict(model, *points, max_breaks=30).engine.startswith("dense")
    assert xl.restrict(model, *points, max_breaks=60).engine.startswith("patches")


def test_lines_are_judged_together(model, points, set_least_points):
    set_least_points(40.0)
    start, end = points
    starts = start[None].repeat(20, 1, 1, 1)
    near, far = starts + 1e-3 * (end - start), starts + (end - start)
    assert xl.restrict_many(model, starts, near)[0].engine.startswith("dense")
    many = xl.restrict_many(model, starts, far)
    assert many[0].engine.startswith("patches")
    dense = xl.restrict_many(model, starts, far, engine="dense")
    assert many.pieces.tolist() == dense.pieces.tolist()


def test_patches_that_save_nothing_are_not_tried(model, points, set_least_points):
    set_least_points(float("inf"))
    assert xl.restrict(model, *points).engine.startswith("dense (patches save no time")


def test_published_shapes():
    torch.manual_seed(0)
    channels = [3, 32, 32, 64]
    layers = [m for a, b in pairwise(channels) for m in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]
    network = as_network(nn.Sequential(*layers).double(), [torch.zeros(3, 32, 32)])
    assert 5 < patches_plan.patch_plan(network).least_points[2] < 200


def test_comparing_windows_costs_the_dense_engine():
    torch.manual_seed(0)
    front = [nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    middle = [nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 10)]
    network = as_network(nn.Sequential(*front, *middle).double(), [torch.zeros(1, 28, 28)])
    least_points = patches_plan.patch_plan(network).least_points
    assert min(least_points.values()) < 100  # lines of 100 pieces take less than half the time by patches


def test_a_device_sweeps_small_networks_densely(model, monkeypatch):
    network = as_network(model, [torch.zeros(1, 10, 10)])

    def is_small():
        choice = EngineChoice(network, "auto", SweepLimits(100), 1 << 29, values=True, in_advance=True)
        return choice.reason.startswith("a small network")

    monkeypatch.setattr(select, "MIN_POINT_WORK", 0.0)
    monkeypatch.setattr(select, "MIN_LINE_WORK", {"cpu": 1e3})
    assert not is_small()
    monkeypatch.setattr(select, "MIN_LINE_WORK", {"cpu": 1e11})
    assert is_small()


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.LeakyReLU(0.1), nn.Hardtanh(-1.0, 2.0)])
def test_branches_at_points_are_those_of_pieces_without_length(layer):
    network = as_network(layer, [torch.zeros(5)])
    op = network.nodes[network.breaking_nodes[0]].op
    x = torch.tensor([[-3.0, -1.0, -0.5, 0.0, 0.25], [0.5, 1.0, 2.0, 5e-324, -5e-324]], dtype=torch.float64)
    assert torch.equal(op.branch_at(x).to(torch.int16), op.activation_pattern(x, x).to(torch.int16))
