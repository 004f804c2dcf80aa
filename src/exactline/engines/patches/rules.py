"""The patch rule of every operator: a table from operator class to a rule of this engine.

An affine operator without a rule of its own is applied to whole maps. At an activation without one, the dense engine
takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from ...ops.base import Affine, Breaking
from ...ops.maximum import Maximum
from ...ops.pointwise import Pointwise
from .channelwise import ChannelwiseRule
from .combine import AddRule, ConcatRule
from .convolve import ConvolutionRule
from .linear import ChannelScaleRule, LinearRule, WholeMapRule
from .maxpool import MaximumPatchRule
from .patch import AffinePatchRule, MapShape, map_shape_of
from .pointwise import PointwisePatchRule
from .timeline import ActivationPatchRule

MAX_TABLE_ENTRIES = 1 << 24  # output pixels times input pixels of a `ChannelwiseRule`
MAX_UNIT_MAP_NUMBERS = 1 << 20  # of all input pixels as maps of their own: more are transposed instead
Maps = Sequence[MapShape]
Shape = tuple[int, ...]
Shapes = Sequence[Shape]
AffineRuleMaker = Callable[..., AffinePatchRule | None]  # (op, input_maps, input_shapes, output_shape)
AFFINE_RULES: dict[type[Affine], AffineRuleMaker] = {}


def affine_rule(op: Affine, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule:
    """The rule of an affine operator.

    Args:
        op: The operator.
        input_maps: The maps that its inputs are treated as. They differ from the shapes after a flattening, which
            keeps the map.
        input_shapes: The shapes of its inputs.
        output_shape: The shape of its output.
    """
    rule = None
    if type(op) in AFFINE_RULES:
        rule = AFFINE_RULES[type(op)](op, input_maps, input_shapes, output_shape)
    if rule is None:
        rule = WholeMapRule(op.linear, tuple(input_shapes), output_shape, tuple(input_maps), map_shape_of(output_shape))
    return rule


def activation_rule(
    op: Breaking, input_map: MapShape, input_shape: Shape, labels: Tensor | None = None
) -> ActivationPatchRule | None:
    """The rule of a breaking operator; None where the dense engine must take over.

    ``labels`` (elements,) are equal for elements of the input that are equal by structure; None: all differ.
    """
    match op:
        case Pointwise():
            return _pointwise(op, input_map, input_shape)
        case Maximum():
            return _maximum(op, input_map, input_shape, labels)
        case _:
            return None


def _register(op_class: type[Affine]) -> Callable[[AffineRuleMaker], AffineRuleMaker]:
    """Decorator: enter a function into `AFFINE_RULES`."""

    def add(make: AffineRuleMaker) -> AffineRuleMaker:
        AFFINE_RULES[op_class] = make
        return make

    return add


@_register(Product)
def _product(op: Product, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Linear layers of vectors, and convolutions."""
    settings, input_map = op.settings, input_maps[0]
    if op.call is F.linear and len(input_shapes[0]) == 1:
        return LinearRule(op.weight, input_map, MapShape(len(op.weight), 1, 1))
    is_convolution = "stride" in settings and not settings["transposed"]
    if not is_convolution or len(output_shape) not in (2, 3) or input_map != map_shape_of(input_shapes[0]):
        return None
    is_1d = len(output_shape) == 2  # one spatial dim: a map of one row

    def pair(key: str, fill: int) -> tuple[int, int]:
        return (fill, settings[key][0]) if is_1d else (settings[key][0], settings[key][1])

    return ConvolutionRule(
        op.weight[:, :, None] if is_1d else op.weight,
        stride=pair("stride", 1),
        padding=pair("padding", 0),
        dilation=pair("dilation", 1),
        source_shape=input_map,
        map_shape=map_shape_of(output_shape),
        groups=settings["groups"],
    )


