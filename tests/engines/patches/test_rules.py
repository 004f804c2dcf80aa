"""How patches move, one operator at a time, each against the operator itself."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import exactline as xl
from exactline.engines.patches import maxpool as leading
from exactline.engines.patches import pointwise as turning
from exactline.engines.patches import timeline as scan
from exactline.engines.patches.combine import AddRule
from exactline.engines.patches.convolve import ConvolutionRule
from exactline.engines.patches.patch import BreakSource, PatchGroup, PointPatch, as_whole_maps, box_pixels, zero_outside
from exactline.engines.patches.segment import Segment
from tests.engines.dense.reads import counting

GRID = (3, 9, 11)


def _conv(stride, padding, dilation, kernel):
    weight = torch.randn(4, 3, *kernel, dtype=torch.float64)
    shape = F.conv2d(torch.zeros(1, *GRID, dtype=torch.float64), weight, None, stride, padding, dilation).shape
    return ConvolutionRule(weight, stride, padding, dilation, GRID, (4, shape[2], shape[3]))


def _points(group: PatchGroup | PointPatch, grid: tuple[int, int, int]) -> torch.Tensor:
    return as_whole_maps(group, grid).jump.permute(0, 3, 1, 2)


SETTINGS = [
    ((1, 1), (1, 1), (1, 1), (3, 3)),
    ((1, 1), (0, 0), (1, 1), (1, 1)),
    ((2, 2), (1, 1), (1, 1), (3, 3)),
    ((2, 1), (0, 2), (1, 2), (2, 3)),
    ((3, 2), (2, 0), (2, 1), (3, 2)),
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", ["sparks", "patches", "picked"])
def test_a_convolution_of_patches_is_the_convolution(settings, kind, monkeypatch):
    torch.manual_seed(0)
    conv = _conv(*settings)
    if kind == "sparks":
        pixel = torch.arange(99)
        group = PointPatch(pixel, pixel % 3, torch.randn(99, dtype=torch.float64))
    else:
        top = torch.cartesian_prod(torch.arange(-1, 8), torch.arange(-1, 10))
        group = PatchGroup(top, torch.randn(len(top), 2, 3, 3, dtype=torch.float64))
        outside = box_pixels(top, (2, 3), GRID) == 99
        group.jump.masked_fill_(outside.view(-1, 2, 3, 1), 0.0)
    wanted = F.conv2d(_points(group, GRID), conv.weight, None, *settings[:3])
    if kind == "picked":  # as on a device that is not asked how many patches are of which kind
        found = PatchGroup(conv._top(group.corner), group.jump.new_empty(len(group), *conv.reach(group.size), 4))
        strides, corner = torch.tensor(conv.stride), torch.tensor(conv._corner)
        offset = found.corner * strides - group.corner - corner
        conv._pick(found.jump, group.jump, offset[:, 0] * conv.stride[1] + offset[:, 1])
        found = _points(zero_outside(found, conv.map_shape), conv.map_shape)
    else:
        (moved,) = conv.apply({(BreakSource(0, len(group)),): group}).values()
        found = _points(moved, conv.map_shape)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-13)


def test_branches_that_know_other_breaks_are_added():
    torch.manual_seed(0)
    first, second, third = BreakSource(1, 4), BreakSource(2, 3), BreakSource(5, 2)
    wide = PatchGroup(torch.zeros(7, 2, dtype=torch.int64), torch.randn(7, 9, 11, 3, dtype=torch.float64))
    small = PatchGroup(torch.tensor([[2, 3]] * 4), torch.randn(4, 2, 2, 3, dtype=torch.float64))
    late = PatchGroup(torch.tensor([[5, 6], [0, 1]]), torch.randn(2, 1, 1, 3, dtype=torch.float64))
    both = PatchGroup(torch.tensor([[1, 1]] * 3 + [[4, 4]] * 2), torch.randn(5, 3, 2, 3, dtype=torch.float64))
    left = {(first, second): wide, (third,): late}
    right = {(first,): small, (second, third): both}
    found = AddRule((1.0, -2.0), GRID).apply(left, right)
    assert list(found) == [(first, second, third)]
    one = torch.cat([_points(wide, GRID), _points(late, GRID)])
    other = torch.cat([_points(small, GRID), _points(both, GRID)])
    assert torch.allclose(_points(found[first, second, third], GRID), one - 2 * other, rtol=0, atol=1e-14)


def test_breaks_that_a_branch_does_not_know_are_zero_there():
    known, other = BreakSource(1, 2), BreakSource(3, 1)
    small = PatchGroup(torch.tensor([[2, 3], [6, 1]]), torch.randn(2, 2, 2, 3, dtype=torch.float64))
    more = PatchGroup(torch.tensor([[2, 3], [6, 1], [7, 8]]), torch.randn(3, 2, 2, 3, dtype=torch.float64))
    found = AddRule((1.0, 1.0), GRID).apply({(known,): small}, {(known, other): more})
    (patches,) = found.values()
    wanted = _points(more, GRID)
    wanted[:2] += _points(small, GRID)
    assert patches.size == (2, 2)
    assert torch.equal(_points(patches, GRID), wanted)


def _asked(monkeypatch, model, Q, R):
    """For each breaking node of a stretch: blocks that are looked at, and answers that a device is waited for."""
    counts = []
    with monkeypatch.context() as patch, counting(monkeypatch, numbers=False) as reads:
        turn, settle, blocks = Segment._apply_activation, scan.Timeline.blocks, []

        def watched(self, i, op):
            before, _ = reads.count, blocks.clear()
            field = turn(self, i, op)
            counts.append((len(blocks), reads.count - before))
            return field

        def listed(self, width):
            for block in settle(self, width):
                blocks.append(block)
                yield block

        def static(mask, count):  # as on a device: where the count is known it is not asked for
            return torch.nonzero_static(mask, size=count).unbind(1)

        patch.setattr(Segment, "_apply_activation", watched)
        patch.setattr(scan.Timeline, "blocks", listed)
        patch.setattr(turning, "nonzero", static)
        patch.setattr(leading, "nonzero", static)
        xl.restrict(model, Q, R, engine="patches")
    return counts


def test_a_node_asks_a_device_three_times():
    """How deep its pixels are; what was lost, how near and how many; whether breaks are close: all else stays there."""
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
    Q, R = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    xl.restrict(model, Q, R, engine="patches")  # what is known of the network is found once
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = _asked(monkeypatch, model, Q, R)
    assert len(counts) == 4
    assert [reads - blocks for blocks, reads in counts] == [2] * 4


def test_a_maximum_asks_a_device_once_for_each_step():
    torch.manual_seed(0)
    body = nn.Conv2d(3, 6, 3), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3), nn.ReLU()
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(100, 3)).double()
    Q, R = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    xl.restrict(model, Q, R, engine="patches")
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = _asked(monkeypatch, model, Q, R)
    steps = 4  # a window of four has at most as many leaders on a piece
    assert all(reads - blocks <= 2 + steps * blocks for blocks, reads in counts)
