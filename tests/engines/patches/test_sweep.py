"""The patch engine agrees with the dense engine: in origins, alphas, values and ambiguous units."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr.path_integrals import path_integral
from exactline.engines.patches.segment import Segment
from exactline.engines.patches.segmentation import MAX_CUT_DEPTH
from exactline.lines import as_lines
from exactline.network import as_network
from tests.engines.patches.random_graphs import random_graph
from tests.oracle.families import FAMILIES, Apply, Concat, small_integers


def assert_same(
    model: nn.Module | xl.Network, start: Tensor, end: Tensor, **options
) -> tuple[xl.Restriction, xl.Restriction]:
    dense = xl.restrict(model, start, end, engine="dense")
    patches = xl.restrict(model, start, end, engine="patches", **options)
    assert len(patches) == len(dense)
    assert (patches.origin_table == dense.origin_table).all()
    assert (patches.ambiguous_per_piece == dense.ambiguous_per_piece).all()
    assert (patches.alphas - dense.alphas).abs().max() <= 1e-11
    for a, b in zip(patches.stored_values, dense.stored_values, strict=True):
        assert (a - b).abs().max() <= max(patches.error, dense.error) * 16 + 1e-13
    return patches, dense


@pytest.mark.parametrize("seed", [*range(9), *range(10, 16)])
@pytest.mark.every(15)
def test_random_graphs(seed):
    assert_same(*random_graph(seed))


@pytest.mark.slow
def test_500_random_graphs():
    with_fallback = 0
    for seed in range(16, 516):
        patches, _ = assert_same(*random_graph(seed))
        with_fallback += "of them dense" in patches.engine
    assert with_fallback < 300


def test_leaders_that_change_exactly_at_a_break_are_counted_there():
    model, start, end = random_graph(58)  # windows of a second pool change their leader where those of the first do
    start, end = start + 1000, end + 1000
    exact = [0 if origin is None else origin.count for origin in xl.exact.restrict(model, start, end).origins]
    for options in ({"engine": "patches"}, {"engine": "dense"}, {"engine": "dense", "memory": 1 << 16}):
        assert xl.restrict(model, start, end, **options).origin_table[:, 2].tolist() == exact


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.every(6)
def test_short_lines(seed):
    model, start, end = random_graph(seed)
    assert_same(model, start, start + 0.01 * (end - start))
    assert_same(model, start + 1000, end + 1000)
    grid = (start * 4).round() / 4
    assert_same(model, grid, grid + 2**-8 * (end * 4).round())


@pytest.mark.parametrize("max_breaks", [1, 40])
def test_a_limit_of_breaks_ends_the_sweep_soon_after_it(max_breaks, monkeypatch):
    model, start, end = random_graph(3)
    whole = xl.restrict(model, start, end, engine="patches")
    swept = 0
    run = Segment.run

    def count_breaks(self):
        nonlocal swept
        breaks = run(self)
        swept += len(breaks.alphas)
        return breaks

    monkeypatch.setattr(Segment, "run", count_breaks)
    for seconds in (None, 1000):
        swept = 0
        part = xl.restrict(model, start, end, engine="patches", max_breaks=max_breaks, seconds=seconds)
        assert part.stopped == "max_breaks"
        assert len(part.alphas) == max_breaks
        assert (part.alphas - whole.alphas[:max_breaks]).abs().max() <= 1e-11
        assert (part.origin_table == whole.origin_table[:max_breaks]).all()
        assert swept <= 2 * max_breaks + 32


@pytest.mark.parametrize("memory", [1, 1 << 12, 1 << 15, 1 << 20])
@pytest.mark.slow
def test_every_segment_size(memory):
    for seed in (3, 8):
        assert_same(*random_graph(seed), memory=memory)


def test_says_which_engine_ran_and_why():
    model, start, end = random_graph(3)
    assert xl.restrict(model, start, end, engine="dense").engine == "dense (requested)"
    assert xl.restrict(model, start, end, engine="patches").engine.startswith("patches (requested")
    assert xl.restrict(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.zeros(3), torch.ones(3)).engine.startswith(
        "dense (no feature maps"
    )
    with pytest.raises(xl.ArgumentError, match="no engine 'quick'"):
        xl.restrict(model, start, end, engine="quick")


@pytest.mark.parametrize("seed", [0, 4, 5, 7, 11, 18])
@pytest.mark.every(6)
def test_gradients_by_patches(seed):
    """Integrals of gradients agree with the dense engine, also where some segments are swept densely."""
    model, start, end = random_graph(seed)
    network = as_network(model, [start])
    lines = as_lines(start, end, ("start", "end"), many=False)
    dense, patches = (path_integral(network, lines, torch.tensor([1]), engine=e) for e in ("dense", "patches"))
    assert patches.pieces == dense.pieces
    for a, b in zip(patches.gradients, dense.gradients, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "padding"), [(3, 3, 1, 1), (4, 4, 2, 1), (5, 5, 1, 2), (3, 3, 2, 2)]
)
@pytest.mark.every(2)
def test_gradients_where_a_kernel_is_as_large_as_its_map(side, kernel, stride, padding):
    """The gradient of one output is then a patch of the size of the map that is not aligned with it."""
    torch.manual_seed(side + padding)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(3, 4, kernel, stride, padding), nn.ReLU(),
        nn.Conv2d(4, 2, 2),
    ).double().eval()  # fmt: skip
    start, end = torch.randn(2, 2, 2 * side, 2 * side, dtype=torch.float64)
    network, lines = as_network(model, [start]), as_lines(start, end, ("start", "end"), many=False)
    for target in (0, 1):
        dense, patches = (path_integral(network, lines, torch.tensor([target]), engine=e) for e in ("dense", "patches"))
        assert patches.pieces == dense.pieces > 5
        assert (patches.gradients[0] - dense.gradients[0]).abs().max() <= 1e-13
        with torch.no_grad():
            whole = model(torch.stack([start, end])).flatten(1)[:, target]
        assert float((patches.gradients[0][0] * (end - start)).sum()) == pytest.approx(
            float(whole[1] - whole[0]), abs=1e-12
        )


def test_a_line_that_starts_at_a_black_image():
    """Units that are on a knot at the start of the line do not break there."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * 16, 3),
    ).double().eval()  # fmt: skip
    assert_same(model, torch.zeros(1, 8, 8, dtype=torch.float64), torch.rand(1, 8, 8, dtype=torch.float64))


