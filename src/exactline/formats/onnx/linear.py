"""Read further linear operators: sums along an axis, einsum, samples on a grid, rotations, losses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...network.builder import MULTIPLIES_INPUTS, NodeOutput, UnsupportedOperator
from .. import limits
from .arithmetic import elementwise
from .shapes import get_shape, reshape_value, select_along_axis
from .values import DependentValue, OnnxNode, Value, get_input, operator, read_rows
from .windows import compute_pool_sizes, resolve_padding


def multiply_points(node: OnnxNode, x: NodeOutput, matrix: Tensor, sizes: Sequence[int]) -> NodeOutput:
    """Multiply the elements of each channel, (channels, *in), by a matrix (new, old), and reshape them to ``sizes``."""
    channels = x.shape[0]
    rows = node.call("reshape", x, [1, channels, prod(x.shape[1:])])
    return node.call("reshape", node.call("linear", rows, matrix, None), [1, channels, *sizes])


def check_matrix_size(node: OnnxNode, rows: int, columns: int) -> None:
    """Raise FileError for a matrix of too many weights."""
    limits.check_limit(rows * columns, limits.MAX_VALUE_ELEMENTS, "weights of a linear map", node.recorder.where)


@operator("CumSum")
def cumsum(node: OnnxNode, inputs: list[Value]) -> Value:
    value, rank = inputs[0], len(get_shape(inputs[0]))
    (axis,) = node.resolve_axes(node.require_whole_numbers(inputs[1], "its axis")[:1], rank)
    length = get_shape(value)[axis]
    is_reverse, is_exclusive = bool(node.get_attribute("reverse", 0)), bool(node.get_attribute("exclusive", 0))
    backwards = np.arange(length)[::-1].copy()
    value = select_along_axis(node, value, axis, backwards) if is_reverse else value
    if isinstance(value, Tensor):
        value = value.cumsum(axis)
        shifted = F.pad(value.movedim(axis, -1), (1, 0))[..., :-1].movedim(-1, axis)
    else:
        value = node.apply_along_axes(value, [axis], lambda x, d: node.call("cumsum", x, d[0]))
        shifted = node.apply_along_axes(value, [axis], lambda x, d: _shift(node, x, d[0])) if is_exclusive else None
    value = shifted if is_exclusive else value
    return select_along_axis(node, value, axis, backwards) if is_reverse else value


def _shift(node: OnnxNode, x: NodeOutput, dim: int) -> NodeOutput:
    """Shift the elements along one dimension by one, with a zero in front."""
    return node.recorder.graph.rearrange(lambda n: n.roll(1, dim).index_fill(dim, torch.tensor([0]), 0.0), [x], "shift")


@operator("Einsum")
def einsum(node: OnnxNode, inputs: list[Value]) -> Value:
    equation = re.sub(r"\s", "", str(node.get_attribute("equation", "")))
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(inputs) or not inputs:
        raise node.make_error(f"The equation {equation[:80]!r} does not have {len(inputs)} operands.")
    if not re.fullmatch(r"[A-Za-z.,>-]*", equation):
        raise node.make_error(f"{equation[:80]!r} is not an equation.")
    right = right if arrow else _find_implicit_output(left)
    dependent = [i for i, v in enumerate(inputs) if isinstance(v, DependentValue)]
    constants = [v.to(torch.float64) for v in inputs if isinstance(v, Tensor)]
    if not dependent:
        return torch.einsum(f"{left}->{right}", *constants)
    if len(dependent) > 1:
        raise UnsupportedOperator(MULTIPLIES_INPUTS)
    (position,) = dependent
    point = next((c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation), None)  # the dimension of the points
    if point is None:
        raise UnsupportedOperator("has too many indices")
    x, data_term = node.as_unbatched(inputs[position]), terms.pop(position)
    if len(terms) > 1:
        constants, terms = [_join_constants(node, terms, constants)], ["".join(dict.fromkeys("".join(terms)))]
    full = f"{','.join([point + data_term, *terms])}->{point}{right}"
    return node.make_unbatched(node.call("einsum", full, [x, *constants]))


def _find_implicit_output(left: str) -> str:
    """The output of an equation without an arrow: all indices that occur once, in the order of the alphabet."""
    letters = left.replace("...", "").replace(",", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return ("..." if "..." in left else "") + "".join(once)


def _join_constants(node: OnnxNode, terms: list[str], constants: list[Tensor]) -> Tensor:
    """The product of all constant operands, with one dimension for each index."""
    if any("." in term or len(set(term)) != len(term) for term in terms):
        raise UnsupportedOperator("has several constants with '...' or a repeated index, which is not supported")
    sizes = {c: n for term, value in zip(terms, constants, strict=True) for c, n in zip(term, value.shape, strict=True)}
    node.check_result_size(list(sizes.values()))
    return torch.einsum(f"{','.join(terms)}->{''.join(sizes)}", *constants)


@operator("Col2Im")
@read_rows(0)
def col2im(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    image, block = (
        node.require_whole_numbers(v, what) for v, what in zip(inputs[1:3], ("its image", "its block"), strict=True)
    )
    rank = len(image)
    dilations, strides = node.get_ints("dilations", [1] * rank), node.get_ints("strides", [1] * rank)
    pads = node.get_ints("pads", [0] * (2 * rank))
    lists = (block, dilations, strides, pads[:rank], pads[rank:])
    if (
        any(len(v) != rank for v in lists)
        or len(x.shape) != 2
        or any(v < 1 for v in (*image, *block, *dilations, *strides))
    ):
        raise node.make_error("Its image, block, dilations, strides and pads do not fit together.")
    node.check_result_size([*image, x.shape[0]])
    limits.check_limit(prod(block) * x.shape[1], limits.MAX_TABLE_ENTRIES, "elements in blocks", node.recorder.where)
    counts = [
        (n + p + q - d * (k - 1) - 1) // s + 1
        for n, k, d, s, p, q in zip(image, block, dilations, strides, pads[:rank], pads[rank:], strict=True)
    ]
    if prod(counts) != x.shape[1] or x.shape[0] % prod(block):
        raise node.make_error(f"Its input of shape {list(get_shape(inputs[0]))} does not hold blocks of such an image.")
    table = _find_block_positions(image, block, counts, strides, dilations, pads)  # (elements, blocks)
    elements, channels, pixels = prod(block), x.shape[0] // prod(block), prod(image)
    node.check_result_size([channels, elements, pixels])
    source = torch.full((elements, pixels + 1), -1, dtype=torch.int64)  # the block that covers a pixel with an element
    source.scatter_(1, torch.where(table < 0, pixels, table), torch.arange(x.shape[1]).expand(elements, -1))
    source = source[:, :pixels]

    def spread(n: Tensor) -> Tensor:
        columns = n.reshape(1, channels, elements, -1)
        covered = columns.gather(3, source.clamp(min=0).expand(1, channels, -1, -1))
        return torch.where(source >= 0, covered, torch.zeros_like(covered))

    covered = node.recorder.graph.rearrange(spread, [x], "col2im")
    total = node.call("sum.dim_IntList", covered, [2], keepdim=False)
    return node.make_batched(node.call("reshape", total, [1, channels, *image]))


def _find_block_positions(
    image: list[int], block: list[int], counts: list[int], strides: list[int], dilations: list[int], pads: list[int]
) -> Tensor:
    """The flat position in the image, (elements of a block, blocks), of each element of each block; -1 if outside."""
    flat, is_inside = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    for n, k, m, s, d, p in zip(image, block, counts, strides, dilations, pads, strict=False):
        at = torch.arange(k)[:, None] * d + torch.arange(m)[None] * s - p  # (k, m)
        flat = (flat[:, None, :, None] * n + at[None, :, None, :]).flatten(2).flatten(0, 1)
        is_inside = (is_inside[:, None, :, None] & ((at >= 0) & (at < n))[None, :, None, :]).flatten(2).flatten(0, 1)
    return torch.where(is_inside, flat, torch.full_like(flat, -1))


@operator("AffineGrid")
def affine_grid(node: OnnxNode, inputs: list[Value]) -> Value:
    sizes = node.require_whole_numbers(inputs[1], "its size")
    shape, spatial = get_shape(inputs[0]), sizes[2:]
    if len(spatial) not in (2, 3) or shape[1:] != (len(spatial), len(spatial) + 1) or any(n < 1 for n in spatial):
        raise node.make_error("Its matrices do not fit its size.")
    node.check_result_size([shape[0], *spatial, len(spatial)])
    lines = [_place_on_axis(n, bool(node.get_attribute("align_corners", 0))) for n in spatial]
    grid = torch.meshgrid(*lines, indexing="ij")
    points = torch.stack([*reversed(grid), torch.ones_like(grid[0])], -1)  # (*spatial, x, y, 1)
    letters = "hw" if len(spatial) == 2 else "dhw"
    node.attributes["equation"] = f"nij,{letters}j->n{letters}i"
    return einsum(node, [inputs[0], points])


def _place_on_axis(size: int, align_corners: bool) -> Tensor:
    """The coordinates from -1 to 1 of the elements along one axis."""
    steps = torch.arange(size, dtype=torch.float64)
    if align_corners:
        return steps * (2 / (size - 1)) - 1 if size > 1 else steps - 1
    return (steps + 0.5) * (2 / size) - 1


GRID_MODES = {
    "bilinear": "bilinear",
    "linear": "bilinear",
    "nearest": "nearest",
    "bicubic": "bicubic",
    "cubic": "bicubic",
}


@operator("GridSample")
@read_rows(0, 1)
def grid_sample(node: OnnxNode, inputs: list[Value]) -> Value:
    x, grid = node.as_batched(inputs[0]), node.require_constant(inputs[1], "its grid").to(torch.float64)
    spatial, out = x.shape[1:], tuple(grid.shape[1:-1])
    if len(spatial) not in (2, 3) or grid.shape[0] != 1 or grid.shape[-1] != len(spatial) or len(out) != len(spatial):
        raise node.make_error(
            f"A grid of shape {list(grid.shape)} does not fit an input of shape {list(get_shape(inputs[0]))}."
        )
    mode, padding = node.get_attribute("mode", "bilinear"), node.get_attribute("padding_mode", "zeros")
    if mode not in GRID_MODES or padding not in ("zeros", "border", "reflection"):
        raise node.make_error(f"mode {str(mode)[:40]!r} with padding {str(padding)[:40]!r} does not exist.")
    if GRID_MODES[mode] == "bicubic" and len(spatial) == 3:
        raise UnsupportedOperator("samples a volume in mode 'cubic', which is not supported")
    if GRID_MODES[mode] == "bicubic" and padding == "border" and bool((grid.abs() > 1).any()):
        raise UnsupportedOperator("samples outside of the image in mode 'cubic' with border padding")
    check_matrix_size(node, prod(out), prod(spatial))
    one_hot = torch.eye(prod(spatial), dtype=torch.float64).reshape(1, -1, *spatial)  # a channel for each pixel
    align = bool(node.get_attribute("align_corners", 0))
    matrix = F.grid_sample(one_hot, grid, GRID_MODES[mode], padding, align).reshape(prod(spatial), -1).T.contiguous()
    return node.make_batched(multiply_points(node, x, matrix, out))


@operator("DeformConv")
@read_rows(0, 2, 4)
def deform_conv(node: OnnxNode, inputs: list[Value]) -> Value:
    x, weight = node.as_batched(inputs[0]), node.require_constant(inputs[1], "its kernel").to(torch.float64)
    offset = node.require_constant(get_input(inputs, 2), "its offsets").to(torch.float64)
    bias = None if get_input(inputs, 3) is None else node.require_constant(inputs[3], "its bias").to(torch.float64)
    if len(x.shape) != 3 or weight.dim() != 4:
        raise UnsupportedOperator("is supported for images only")
    kernel, (channels, *size) = list(weight.shape[2:]), x.shape
    strides, dilations = node.get_ints("strides", [1, 1]), node.get_ints("dilations", [1, 1])
    before, after = resolve_padding(node, size, kernel, strides, dilations)
    out = compute_pool_sizes(size, kernel, strides, dilations, before, after, ceil=False)
    groups, count = int(node.get_number("offset_group", 1)), prod(kernel)
    mask = torch.ones(1, groups * count, *out, dtype=torch.float64)
    if get_input(inputs, 4) is not None:
        mask = node.require_constant(inputs[4], "its mask").to(torch.float64)
    if (
        groups < 1
        or channels % groups
        or tuple(offset.shape) != (1, 2 * groups * count, *out)
        or tuple(mask.shape) != (1, groups * count, *out)
    ):
        raise node.make_error("Its offsets or its mask do not fit its input and its kernel.")
    check_matrix_size(node, groups * count * prod(out), prod(size))
    windows = [
        torch.arange(k)[:, None] * d + torch.arange(n) * s - b  # (kernel, out)
        for k, d, n, s, b in zip(kernel, dilations, out, strides, before, strict=True)
    ]
    shifts = offset.reshape(groups, *kernel, 2, *out)
    rows = (shifts[:, :, :, 0] + windows[0][:, None, :, None]).reshape(groups, -1)
    columns = (shifts[:, :, :, 1] + windows[1][None, :, None, :]).reshape(groups, -1)
    samples: list[NodeOutput] = []  # of each group of channels: (channels / groups, kernel, *out)
    for g in range(groups):
        matrix = _make_sampling_matrix(rows[g], columns[g], size) * mask.reshape(groups, -1, 1)[g]
        part = channels // groups
        chosen = x if groups == 1 else node.call("slice.Tensor", x, 1, g * part, (g + 1) * part, 1)
        samples.append(multiply_points(node, chosen, matrix, [count, *out]))
    joined = samples[0] if groups == 1 else node.call("cat", samples, 1)
    joined = node.call("reshape", joined, [1, channels * count, *out])
    kernel_1x1 = weight.reshape(weight.shape[0], -1, 1, 1)
    args = [joined, kernel_1x1, bias, [1, 1], [0, 0], [1, 1], int(node.get_number("group", 1))]
    return node.make_batched(node.call("conv2d", *args))


def _make_sampling_matrix(rows: Tensor, columns: Tensor, size: Sequence[int]) -> Tensor:
    """The weights (points, pixels) of the four pixels around each point (points,), which are 0 outside of the image."""
    height, width = size
    matrix = torch.zeros(len(rows), height * width, dtype=torch.float64)
    for down in (0, 1):
        for right in (0, 1):
            i, j = rows.floor() + down, columns.floor() + right
            weights = (1 - (rows - i).abs()) * (1 - (columns - j).abs())
            is_inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            pixel = (i.clamp(0, height - 1) * width + j.clamp(0, width - 1)).to(torch.int64)
            matrix.scatter_add_(1, pixel[:, None], (weights * is_inside)[:, None])
    return matrix


@operator("RotaryEmbedding")
def rotary_embedding(node: OnnxNode, inputs: list[Value]) -> Value:
    shape = get_shape(inputs[0])
    cosines, sines = (node.require_constant(v, "its cache").to(torch.float64) for v in inputs[1:3])
    if get_input(inputs, 3) is not None:
        positions = node.require_constant(inputs[3], "its positions").to(torch.int64)
        cosines, sines = cosines[positions], sines[positions]
    heads = int(node.get_number("num_heads", 0))
    if (len(shape) == 3 and (heads < 1 or shape[2] % heads)) or len(shape) not in (3, 4):
        raise node.make_error(f"An input of shape {list(shape)} does not have {heads} heads.")
    value = inputs[0]
    if len(shape) == 3:  # (batch, sequence, heads, size); otherwise the heads come before the sequence
        value = reshape_value(node, value, [shape[0], shape[1], heads, shape[2] // heads])
        cosines, sines = cosines[:, :, None], sines[:, :, None]
    else:
        cosines, sines = cosines[:, None], sines[:, None]
    size = get_shape(value)[-1]
    rotated = int(node.get_number("rotary_embedding_dim", 0)) or size
    half = rotated // 2
    if cosines.shape[-1] != half or sines.shape[-1] != half or rotated > size:
        raise node.make_error("Its caches do not fit its input.")
    is_interleaved = bool(node.get_attribute("interleaved", 0))
    first = np.arange(half) * 2 if is_interleaved else np.arange(half)
    second = first + 1 if is_interleaved else first + half
    one, two = (select_along_axis(node, value, -1, index) for index in (first, second))

    def rotate(a: Tensor, b: Tensor, sign: str) -> Value:
        return elementwise(node, sign, elementwise(node, "mul.Tensor", one, a), elementwise(node, "mul.Tensor", two, b))

    real, imaginary = rotate(cosines, sines, "sub.Tensor"), rotate(sines, cosines, "add.Tensor")
    rest = [select_along_axis(node, value, -1, range(rotated, size))] if rotated < size else []
    order = torch.from_numpy(np.argsort(np.concatenate([first, second, np.arange(rotated, size)])))
    joined = node.rearrange([real, imaginary, *rest], lambda *parts: torch.cat(parts, -1).index_select(-1, order))
    return reshape_value(node, joined, shape)


@operator("NegativeLogLikelihoodLoss")
def nll_loss(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, target = get_shape(inputs[0]), node.require_constant(inputs[1], "its target").to(torch.int64)
    if len(shape) < 2 or tuple(target.shape) != (shape[0], *shape[2:]):
        raise node.make_error(f"A target of shape {list(target.shape)} does not fit an input of shape {list(shape)}.")
    reduction = node.get_attribute("reduction", "mean")
    weights: Value = torch.ones(shape[1], dtype=torch.float64)
    if get_input(inputs, 2) is not None:
        weights = inputs[2] if reduction != "mean" else node.require_constant(inputs[2], "its weights")
    is_ignored = (
        target == int(node.get_number("ignore_index", -1)) if "ignore_index" in node.attributes else target < -1
    )
    target = target.masked_fill(is_ignored, 0)
    if get_shape(weights) != (shape[1],) or bool(((target < 0) | (target >= shape[1])).any()):
        raise node.make_error("Its target or its weights do not fit the number of classes.")
    factors = node.rearrange([weights], lambda w: w[target].masked_fill(is_ignored, 0.0))
    chosen = node.rearrange(inputs[:1], lambda x: x.gather(1, target[:, None]).squeeze(1))
    if isinstance(factors, Tensor):
        factors = factors.to(torch.float64)
        factors = factors / factors.sum() if reduction == "mean" else factors
    losses = elementwise(node, "neg", elementwise(node, "mul.Tensor", chosen, factors))
    if reduction == "none" or isinstance(losses, Tensor):
        return losses if reduction == "none" else losses.sum()
    x = node.as_unbatched(losses)
    return node.make_unbatched(node.call("sum.dim_IntList", x, list(range(1, len(x.shape) + 1)), keepdim=False))
