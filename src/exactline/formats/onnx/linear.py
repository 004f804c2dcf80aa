"""Read further linear operators: sums along an axis, einsum, samples on a grid, Fourier transforms, losses."""

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
from .resize import multiply_along
from .shapes import get_shape, reshape_value, select_along_axis
from .values import DependentValue, OnnxNode, Value, get_input, operator

FOURIER_AXIS_OPSET = 20  # the first operator set in which DFT takes its axis as an input


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
    weights = torch.ones(shape[1], dtype=torch.float64)
    if get_input(inputs, 2) is not None:
        weights = node.require_constant(inputs[2], "its weights").to(torch.float64)
    is_ignored = (
        target == int(node.get_number("ignore_index", -1)) if "ignore_index" in node.attributes else target < -1
    )
    target = target.masked_fill(is_ignored, 0)
    if tuple(weights.shape) != (shape[1],) or bool(((target < 0) | (target >= shape[1])).any()):
        raise node.make_error("Its target or its weights do not fit the number of classes.")
    factors = weights[target].masked_fill(is_ignored, 0.0)
    chosen = node.rearrange(inputs[:1], lambda x: x.gather(1, target[:, None]).squeeze(1))
    reduction = node.get_attribute("reduction", "mean")
    divisor = factors.sum() if reduction == "mean" else torch.ones(())
    losses = elementwise(node, "mul.Tensor", chosen, -factors / divisor)
    if reduction == "none" or isinstance(losses, Tensor):
        return losses if reduction == "none" else losses.sum()
    x = node.as_unbatched(losses)
    return node.make_unbatched(node.call("sum.dim_IntList", x, list(range(1, len(x.shape) + 1)), keepdim=False))


@operator("DFT")
def fourier_transform(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = node.require_dependent(inputs[0]), get_shape(inputs[0])
    axis = int(node.get_number("axis", 1))
    if node.opset >= FOURIER_AXIS_OPSET:
        axis = -2 if get_input(inputs, 2) is None else node.require_whole_numbers(inputs[2], "its axis")[0]
    (axis,) = node.resolve_axes([axis], len(shape))
    if len(shape) < 2 or shape[-1] not in (1, 2) or axis == len(shape) - 1:
        raise node.make_error(f"An input of shape {list(shape)} does not hold complex numbers along axis {axis}.")
    is_inverse, is_onesided = bool(node.get_attribute("inverse", 0)), bool(node.get_attribute("onesided", 0))
    length = 2 * (shape[axis] - 1) if is_inverse and is_onesided else shape[axis]
    if get_input(inputs, 1) is not None:
        length = node.require_whole_numbers(inputs[1], "its length")[0]
    if length < 1:
        raise node.make_error("Its length is less than 1.")
    limits.check_limit(4 * length * shape[axis], limits.MAX_VALUE_ELEMENTS, "weights", node.recorder.where)
    matrix = _make_fourier_matrix(shape[axis], length, shape[-1] == 2, is_inverse, is_onesided)
    parts, count = (1 if is_inverse and is_onesided else 2), len(matrix) // (1 if is_inverse and is_onesided else 2)
    # the axis and the real and imaginary parts become one dimension, at the end
    order = [d for d in range(len(shape) - 1) if d != axis]
    joined = node.rearrange([value], lambda x: x.permute(*order, axis, len(shape) - 1).flatten(-2))
    product = node.apply_along_axes(joined, [-1], lambda x, d: multiply_along(node, x, d[0], matrix))
    back = [order.index(d) if d in order else len(order) for d in range(len(shape) - 1)]
    return node.rearrange([product], lambda x: x.unflatten(-1, (count, parts)).permute(*back, len(shape) - 1))


def _make_fourier_matrix(size: int, length: int, is_complex: bool, is_inverse: bool, is_onesided: bool) -> Tensor:
    """The transform of ``size`` numbers, cut or padded to ``length``, as a real matrix."""
    one_hot = torch.eye(size * (2 if is_complex else 1), dtype=torch.float64)
    x = torch.view_as_complex(one_hot.unflatten(1, (size, 2))) if is_complex else one_hot.to(torch.complex128)
    if is_inverse and is_onesided:
        return torch.fft.irfft(x, length).T.contiguous()
    y = torch.fft.ifft(x, length) if is_inverse else torch.fft.fft(x, length)
    y = y[:, : length // 2 + 1] if is_onesided else y
    return torch.view_as_real(y).flatten(1).T.contiguous()
