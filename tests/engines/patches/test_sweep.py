"""The local sweep finds what the dense one finds: the same births, the same alphas, the same values."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr.path_integrals import path_integral
from exactline.engines import select as choose
from exactline.lines import as_lines
from exactline.network import as_network
from tests.engines.patches.graphs import graph
from tests.oracle.families import FAMILIES, Apply, Concat, small_integers


def same(model: nn.Module | xl.Network, Q: Tensor, R: Tensor, **options) -> tuple[xl.Restriction, xl.Restriction]:
    dense = xl.restrict(model, Q, R, engine="dense")
    local = xl.restrict(model, Q, R, engine="patches", **options)
    assert len(local) == len(dense)
    assert (local.origin_table == dense.origin_table).all()
    assert (local.ambiguous_per_piece == dense.ambiguous_per_piece).all()
    close = (local.alphas - dense.alphas).abs()
    assert close.max() <= 1e-11
    for a, b in zip(local.stored_values, dense.stored_values, strict=True):
        assert (a - b).abs().max() <= max(local.error, dense.error) * 16 + 1e-13
    return local, dense


@pytest.mark.parametrize("seed", [*range(9), *range(10, 16)])
def test_random_graphs(seed):
    same(*graph(seed))


@pytest.mark.slow
def test_500_random_graphs():
    by_points = 0
    for seed in range(16, 516):
        local, _ = same(*graph(seed))
        by_points += "by points" in local.engine
    assert by_points < 300


def test_a_device_takes_small_networks_by_points(monkeypatch):
    model, Q, R = graph(3)
    monkeypatch.setattr(choose, "MIN_PATCH_GAIN", {})
    monkeypatch.setattr(choose, "MIN_POINT_WORK", 0.0)
    monkeypatch.setattr(choose, "MIN_LINE_WORK", {"cpu": 1e3})
    assert not xl.restrict(model, Q, R).engine.startswith("dense (a small")
    monkeypatch.setattr(choose, "MIN_LINE_WORK", {"cpu": 1e11})
    assert xl.restrict(model, Q, R).engine.startswith("dense (a small network")


@pytest.mark.parametrize("memory", [1, 1 << 12, 1 << 15, 1 << 20])
def test_every_stretch_size(memory):
    for seed in (3, 8):
        same(*graph(seed), memory=memory)


def test_says_which_engine_ran_and_why():
    model, Q, R = graph(3)
    assert xl.restrict(model, Q, R, engine="dense").engine == "dense (asked for)"
    assert xl.restrict(model, Q, R, engine="patches").engine.startswith("patches (asked for")
    assert xl.restrict(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.zeros(3), torch.ones(3)).engine.startswith(
        "dense (no maps"
    )
    with pytest.raises(xl.ArgumentError, match="no engine 'quick'"):
        xl.restrict(model, Q, R, engine="quick")


@pytest.mark.parametrize("seed", [0, 4, 5, 7, 11, 18])
def test_gradients_by_patches(seed):
    """Integrals of gradients are the dense engine's, also where some stretches are taken by points."""
    model, Q, R = graph(seed)
    network = as_network(model, [Q])
    lines = as_lines(Q, R, ("Q", "R"), many=False)
    dense, local = (path_integral(network, lines, torch.tensor([1]), engine=e) for e in ("dense", "patches"))
    assert local.pieces == dense.pieces
    for a, b in zip(local.gradients, dense.gradients, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "padding"), [(3, 3, 1, 1), (4, 4, 2, 1), (5, 5, 1, 2), (3, 3, 2, 2)]
)
def test_gradients_where_a_kernel_is_as_large_as_its_map(side, kernel, stride, padding):
    """What a unit sends back is then as large as the map, and yet lies beside it."""
    torch.manual_seed(side + padding)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(3, 4, kernel, stride, padding), nn.ReLU(),
        nn.Conv2d(4, 2, 2),
    ).double().eval()  # fmt: skip
    Q, R = torch.randn(2, 2, 2 * side, 2 * side, dtype=torch.float64)
    network, lines = as_network(model, [Q]), as_lines(Q, R, ("Q", "R"), many=False)
    for target in (0, 1):
        dense, local = (path_integral(network, lines, torch.tensor([target]), engine=e) for e in ("dense", "patches"))
        assert local.pieces == dense.pieces > 5
        assert (local.gradients[0] - dense.gradients[0]).abs().max() <= 1e-13
        with torch.no_grad():
            whole = model(torch.stack([Q, R])).flatten(1)[:, target]
        assert float((local.gradients[0][0] * (R - Q)).sum()) == pytest.approx(float(whole[1] - whole[0]), abs=1e-12)