def test_single_precision_patches_find_as_many_breaks():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    ).eval()
    start, end = torch.randn(2, 3, 16, 16)
    single = xl.restrict(model, start, end, engine="patches", dtype=torch.float32)
    exact = xl.restrict(model, start, end, engine="dense")
    assert abs(len(single) - len(exact)) <= max(1, len(exact) // 1000)
    if len(single) == len(exact):
        assert (single.alphas - exact.alphas).abs().max() < 1e-4


def test_streams_with_both_engines():
    model, start, end = random_graph(8)
    whole = xl.restrict(model, start, end, engine="patches")
    parts = list(xl.sweep(model, start, end, engine="patches", memory=1 << 14))
    assert len(parts) > 1
    for one, two in pairwise(parts):
        assert one.alphas[-1] == two.alphas[0]
    assert sum(len(p) for p in parts) == len(whole)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.every(9)
def test_every_family(family):
    """Networks of every kind, small as they are; the engine is forced."""
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        model, shape = FAMILIES[family](g)
        start, end = torch.randn(2, *shape, generator=g, dtype=torch.float64)
        assert_same(model.eval().double(), start.mul(2).round() if seed else start, end)


@pytest.mark.slow
def test_ties_everywhere_and_every_segment_size():
    """Small integers: crossings coincide, and fall on the ends of segments."""
    for seed in (100, 101):
        g = torch.Generator().manual_seed(seed)
        model, shape = FAMILIES["concat"](g)
        small_integers(g, model)
        starts, ends = torch.randint(-9, 10, (2, 40, *shape), generator=g).double()
        for i in (0, 5, 17, 37):
            for memory in (None, 1):
                assert_same(model, starts[i], ends[i], memory=memory)


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
            start, end = torch.randint(-9, 10, (2, *shape), generator=g).double()
            for memory in (None, 1):
                assert_same(model.eval().double(), start, end, memory=memory)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.every(2)
def test_images_of_uniform_blocks_need_no_dense_fallback(pooled):
    """Equal pixels break together and tie in every window, all along the line."""
    pool = [nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, 1, 1)] if pooled else [nn.Conv2d(8, 8, 4, 2, 1)]
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), *pool, nn.ReLU(), nn.Flatten(), nn.Linear(512, 20), nn.ReLU()
    ).double().eval()  # fmt: skip
    for step in (4, 8):
        coarse = torch.rand(2, 3, 16 // step, 16 // step, dtype=torch.float64)
        start, end = nn.functional.interpolate(coarse, scale_factor=step)
        for image in (start, torch.zeros_like(start)):
            patches, _ = assert_same(model, image, end)
            assert "of them dense" not in patches.engine
        assert patches.origin_table[:, 2].max() > 1


@pytest.mark.parametrize("name", ["eran/mnist/mnist_conv_maxpool.onnx", "eran/mnist/convSmallRELU__Point.onnx"])
@pytest.mark.every(2)
def test_digits_on_black_need_no_dense_fallback(data, name):
    """Most pixels of such images are equal, and some units of trained networks have tiny weights."""
    pixels = gzip.decompress((data / "images/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 28, 28).double() / 255
    network = xl.load(data / name)
    shape = network.nodes[network.inputs[0]].shape
    for start, end in ((torch.zeros(shape, dtype=torch.float64), images[0]), (images[0], images[2])):
        patches, _ = assert_same(network, start.reshape(shape), end.reshape(shape))
        assert "of them dense" not in patches.engine


def test_slopes_that_differ_between_channels():
    torch.manual_seed(1)
    prelu = nn.PReLU(4)
    with torch.no_grad():
        prelu.weight.copy_(torch.tensor([0.1, -0.2, 0.5, 1.5]))
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), prelu, nn.Conv2d(4, 3, 3, 2), nn.ReLU()).double().eval()
    assert_same(model, *torch.randn(2, 2, 9, 9, dtype=torch.float64))


def test_breaks_that_cancel_at_a_knot():
    """relu(a) - relu(-a) is a: two breaks meet where the next unit is on its knot, and between them its slope is 0."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.ReLU(), nn.Conv2d(2, 1, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        for layer, shape in ((model[0], (2, 1, 1, 1)), (model[2], (1, 2, 1, 1))):
            layer.weight.copy_(torch.tensor([1.0, -1.0]).view(shape))
    start = torch.full((1, 4, 4), -1.0, dtype=torch.float64)
    start[0, 0, 0] = -3
    patches, _ = assert_same(model.double().eval(), start, -start / start.abs())
    assert patches.alphas.tolist() == [0, 0.5, 0.75, 1]
    assert patches.origin_table[1:3, 2].tolist() == [45, 3]  # 15 pixels, and one: three units each


def test_sums_with_large_drift_are_swept_densely():
    """Narrow clamps of large values: sums of slopes drift, however short the segment."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, 1, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(3, 2, 3, 1, 1), nn.Hardtanh(-1e-3, 1e-3), Apply(torch.abs),
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.mul_(100)
    patches, _ = assert_same(model, *torch.randn(2, 1, 6, 6, dtype=torch.float64))
    assert "of them dense" in patches.engine


@pytest.mark.parametrize("seed", [0, 3, 13])
@pytest.mark.parametrize("scale", [1e2, 1e4])
@pytest.mark.every(3)
def test_ties_that_drift_has_separated(scale, seed):
    """While large units are off, all channels follow one pixel and cross with it; their sums have drifted before."""
    torch.manual_seed(seed)
    side = nn.Sequential(nn.Conv2d(1, 2, 3, 1, 1, bias=False), nn.ReLU())
    model = nn.Sequential(Concat(nn.Identity(), side), nn.Conv2d(3, 2, 1, bias=False), nn.ReLU()).double().eval()
    with torch.no_grad():
        side[0].weight.mul_(scale)
    start, end = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    patches, dense = (xl.restrict(model, start, end, engine=engine) for engine in ("patches", "dense"))
    assert dense.origin_table[:, 2].max() == 2
    assert torch.equal(patches.origin_table, dense.origin_table)
    assert (patches.alphas - dense.alphas).abs().max() <= 1e-11


@pytest.mark.parametrize("seed", [0, 2, 4])
@pytest.mark.every(3)
def test_drift_is_not_handed_over_to_the_dense_engine(seed):
    """Steep clamps before a maximum over channels, which has no patch rule: there many channels tie."""
    torch.manual_seed(seed)
    front = (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.Hardtanh(-0.3, 0.3))
    back = (Apply(lambda x: x.amax(1, keepdim=True)), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2))
    model = nn.Sequential(*front, *back).double().eval()
    with torch.no_grad():
        front[0].weight.mul_(1e6)
    start, end = torch.randn(2, 2, 7, 7, dtype=torch.float64)
    patches, dense = (xl.restrict(model, start, end, engine=engine) for engine in ("patches", "dense"))
    assert "of them dense" not in patches.engine
    assert torch.equal(patches.origin_table, dense.origin_table)
    assert (patches.alphas - dense.alphas).abs().max() <= 1e-11


