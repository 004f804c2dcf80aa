"""The kernels for GPUs give what the general code gives; without a GPU they run in Triton's interpreter."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.patches import fused
from exactline.engines.patches.candidates import _value_ranges
from exactline.engines.patches.convolve import ConvolutionRule
from exactline.engines.patches.patch import BreakSource, MapShape, PatchGroup, as_whole_maps, patch_pixels
from exactline.engines.patches.pointwise import PointwisePatchRule, gather_rows
from exactline.engines.patches.timeline import ActivationOutput, BreakAlphas, NeedsDenseFallback, NodeInput

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(find_spec("triton") is None, reason="the kernels for GPUs need Triton: make test-kernels"),
]
SHAPES = [(MapShape(3, 3, 4), 12, (2, 3)), (MapShape(34, 2, 2), 40, (2, 2))]


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Makes kernels run on this machine; `setattr` on it returns to the general code."""
    if DEVICE.type == "cpu":
        kernels = importlib.import_module("exactline.engines.patches.gpu_kernels")
        monkeypatch.setattr(fused, "fused_kernels", lambda x: kernels if x.dtype == torch.float64 else None)
    assert fused.fused_kernels(torch.zeros(1, dtype=torch.float64, device=DEVICE)) is not None
    return monkeypatch


class _Random:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=self.generator).to(DEVICE)

    def node_input(self, map_shape: MapShape, breaks: int, size: tuple[int, int]) -> NodeInput:
        """Patches at random places and alphas, and values at the stop that agree with them."""
        start, stop = 0.25, 0.75
        shares = torch.rand(breaks, dtype=torch.float64, generator=self.generator).to(DEVICE)
        alphas = start + (stop - start) * shares
        corner = [torch.randint(-1, n, (breaks,), generator=self.generator) for n in map_shape.size]
        patches = PatchGroup(torch.stack(corner, 1).to(DEVICE), self.normal(breaks, *size, map_shape.channels))
        left, slope = self.normal(2, map_shape.pixels, map_shape.channels) * torch.tensor([[[0.5]], [[2.0]]]).to(DEVICE)
        right = torch.zeros(map_shape.pixels + 1, map_shape.channels, dtype=torch.float64, device=DEVICE)
        steps = (patches.jump * (stop - alphas)[:, None, None, None]).reshape(-1, map_shape.channels)
        right.index_add_(0, patch_pixels(patches, map_shape).flatten(), steps)
        return NodeInput(
            map_shape,
            start,
            stop,
            left=left,
            right=left + slope * (stop - start) + right[:-1],
            slope=slope,
            groups={(BreakSource(0, breaks),): patches},
            break_alphas=BreakAlphas({0: alphas}),
            threshold=1e-11,
            thresholds=torch.full_like(left, 1e-11),
            min_difference=torch.full_like(left, 1e-16),
            max_drift=1e-11,
            refine=_refine,
            least_errors=lambda alphas, elements: torch.zeros_like(alphas),
            max_numbers=1e9,
            records_patterns=True,
            records_switches=False,
            end_bounds=lambda: (left * 0, left * 0),
            candidates=[],
        )


def _refine(*_: object) -> tuple[Tensor, Tensor]:
    raise AssertionError("no value is near a knot")