def test_a_line_that_starts_black():
    """Units that are on a knot where the line starts do not break there."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * 16, 3),
    ).double().eval()  # fmt: skip
    same(model, torch.zeros(1, 8, 8, dtype=torch.float64), torch.rand(1, 8, 8, dtype=torch.float64))


def test_single_precision_patches_find_as_many_breaks():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    ).eval()
    Q, R = torch.randn(2, 3, 16, 16)
    light = xl.restrict(model, Q, R, engine="patches", dtype=torch.float32)
    exact = xl.restrict(model, Q, R, engine="dense")
    assert abs(len(light) - len(exact)) <= max(1, len(exact) // 1000)
    if len(light) == len(exact):
        assert (light.alphas - exact.alphas).abs().max() < 1e-4


def test_streams_with_both_engines():
    model, Q, R = graph(8)
    whole = xl.restrict(model, Q, R, engine="patches")
    parts = list(xl.sweep(model, Q, R, engine="patches", memory=1 << 14))
    assert len(parts) > 1
    for one, two in pairwise(parts):
        assert one.alphas[-1] == two.alphas[0]
    assert sum(len(p) for p in parts) == len(whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family):
    """Networks of every kind, small as they are; the engine is forced."""
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        model, shape = FAMILIES[family](g)
        Q, R = torch.randn(2, *shape, generator=g, dtype=torch.float64)
        same(model.eval().double(), Q.mul(2).round() if seed else Q, R)


def test_ties_everywhere_and_every_stretch_size():
    """Small integers: crossings coincide, and lie where lines are cut."""
    for seed in (100, 101):
        g = torch.Generator().manual_seed(seed)
        model, shape = FAMILIES["concat"](g)
        small_integers(g, model)
        starts, ends = torch.randint(-9, 10, (2, 40, *shape), generator=g).double()
        for i in (0, 5, 17, 37):
            for memory in (None, 1):
                same(model, starts[i], ends[i], memory=memory)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_ties_in_every_family(family):
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        model, shape = FAMILIES[family](g)
        if seed % 3:
            small_integers(g, model)
        for _ in range(3):
            Q, R = torch.randint(-9, 10, (2, *shape), generator=g).double()
            for memory in (None, 1):
                same(model.eval().double(), Q, R, memory=memory)


@pytest.mark.parametrize("pooled", [False, True])
def test_flat_images_stay_local(pooled):
    """Pixels that are the same break together and tie in every window, all along the line."""
    pool = [nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, 1, 1)] if pooled else [nn.Conv2d(8, 8, 4, 2, 1)]
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), *pool, nn.ReLU(), nn.Flatten(), nn.Linear(512, 20), nn.ReLU()
    ).double().eval()  # fmt: skip
    for step in (4, 8):
        coarse = torch.rand(2, 3, 16 // step, 16 // step, dtype=torch.float64)
        Q, R = nn.functional.interpolate(coarse, scale_factor=step)
        for start in (Q, torch.zeros_like(Q)):
            local, _ = same(model, start, R)
            assert "by points" not in local.engine
        assert local.origin_table[:, 2].max() > 1


@pytest.mark.parametrize("name", ["eran/mnist/mnist_conv_maxpool.onnx", "eran/mnist/convSmallRELU__Point.onnx"])
def test_digits_on_black_stay_local(data, name):
    """Most of such an image is one colour, and some units of trained networks have hardly any weight."""
    pixels = gzip.decompress((data / "images/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 28, 28).double() / 255
    network = xl.load(data / name)
    shape = network.nodes[network.inputs[0]].shape
    for Q, R in ((torch.zeros(shape, dtype=torch.float64), images[0]), (images[0], images[2])):
        local, _ = same(network, Q.reshape(shape), R.reshape(shape))
        assert "by points" not in local.engine


def test_slopes_of_each_channel():
    torch.manual_seed(1)
    prelu = nn.PReLU(4)
    with torch.no_grad():
        prelu.weight.copy_(torch.tensor([0.1, -0.2, 0.5, 1.5]))
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), prelu, nn.Conv2d(4, 3, 3, 2), nn.ReLU()).double().eval()
    same(model, *torch.randn(2, 2, 9, 9, dtype=torch.float64))


def test_breaks_that_cancel_at_a_knot():
    """relu(a) - relu(-a) is a: two breaks meet where the next unit is on its knot, and between them its slope is 0."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.ReLU(), nn.Conv2d(2, 1, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        for layer, shape in ((model[0], (2, 1, 1, 1)), (model[2], (1, 2, 1, 1))):
            layer.weight.copy_(torch.tensor([1.0, -1.0]).view(shape))
    Q = torch.full((1, 4, 4), -1.0, dtype=torch.float64)
    Q[0, 0, 0] = -3
    local, _ = same(model.double().eval(), Q, -Q / Q.abs())
    assert local.alphas.tolist() == [0, 0.5, 0.75, 1]
    assert local.origin_table[1:3, 2].tolist() == [45, 3]  # 15 pixels, and one: three units each


