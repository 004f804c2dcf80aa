"""How each operator treats patches: a table from operator class to a rule of this engine.

An affine operator without a rule of its own is applied to whole maps. An activation without one ends the patches: from
there on the dense engine takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

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
from .maxpool import MaximumRule
from .patch import AffinePatchRule, MapShape, map_shape_of
from .pointwise import PointwiseRule
from .timeline import ActivationPatchRule

MAX_TABLE_ENTRIES = 1 << 24  # output pixels times input pixels: a table of so many is made for an operator
Shape = tuple[int, ...]
AffineRule = Callable[..., AffinePatchRule | None]  # (op, sources, shapes, shape)
AFFINE_RULES: dict[type[Affine], AffineRule] = {}


def affine_rule(op: Affine, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule:
    """The rule of an affine operator whose inputs have these maps and shapes."""
    made = AFFINE_RULES[type(op)](op, sources, shapes, shape) if type(op) in AFFINE_RULES else None
    return (
        made if made is not None else WholeMapRule(op.linear, tuple(shapes), shape, tuple(sources), map_shape_of(shape))
    )


def activation_rule(op: Breaking, source: MapShape, shape: Shape) -> ActivationPatchRule | None:
    """The rule of an activation or maximum on a map; None where the dense engine must take over."""
    match op:
        case Pointwise():
            return _pointwise(op, source, shape)
        case Maximum():
            return _maximum(op, source, shape)
        case _:
            return None


def _register(kind: type[Affine]) -> Callable[[AffineRule], AffineRule]:
    def add(rule: AffineRule) -> AffineRule:
        AFFINE_RULES[kind] = rule
        return rule

    return add


@_register(Product)
def _product(op: Product, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule | None:
    settings, source = op.settings, sources[0]
    if op.call is F.linear and len(shapes[0]) == 1:
        return LinearRule(op.weight, source, (len(op.weight), 1, 1))
    ordinary = "stride" in settings and not settings["transposed"] and settings["groups"] == 1 and len(shape) in (2, 3)
    if not ordinary or source != map_shape_of(shapes[0]):
        return None
    flat = len(shape) == 2  # one spatial dim: a map of one row

    def both(key: str, fill: int) -> tuple[int, int]:
        return (fill, settings[key][0]) if flat else (settings[key][0], settings[key][1])

    weight = op.weight[:, :, None] if flat else op.weight
    return ConvolutionRule(
        weight, both("stride", 1), both("padding", 0), both("dilation", 1), source, map_shape_of(shape)
    )


@_register(Scale)
def _scale(op: Scale, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule | None:
    source = sources[0]
    factor = op.linear(torch.ones(1, *shapes[0], device=op.device, dtype=op.dtype))[0]
    if not tuple(factor.shape) == tuple(shapes[0]) == tuple(shape):
        return None
    by_channel = factor.reshape(source[0], -1)
    return (
        ChannelScaleRule(by_channel[:, 0].contiguous(), source)
        if bool((by_channel == by_channel[:, :1]).all())
        else None
    )


@_register(Combine)
def _combine(op: Combine, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule | None:
    same = all(tuple(s) == tuple(shape) for s in shapes) and len(set(sources)) == 1
    return AddRule(op.factors, sources[0]) if same else None


@_register(Average)
def _average(op: Average, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule | None:
    source, grid = sources[0], map_shape_of(shape)
    places, spatial = source[1] * source[2], len(shapes[0]) in (2, 3)
    pools = op.name.startswith(("avg_pool", "adaptive_avg_pool", "_adaptive_avg_pool", "upsample"))
    dims = op.settings.get("dims", ())
    reduces = op.name in ("mean", "sum") and len(dims) == len(shapes[0]) - 1 and 0 not in dims
    fits = (
        source == map_shape_of(shapes[0]) and grid[0] == source[0] and places * grid[1] * grid[2] <= MAX_TABLE_ENTRIES
    )
    if not (spatial and fits and (pools or reduces)):
        return None
    eye = torch.eye(places, dtype=torch.float64).view(places, 1, *shapes[0][1:])
    return ChannelwiseRule(op.call(eye).reshape(places, -1).T.contiguous(), source, grid)


@_register(Rearrange)
def _rearrange(
    op: Rearrange, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape
) -> AffinePatchRule | None:
    source, grid = sources[0], map_shape_of(shape)
    if all(g == map_shape_of(s) for g, s in zip(sources, shapes, strict=True)) and op.constant is None:
        in_order = torch.arange(len(op.index), device=op.index.device)
        whole = sum(g[0] for g in sources) == grid[0]  # not the first few channels of one
        if whole and {g[1:] for g in (*sources, grid)} == {grid[1:]} and torch.equal(op.index, in_order):
            return ConcatRule(tuple(sources), grid)
    places, pixels = source[1] * source[2], grid[1] * grid[2]
    if (
        len(sources) > 1
        or source != map_shape_of(shapes[0])
        or grid[0] != source[0]
        or places * pixels > MAX_TABLE_ENTRIES
    ):
        return None
    index = op.index.view(grid[0], pixels)
    first = torch.arange(grid[0], device=index.device)[:, None] * places
    local = torch.where(index >= 0, index - first, -1)
    if not bool(((local >= 0) & (local < places) | (index < 0)).all()) or not bool((local == local[:1]).all()):
        return None
    matrix = torch.zeros(pixels, places + 1, dtype=torch.float64, device=index.device)
    matrix.scatter_(1, torch.where(local[0] >= 0, local[0], places)[:, None], 1.0)
    return ChannelwiseRule(matrix[:, :-1].contiguous(), source, grid)


@_register(Reshape)
def _reshape(op: Reshape, sources: Sequence[MapShape], shapes: Sequence[Shape], shape: Shape) -> AffinePatchRule | None:
    # flattened, it is still a map, read in the same order
    return ChannelScaleRule(None, sources[0]) if len(shape) == 1 or map_shape_of(shape) == sources[0] else None


def _pointwise(op: Pointwise, source: MapShape, shape: Shape) -> ActivationPatchRule | None:
    if not all(isinstance(knot, Fraction) for knot in op.knots):
        return None
    slopes: list[float | Tensor] = []
    for slope in op.slopes:
        if isinstance(slope, Fraction):
            slopes.append(float(slope))
            continue
        by_channel = slope.expand(1, *shape).reshape(source[0], -1)
        if not bool((by_channel == by_channel[:, :1]).all()):
            return None
        slopes.append(by_channel[:, 0].contiguous())
    return PointwiseRule(tuple(float(k) for k in op.knots if isinstance(k, Fraction)), tuple(slopes), source)


def _maximum(op: Maximum, source: MapShape, shape: Shape) -> ActivationPatchRule | None:
    grid = map_shape_of(op.shape)
    if source != map_shape_of(shape) or grid[0] != source[0] or not source[0]:
        return None
    windows = op.table.view(grid[0], grid[1] * grid[2], -1)
    first = torch.arange(grid[0], device=windows.device)[:, None, None] * (source[1] * source[2])
    local = windows - first
    if not bool((local == local[:1]).all()):
        return None
    return MaximumRule(local[0].contiguous(), source, grid, op.sign, op.floor)