@_register(Scale)
def _scale(op: Scale, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Factors that are equal within every channel."""
    factor = op.linear(torch.ones(1, *input_shapes[0], device=op.device, dtype=op.dtype))[0]
    if not tuple(factor.shape) == tuple(input_shapes[0]) == tuple(output_shape):
        return None
    by_channel = _per_channel(factor, input_maps[0])
    return None if by_channel is None else ChannelScaleRule(by_channel, input_maps[0])


@_register(Combine)
def _combine(op: Combine, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Sums of inputs of one shape, without broadcasting."""
    same = all(tuple(s) == tuple(output_shape) for s in input_shapes) and len(set(input_maps)) == 1
    return AddRule(op.factors, input_maps[0]) if same else None


@_register(Average)
def _average(op: Average, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Pooling, upsampling, and means and sums over all spatial dims."""
    input_map, output_map = input_maps[0], map_shape_of(output_shape)
    is_spatial = len(input_shapes[0]) in (2, 3)
    pools = op.name.startswith(("avg_pool", "adaptive_avg_pool", "_adaptive_avg_pool", "upsample"))
    dims = op.settings.get("dims", ())
    reduces = op.name in ("mean", "sum") and len(dims) == len(input_shapes[0]) - 1 and 0 not in dims
    if not (is_spatial and (pools or reduces) and _is_channelwise(input_map, input_shapes[0], output_map)):
        return None
    return ChannelwiseRule(_average_table(op, input_shapes[0][1:], output_map), input_map, output_map)


@_register(Rearrange)
def _rearrange(op: Rearrange, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Concatenations and selections of whole channels, and one selection of pixels for all channels."""
    if (concat := _concatenation(op, input_maps, output_shape)) is not None:
        return concat
    input_map, output_map = input_maps[0], map_shape_of(output_shape)
    if len(input_maps) > 1 or not _is_channelwise(input_map, input_shapes[0], output_map):
        return None
    index = op.index.view(output_map.channels, output_map.pixels)
    pixel = _pixels_in_channel(index, input_map)
    if pixel is None:
        return None
    matrix = torch.zeros(output_map.pixels, input_map.pixels + 1, dtype=torch.float64, device=index.device)
    matrix.scatter_(1, torch.where(pixel >= 0, pixel, input_map.pixels)[:, None], 1.0)
    return ChannelwiseRule(matrix[:, :-1].contiguous(), input_map, output_map)


def _average_table(op: Average, size: Shape, output_map: MapShape) -> Tensor:
    """The weight of every input pixel in every output pixel, (output pixels, input pixels)."""
    pixels = prod(size)
    if pixels <= output_map.pixels or pixels * pixels <= MAX_UNIT_MAP_NUMBERS:
        unit_maps = torch.eye(pixels, dtype=torch.float64).view(pixels, 1, *size)
        return op.call(unit_maps).reshape(pixels, -1).T.contiguous()
    with torch.enable_grad():  # the transposed map: there are fewer output pixels
        maps = torch.zeros(output_map.pixels, 1, *size, dtype=torch.float64, requires_grad=True)
        averages = op.call(maps)
        unit_grads = torch.eye(output_map.pixels, dtype=torch.float64).view(averages.shape)
        return torch.autograd.grad(averages, maps, unit_grads)[0].reshape(output_map.pixels, pixels)


def _concatenation(op: Rearrange, input_maps: Maps, output_shape: Shape) -> ConcatRule | None:
    """The rule of an operator whose output consists of whole channels of its inputs, such as a channel shuffle."""
    (_, rows, columns), pixels = input_maps[0], input_maps[0].pixels
    one_size = {m.size for m in input_maps} == {(rows, columns)}
    if op.constant is not None or not one_size or not pixels or len(op.index) % pixels:
        return None
    index = op.index.view(-1, pixels)
    output_map = MapShape(len(index), rows, columns)
    if len(output_shape) in (2, 3) and map_shape_of(output_shape) != output_map:
        return None
    in_channel = torch.arange(pixels, device=index.device)
    are_channels = (index == index[:, :1] + in_channel) & (index[:, :1] % pixels == 0) & (index[:, :1] >= 0)
    if not len(index) or not bool(are_channels.all()):
        return None
    channels = index[:, 0] // pixels
    all_in_order = torch.arange(sum(m.channels for m in input_maps), device=index.device)
    return ConcatRule(tuple(input_maps), output_map, None if torch.equal(channels, all_in_order) else channels)


def _is_channelwise(input_map: MapShape, input_shape: Shape, output_map: MapShape) -> bool:
    """Whether channels can be kept apart, and a matrix between the pixels of both maps is small enough."""
    return (
        input_map == map_shape_of(input_shape)
        and output_map.channels == input_map.channels
        and input_map.pixels * output_map.pixels <= MAX_TABLE_ENTRIES
    )


def _pixels_in_channel(index: Tensor, input_map: MapShape) -> Tensor | None:
    """(pixels,) the input pixel that every output pixel reads, or -1; None if channels differ or mix.

    Args:
        index: (channels, pixels) flat input index of every output element, negative for constants.
        input_map: The map of the input.
    """
    first = torch.arange(len(index), device=index.device)[:, None] * input_map.pixels
    pixel = torch.where(index >= 0, index - first, -1)
    in_own_channel = (pixel >= 0) & (pixel < input_map.pixels) | (index < 0)
    if not bool(in_own_channel.all()) or not bool((pixel == pixel[:1]).all()):
        return None
    return pixel[0]


@_register(Reshape)
def _reshape(op: Reshape, input_maps: Maps, input_shapes: Shapes, output_shape: Shape) -> AffinePatchRule | None:
    """Reshapes to vectors and to more than three dims, which keep the map, and those that do not change it."""
    keeps_map = len(output_shape) not in (2, 3) or map_shape_of(output_shape) == input_maps[0]
    return ChannelScaleRule(None, input_maps[0]) if keeps_map else None


def _pointwise(op: Pointwise, input_map: MapShape, input_shape: Shape) -> ActivationPatchRule | None:
    """Functions whose knots are numbers and whose slopes are numbers or equal within every channel."""
    if not all(isinstance(knot, Fraction) for knot in op.knots):
        return None
    slopes: list[float | Tensor] = []
    for slope in op.slopes:
        if isinstance(slope, Fraction):
            slopes.append(float(slope))
            continue
        by_channel = _per_channel(slope.expand(1, *input_shape), input_map)
        if by_channel is None:
            return None
        slopes.append(by_channel)
    return PointwisePatchRule(tuple(float(k) for k in op.knots if isinstance(k, Fraction)), tuple(slopes), input_map)


def _per_channel(numbers: Tensor, input_map: MapShape) -> Tensor | None:
    """Numbers for every element as numbers for every channel, (channels,); None if they differ within a channel."""
    by_channel = numbers.reshape(input_map.channels, -1)
    return by_channel[:, 0].contiguous() if bool((by_channel == by_channel[:, :1]).all()) else None


def _maximum(op: Maximum, input_map: MapShape, input_shape: Shape, labels: Tensor | None) -> ActivationPatchRule | None:
    """Maxima over windows that are the same in all channels."""
    output_map = map_shape_of(op.shape)
    if input_map != map_shape_of(input_shape) or output_map.channels != input_map.channels or not input_map.channels:
        return None
    windows = op.table.view(output_map.channels, output_map.pixels, -1)
    first = torch.arange(output_map.channels, device=windows.device)[:, None, None] * input_map.pixels
    pixels = windows - first
    if not bool((pixels == pixels[:1]).all()):
        return None
    floor_pixels = None
    if op.floor_elements is not None:
        elements = op.floor_elements.T.view(2, output_map.channels, output_map.pixels)
        floor_pixels = torch.where(elements < 0, -1, elements % input_map.pixels).transpose(1, 2).contiguous()
    by_pixel = None if labels is None else labels.view(input_map.channels, -1).T.contiguous()
    return MaximumPatchRule(
        pixels[0].contiguous(), input_map, output_map, op.sign, op.floor, floor_pixels, labels=by_pixel
    )