@pytest.mark.parametrize("scale", [1e12, 1e13, 1e15])
@pytest.mark.every(2)
def test_clamps_that_are_steps(scale):
    """Both knots of a unit at one alpha, up to rounding: the value steps from one to the other."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Hardtanh(0.0, 1.0)).double().eval()
    with torch.no_grad():
        model[0].weight.fill_(scale)
    start = torch.tensor([[[-0.3, -0.7, 0.2, 0.9]]], dtype=torch.float64)
    patches, _ = assert_same(model, start, 0.1 - start)
    middles = (patches.alphas[1:] + patches.alphas[:-1]) / 2
    wide = patches.alphas[1:] - patches.alphas[:-1] > 1e-3
    truth = model(start + middles[wide].view(-1, 1, 1, 1) * (0.1 - 2 * start))
    values = (patches.values[1:] + patches.values[:-1])[wide] / 2
    assert (values - truth).abs().max() <= patches.error


@pytest.mark.parametrize("memory", [None, 1 << 14])
def test_ambiguous_units_are_counted(memory):
    """On a uniform image, kernels that sum to zero give zero up to rounding."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU()).double().eval()
    with torch.no_grad():
        model[0].weight.sub_(model[0].weight.mean((1, 2, 3), keepdim=True))
    start, end = (torch.full((1, 9, 9), value, dtype=torch.float64) for value in (0.3, 0.7))
    end[:, :4, :4] = torch.rand(4, 4)
    start[:, 2, 1:3] = 0.9
    patches, _ = assert_same(model, start, end, memory=memory)
    assert patches.ambiguous > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reverse", [False, True], ids=["end", "start"])
