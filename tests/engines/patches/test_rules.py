"""Patch rules, each compared with the operator itself; and how often a device is synchronized."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import exactline as xl
from exactline.engines.patches.combine import AddRule, ConcatRule
from exactline.engines.patches.convolve import ConvolutionRule
from exactline.engines.patches.patch import (
    BreakSource,
    MapShape,
    PatchGroup,
    PointPatch,
    as_whole_maps,
    box_pixels,
    zero_outside,
)
from exactline.engines.patches.segment import Segment
from exactline.engines.patches.timeline import Timeline
from tests.engines.dense.device_reads import count_reads
from tests.engines.pretend_gpu import pretend_gpu

MAP_SHAPE = MapShape(3, 9, 11)


def _conv(stride, padding, dilation, kernel, groups=1, source_shape=MAP_SHAPE, outputs=4):
    weight = torch.randn(outputs, source_shape.channels // groups, *kernel, dtype=torch.float64)
    zeros = torch.zeros(1, *source_shape, dtype=torch.float64)
    shape = F.conv2d(zeros, weight, None, stride, padding, dilation, groups).shape
    output_map = MapShape(outputs, shape[2], shape[3])
    return ConvolutionRule(weight, stride, padding, dilation, source_shape, output_map, groups)


def _whole_maps(group: PatchGroup | PointPatch, map_shape: MapShape) -> torch.Tensor:  # (n, channels, rows, columns)
    return as_whole_maps(group, map_shape).jump.permute(0, 3, 1, 2)


SETTINGS = [
    ((1, 1), (1, 1), (1, 1), (3, 3)),
    ((1, 1), (0, 0), (1, 1), (1, 1)),
    ((2, 2), (1, 1), (1, 1), (3, 3)),
    ((2, 1), (0, 2), (1, 2), (2, 3)),
    ((3, 2), (2, 0), (2, 1), (3, 2)),
]


GROUPS = [(1, 3, 4), (3, 3, 3), (3, 3, 6), (2, 4, 6)]  # groups, input channels, output channels


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", ["points", "patches", "gathered", "whole"])
def test_a_convolution_of_patches_is_the_convolution(settings, kind, groups):
    torch.manual_seed(0)
    groups, inputs, channels = groups
    source_shape = MapShape(inputs, 9, 11)
    conv = _conv(*settings, groups, source_shape, channels)
    if kind == "points":
        pixel = torch.arange(99)
        group = PointPatch(pixel, pixel % inputs, torch.randn(99, dtype=torch.float64))
    elif kind == "whole":
        zeros = torch.zeros(5, 2, dtype=torch.int64)
        group = PatchGroup(zeros, torch.randn(5, 9, 11, inputs, dtype=torch.float64))
    else:
        corner = torch.cartesian_prod(torch.arange(-1, 8), torch.arange(-1, 10))
        group = PatchGroup(corner, torch.randn(len(corner), 2, 3, inputs, dtype=torch.float64))
        outside = box_pixels(corner, (2, 3), source_shape) == 99
        group.jump.masked_fill_(outside.view(-1, 2, 3, 1), 0.0)
    expected = F.conv2d(_whole_maps(group, source_shape), conv.weight, None, *settings[:3], groups)
    if kind == "gathered":  # as on a GPU, which does not sort patches by phase
        outputs = conv._first_output(group.corner)
        result = PatchGroup(outputs, group.jump.new_empty(len(group), *conv.reach(group.size), channels))
        conv._multiply_gathered(result.jump, group.jump, conv._phases(outputs, group.corner))
        zero_outside(result, conv.map_shape)
    else:
        (result,) = conv.apply({(BreakSource(0, len(group)),): group}).values()
    assert torch.allclose(_whole_maps(result, conv.map_shape), expected, rtol=0, atol=1e-13)


def test_branches_with_different_breaks_are_added():
    torch.manual_seed(0)
    first, second, third = BreakSource(1, 4), BreakSource(2, 3), BreakSource(5, 2)
    wide = PatchGroup(torch.zeros(7, 2, dtype=torch.int64), torch.randn(7, 9, 11, 3, dtype=torch.float64))
    small = PatchGroup(torch.tensor([[2, 3]] * 4), torch.randn(4, 2, 2, 3, dtype=torch.float64))
    late = PatchGroup(torch.tensor([[5, 6], [0, 1]]), torch.randn(2, 1, 1, 3, dtype=torch.float64))
    both = PatchGroup(torch.tensor([[1, 1]] * 3 + [[4, 4]] * 2), torch.randn(5, 3, 2, 3, dtype=torch.float64))
    left = {(first, second): wide, (third,): late}
    right = {(first,): small, (second, third): both}
    total = AddRule((1.0, -2.0), MAP_SHAPE).apply(left, right)
    assert list(total) == [(first, second, third)]
    one = torch.cat([_whole_maps(wide, MAP_SHAPE), _whole_maps(late, MAP_SHAPE)])
    other = torch.cat([_whole_maps(small, MAP_SHAPE), _whole_maps(both, MAP_SHAPE)])
    assert torch.allclose(_whole_maps(total[first, second, third], MAP_SHAPE), one - 2 * other, rtol=0, atol=1e-14)


def test_breaks_that_a_branch_does_not_have_are_zero_there():
    known, other = BreakSource(1, 2), BreakSource(3, 1)
    small = PatchGroup(torch.tensor([[2, 3], [6, 1]]), torch.randn(2, 2, 2, 3, dtype=torch.float64))
    more = PatchGroup(torch.tensor([[2, 3], [6, 1], [7, 8]]), torch.randn(3, 2, 2, 3, dtype=torch.float64))
    (patches,) = AddRule((1.0, 1.0), MAP_SHAPE).apply({(known,): small}, {(known, other): more}).values()
    expected = _whole_maps(more, MAP_SHAPE)
    expected[:2] += _whole_maps(small, MAP_SHAPE)
    assert patches.size == (2, 2)
    assert torch.equal(_whole_maps(patches, MAP_SHAPE), expected)


def test_whole_maps_start_at_the_corner_of_the_map():
    """Also where breaks that a branch does not have have smaller patches in another branch."""
    known, other = BreakSource(1, 2), BreakSource(3, 1)
    whole = PatchGroup(torch.zeros(2, 2, dtype=torch.int64), torch.randn(2, 9, 11, 3, dtype=torch.float64))
    more = PatchGroup(torch.tensor([[2, 3], [6, 1], [7, 8]]), torch.randn(3, 2, 2, 3, dtype=torch.float64))
    concat = ConcatRule((MAP_SHAPE, MAP_SHAPE), MapShape(6, 9, 11))
    (patches,) = concat.apply({(known,): whole}, {(known, other): more}).values()
    assert isinstance(patches, PatchGroup)
    assert patches.size == (9, 11)
    assert not patches.corner.any()


@pytest.mark.parametrize("channels", [[2, 0, 4], [5, 4, 3, 2, 1, 0], [1, 1, 3]], ids=str)
def test_channels_of_a_concatenation_are_selected_in_any_order(channels):
    torch.manual_seed(0)
    first, second = BreakSource(1, 4), BreakSource(2, 3)
    left = {(first,): PatchGroup(torch.tensor([[2, 3]] * 4), torch.randn(4, 2, 2, 3, dtype=torch.float64))}
    pixel = torch.tensor([5, 50, 98])
    right = {(second,): PointPatch(pixel, torch.tensor([0, 1, 2]), torch.randn(3, dtype=torch.float64))}
    concat = ConcatRule((MAP_SHAPE, MAP_SHAPE), MapShape(len(channels), 9, 11), torch.tensor(channels))
    output = concat.apply(left, right)
    for branch, (source, group) in enumerate([((first,), left[first,]), ((second,), right[second,])]):
        maps = [torch.zeros(len(group), *MAP_SHAPE, dtype=torch.float64)] * 2
        maps[branch] = _whole_maps(group, MAP_SHAPE)
        assert torch.equal(_whole_maps(output[source], concat.map_shape), torch.cat(maps, 1)[:, channels])


def _count_blocks_and_reads(monkeypatch, model, start, end):
    """For each breaking node of a segment: the number of blocks, and of synchronizations with a device."""
    counts = []
    with monkeypatch.context() as patch, pretend_gpu(monkeypatch), count_reads(monkeypatch) as reads:
        apply_activation, timeline_blocks, blocks = Segment._apply_activation, Timeline.blocks, []

        def counting_apply(self, i, op):
            before, _ = reads.count, blocks.clear()
            tensor = apply_activation(self, i, op)
            counts.append((len(blocks), reads.count - before))
            return tensor

        def recording_blocks(self, width):
            for block in timeline_blocks(self, width):
                blocks.append(block)
                yield block

        patch.setattr(Segment, "_apply_activation", counting_apply)
        patch.setattr(Timeline, "blocks", recording_blocks)
        xl.restrict(model, start, end, engine="patches")
    return counts


def test_a_node_synchronizes_three_times():
    """The depth of its pixels; per block, drift, distances and number of crossings; whether breaks are close.

    A node that no break reaches asks in addition whether one arises there.
    """
    torch.manual_seed(0)
    body = (
        nn.Conv2d(3, 6, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 2, 2),
        nn.ReLU(),
    )
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(128, 20), nn.ReLU(), nn.Linear(20, 3)).double()
    start, end = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    xl.restrict(model, start, end, engine="patches")  # plans are cached
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = _count_blocks_and_reads(monkeypatch, model, start, end)
    assert len(counts) == 4
    assert [reads - blocks for blocks, reads in counts] == [3, 2, 2, 2]


def test_a_maximum_synchronizes_once_for_each_leader():
    """And once a block for windows that may be ambiguous."""
    torch.manual_seed(0)
    body = nn.Conv2d(3, 6, 3), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3), nn.ReLU()
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(100, 3)).double()
    start, end = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    xl.restrict(model, start, end, engine="patches")
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = _count_blocks_and_reads(monkeypatch, model, start, end)
    leaders = 4  # a window of four pixels has at most as many leaders on a piece
    assert all(reads - blocks <= 2 + (leaders + 1) * blocks for blocks, reads in counts)