def _assert_same_outputs(fused_output: ActivationOutput, output: ActivationOutput) -> None:
    close = {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(fused_output.slope, output.slope, **close)
    torch.testing.assert_close(fused_output.pattern, output.pattern, **close)
    for group, other in zip(fused_output.groups.values(), output.groups.values(), strict=True):
        torch.testing.assert_close(group.jump, other.jump, **close)
    ours, theirs = fused_output.new_breaks, output.new_breaks
    order, other_order = (torch.argsort(new.alpha) for new in (ours, theirs))
    assert len(order) > 5
    for name in ("alpha", "pixel", "channel", "jump", "slope", "element", "partner", "slope_change"):
        torch.testing.assert_close(getattr(ours, name)[order], getattr(theirs, name)[other_order], **close)


@pytest.mark.parametrize(("map_shape", "breaks", "size"), SHAPES)
@pytest.mark.parametrize("activation", ["relu", "relu6", "per channel"])
def test_pointwise(
    general: pytest.MonkeyPatch, activation: str, map_shape: MapShape, breaks: int, size: tuple[int, int]
) -> None:
    random = _Random(breaks)
    knots, slopes = {
        "relu": ((0.0,), (0.0, 1.0)),
        "relu6": ((-0.5, 0.75), (0.0, 1.0, 0.0)),
        "per channel": ((0.0,), (random.normal(map_shape.channels), 1.0)),
    }[activation]
    rule, node_input = PointwisePatchRule(knots, slopes, map_shape), random.node_input(map_shape, breaks, size)
    fused_output = rule.apply(node_input)
    general.setattr(fused, "fused_kernels", lambda _: None)
    _assert_same_outputs(fused_output, rule.apply(node_input))


def test_values_near_a_knot_are_left_to_the_general_code(general: pytest.MonkeyPatch) -> None:
    map_shape, breaks, size = SHAPES[0]
    node_input = _Random(0).node_input(map_shape, breaks, size)
    rows, timeline, _ = gather_rows(node_input)
    knot = float(node_input.left[3, 1]) + 1e-12
    for knots, slopes in [((knot,), (0.0, 1.0)), ((-9.0, knot), (0.0, 1.0, 0.5))]:
        assert fused.apply_pointwise(PointwisePatchRule(knots, slopes, map_shape), node_input, rows, timeline) is None


@pytest.mark.parametrize(("map_shape", "breaks", "size"), SHAPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_value_ranges(
    general: pytest.MonkeyPatch, sign: int, map_shape: MapShape, breaks: int, size: tuple[int, int]
) -> None:
    node_input = _Random(breaks).node_input(map_shape, breaks, size)
    ranges = _value_ranges(node_input, sign)
    general.setattr(fused, "fused_kernels", lambda _: None)
    for numbers, others in zip(ranges, _value_ranges(node_input, sign), strict=True):
        torch.testing.assert_close(numbers, others, rtol=1e-12, atol=1e-12)


def test_restriction(general: pytest.MonkeyPatch) -> None:
    """Kernels at every kind of node of a network, against the general code."""
    torch.manual_seed(0)
    body = nn.Conv2d(2, 4, 3, padding=1), nn.ReLU6(), nn.Conv2d(4, 4, 3, 2, 1, groups=4), nn.PReLU(4), nn.MaxPool2d(2)
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(4, 2)).double().to(DEVICE)
    start, end = torch.randn(2, 2, 4, 4, dtype=torch.float64).to(DEVICE) * 4
    launched, launch = set[str](), fused._Entries.launch

    def recording_launch(self: fused._Entries, kernel: Any, *arguments: Any, **options: Any) -> None:
        launched.add(kernel.__name__)
        launch(self, kernel, *arguments, **options)

    general.setattr(fused._Entries, "launch", recording_launch)
    line = xl.restrict(model, start, end, engine="patches")
    assert launched == {"find_ranges", "count_crossings", "apply_branches"}
    general.setattr(fused, "fused_kernels", lambda _: None)
    expected = xl.restrict(model, start, end, engine="patches")
    assert len(line) > 20
    torch.testing.assert_close(line.alphas, expected.alphas, rtol=0, atol=1e-12)
    torch.testing.assert_close(line.values, expected.values, rtol=0, atol=1e-11)


def test_drift_is_noticed(general: pytest.MonkeyPatch) -> None:
    node_input = _Random(1).node_input(*SHAPES[0])
    node_input = replace(node_input, right=node_input.right + 1e-3)
    with pytest.raises(NeedsDenseFallback):
        PointwisePatchRule((0.0,), (0.0, 1.0), SHAPES[0][0]).apply(node_input)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [((3, 3), (1, 1), (1, 1), (1, 1)), ((5, 5), (2, 2), (2, 2), (1, 1)), ((3, 2), (2, 1), (0, 1), (2, 3))],
)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4)])
def test_depthwise_convolutions(
    general: pytest.MonkeyPatch,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
) -> None:
    random, channels, count = _Random(2), 35, 5
    source = MapShape(channels, 9, 7)
    out_size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(source.size, padding, dilation, kernel, stride, strict=True)
    ]
    weight = random.normal(channels, 1, *kernel)
    rule = ConvolutionRule(weight, stride, padding, dilation, source, MapShape(channels, *out_size), groups=channels)
    corner = torch.randint(-1, 7, (count, 2), generator=random.generator).to(DEVICE)
    patches = PatchGroup(corner, random.normal(count, *size, channels))
    convolved = rule._convolve_patches(patches, rule.reach(size))
    whole = rule._convolve_whole_maps(as_whole_maps(patches, source))
    general.setattr(fused, "fused_kernels", lambda _: None)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(convolved.jump, rule._convolve_patches(patches, rule.reach(size)).jump, **close)
    torch.testing.assert_close(whole.jump, rule._convolve_whole_maps(as_whole_maps(patches, source)).jump, **close)