def test_a_short_line_that_ends_at_a_break_is_cut_a_few_times_only(seed, reverse, monkeypatch):
    """A unit that is so near its knot that rounding hides on which side it is: the dense engine sweeps a short part."""
    torch.manual_seed(seed)
    convolutions = [nn.Sequential(nn.Conv2d(k, 6, 3, padding=1), nn.ReLU()) for k in (2, 6, 6)]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(600, 3)).double().eval()
    start, end = torch.randn(2, 2, 10, 10, dtype=torch.float64)
    breaks = xl.restrict(model, start, end, engine="dense", rewrite=False).alphas
    knot = torch.lerp(start, end, float(breaks[len(breaks) // 2]))
    attempts, run = list[float](), Segment.run

    def count(segment):
        attempts.append(segment.start)
        return run(segment)

    monkeypatch.setattr(Segment, "run", count)
    for length in (3e-5, 1e-5):  # errors of 1e-16 hide a crossing by more than 1e-10 of the line
        ends = (knot, knot + length * (start - end)) if reverse else (knot - length * (end - start), knot)
        attempts.clear()
        patches, dense = (xl.restrict(model, *ends, engine=engine) for engine in ("patches", "dense"))
        assert len(attempts) <= 2 * (MAX_CUT_DEPTH + 1)
        assert torch.allclose(patches.alphas, dense.alphas, rtol=0, atol=1e-9)