def test_sums_that_lose_much_are_left_to_points():
    """Narrow clamps of large values: sums of slopes end far off, however short the stretch."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, 1, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(3, 2, 3, 1, 1), nn.Hardtanh(-1e-3, 1e-3), Apply(torch.abs),
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.mul_(100)
    local, _ = same(model, *torch.randn(2, 1, 6, 6, dtype=torch.float64))
    assert "by points" in local.engine


@pytest.mark.parametrize("seed", [0, 3, 13])
@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_ties_that_sums_have_moved_apart(scale, seed):
    """Where large units are off, all channels follow one pixel and cross with it; sums still carry what was lost."""
    torch.manual_seed(seed)
    side = nn.Sequential(nn.Conv2d(1, 2, 3, 1, 1, bias=False), nn.ReLU())
    model = nn.Sequential(Concat(nn.Identity(), side), nn.Conv2d(3, 2, 1, bias=False), nn.ReLU()).double().eval()
    with torch.no_grad():
        side[0].weight.mul_(scale)
    Q, R = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    local, dense = (xl.restrict(model, Q, R, engine=engine) for engine in ("patches", "dense"))
    assert dense.origin_table[:, 2].max() == 2
    assert torch.equal(local.origin_table, dense.origin_table)
    assert (local.alphas - dense.alphas).abs().max() <= 1e-11


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_what_sums_lost_is_not_handed_over(seed):
    """Steep clamps before a maximum over channels, which only points can pass: there many channels tie."""
    torch.manual_seed(seed)
    front = (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.Hardtanh(-0.3, 0.3))
    back = (Apply(lambda x: x.amax(1, keepdim=True)), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2))
    model = nn.Sequential(*front, *back).double().eval()
    with torch.no_grad():
        front[0].weight.mul_(1e6)
    Q, R = torch.randn(2, 2, 7, 7, dtype=torch.float64)
    local, dense = (xl.restrict(model, Q, R, engine=engine) for engine in ("patches", "dense"))
    assert "by points" not in local.engine
    assert torch.equal(local.origin_table, dense.origin_table)
    assert (local.alphas - dense.alphas).abs().max() <= 1e-11


@pytest.mark.parametrize("scale", [1e12, 1e13, 1e15])
def test_clamps_that_are_steps(scale):
    """Both knots of a unit at what is one place for rounding: between them it goes all the way."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Hardtanh(0.0, 1.0)).double().eval()
    with torch.no_grad():
        model[0].weight.fill_(scale)
    Q = torch.tensor([[[-0.3, -0.7, 0.2, 0.9]]], dtype=torch.float64)
    local, _ = same(model, Q, 0.1 - Q)
    middles = (local.alphas[1:] + local.alphas[:-1]) / 2
    wide = local.alphas[1:] - local.alphas[:-1] > 1e-3
    truth = model(Q + middles[wide].view(-1, 1, 1, 1) * (0.1 - 2 * Q))
    found = (local.values[1:] + local.values[:-1])[wide] / 2
    assert (found - truth).abs().max() <= local.error


@pytest.mark.parametrize("memory", [None, 1 << 14])
def test_units_that_cannot_be_told_from_a_knot_are_counted(memory):
    """Kernels that sum to zero see nothing in a flat image, but for rounding."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU()).double().eval()
    with torch.no_grad():
        model[0].weight.sub_(model[0].weight.mean((1, 2, 3), keepdim=True))
    Q, R = (torch.full((1, 9, 9), value, dtype=torch.float64) for value in (0.3, 0.7))
    R[:, :4, :4] = torch.rand(4, 4)
    Q[:, 2, 1:3] = 0.9
    local, _ = same(model, Q, R, memory=memory)
    assert local.ambiguous > 0
