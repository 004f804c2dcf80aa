"""Read MaxRoiPool and RoiAlign, whose boxes must be constants."""

from __future__ import annotations

from math import ceil, floor

import torch
from torch import Tensor

from ...network.builder import NodeOutput
from ...ops import windows
from ...ops.maximum import Maximum
from .. import limits
from .linear import check_matrix_size, multiply_points
from .values import OnnxNode, Value, operator


def _read_boxes(node: OnnxNode, value: Value, columns: int) -> list[list[float]]:
    """The boxes, scaled to the input's pixels."""
    boxes = node.require_constant(value, "its boxes").to(torch.float64)
    if boxes.dim() != 2 or boxes.shape[1] != columns:
        raise node.make_error(f"Its boxes have shape {list(boxes.shape)}, not [boxes, {columns}].")
    return boxes.tolist()


def _check_image(node: OnnxNode, x: NodeOutput, pooled: list[int], boxes: int) -> None:
    if len(x.shape) != 3 or len(pooled) != 2 or any(n < 1 for n in pooled):
        raise node.make_error("It takes an image and two sizes of at least 1.")
    node.check_result_size([max(boxes, 1), x.shape[0], *pooled])


@operator("MaxRoiPool")
def max_roi_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x, boxes = node.as_batched(inputs[0]), _read_boxes(node, inputs[1], 5)
    pooled, scale = node.get_ints("pooled_shape"), node.get_number("spatial_scale", 1.0)
    _check_image(node, x, pooled, len(boxes))
    if any(box[0] != 0 for box in boxes):
        raise node.make_error("A box belongs to a point that does not exist: there is one.")
    height, width = x.shape[1:]
    members: list[list[int]] = []  # flat positions in one channel, for each window
    for box in boxes:
        left, top, right, bottom = (floor(v * scale + 0.5) for v in box[1:])
        rows = _split_range(top, bottom, pooled[0], height)
        columns = _split_range(left, right, pooled[1], width)
        members += [[r * width + c for r in row for c in column] for row in rows for column in columns]
    widest = max((len(m) for m in members), default=1)
    entries = len(members) * max(widest, 1) * x.shape[0]
    limits.check_limit(entries, limits.MAX_TABLE_ENTRIES, "elements in pooling windows", node.recorder.where)
    table = torch.tensor([(m * widest)[: max(widest, 1)] or [0] * max(widest, 1) for m in members], dtype=torch.int64)
    is_empty = torch.tensor([not m for m in members]).reshape(len(boxes), 1, *pooled)
    maxima = _take_maxima(node, x, table, (len(members),), "max_roi_pool")
    return _arrange_boxes(node, maxima, len(boxes), pooled, is_empty)


def _split_range(first: int, last: int, parts: int, size: int) -> list[range]:
    """The pixels of each part of a range from first to last, which may overlap by one."""
    step = max(last - first + 1, 1) / parts
    starts = [min(max(floor(i * step) + first, 0), size) for i in range(parts)]
    ends = [min(max(ceil((i + 1) * step) + first, 0), size) for i in range(parts)]
    return [range(a, b) for a, b in zip(starts, ends, strict=True)]


def _take_maxima(node: OnnxNode, x: NodeOutput, table: Tensor, sizes: tuple[int, ...], name: str) -> NodeOutput:
    """The maximum of each window, (windows, elements), in each channel."""
    shape = (x.shape[0], *sizes)
    spread = windows.repeat_for_channels(table, x.shape[0], x.shape[1:])
    return node.recorder.graph.add_node(Maximum(spread, shape, name=name), [x], shape)


def _arrange_boxes(
    node: OnnxNode, x: NodeOutput, boxes: int, pooled: list[int], is_empty: Tensor | None = None
) -> Value:
    """(channels, boxes * windows) as the value (boxes, channels, *pooled); empty windows are 0."""

    def arrange(n: Tensor) -> Tensor:
        out = n.reshape(x.shape[0], boxes, *pooled).transpose(0, 1)
        return out if is_empty is None else torch.where(is_empty, torch.zeros_like(out), out)

    return node.rearrange([node.make_batched(x)], arrange)


@operator("RoiAlign")
def roi_align(node: OnnxNode, inputs: list[Value]) -> Value:
    x, boxes = node.as_batched(inputs[0]), _read_boxes(node, inputs[1], 4)
    pooled = [int(node.get_number("output_height", 1)), int(node.get_number("output_width", 1))]
    _check_image(node, x, pooled, len(boxes))
    indices = node.require_whole_numbers(inputs[2], "its batch indices")
    if len(indices) != len(boxes) or any(indices):
        raise node.make_error("A box belongs to a point that does not exist: there is one.")
    mode = node.get_attribute("mode", "avg")
    if mode not in ("avg", "max"):
        raise node.make_error(f"mode {str(mode)[:40]!r} does not exist.")
    places = [_place_samples(node, box, pooled) for box in boxes]
    if mode == "max":
        return _take_largest_neighbours(node, x, places, pooled)
    check_matrix_size(node, len(boxes) * pooled[0] * pooled[1], x.shape[1] * x.shape[2])
    rows = [_weigh_box(place, x.shape[1:]) for place in places]
    samples = multiply_points(node, x, torch.cat(rows), [len(boxes) * pooled[0] * pooled[1]])
    return _arrange_boxes(node, samples, len(boxes), pooled)


def _place_samples(node: OnnxNode, box: list[float], pooled: list[int]) -> list[Tensor]:
    """The positions (windows, samples) of the samples in a box, for each of the two axes."""
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    is_shifted = node.get_attribute("coordinate_transformation_mode", default) == "half_pixel"
    scale, ratio = node.get_number("spatial_scale", 1.0), int(node.get_number("sampling_ratio", 0))
    places: list[Tensor] = []
    for first, last, parts in ((box[1], box[3], pooled[0]), (box[0], box[2], pooled[1])):
        start, end = (v * scale - (0.5 if is_shifted else 0.0) for v in (first, last))
        extent = end - start if is_shifted else max(end - start, 1.0)
        count = max(ratio if ratio > 0 else ceil(extent / parts), 0)
        limits.check_limit(count * parts, limits.MAX_NAME_CHARACTERS, "samples in a box", node.recorder.where)
        steps = (torch.arange(count * parts, dtype=torch.float64) + 0.5) / max(count, 1)
        places.append((start + steps * (extent / parts)).reshape(parts, count))
    return places


def _weigh_box(places: list[Tensor], size: tuple[int, ...]) -> Tensor:
    """The weights (windows, pixels) of the mean of the samples in each window of a box."""
    per_axis: list[Tensor] = []
    for positions, length in zip(places, size, strict=True):
        pixels, weights = _find_neighbours(positions, length)
        sums = torch.zeros(len(positions), length, dtype=torch.float64).scatter_add_(1, pixels, weights)
        per_axis.append(sums / max(positions.shape[1], 1))
    return torch.einsum("ah,bw->abhw", *per_axis).reshape(-1, size[0] * size[1])


def _find_neighbours(positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The two neighbours of each position and their weights, (windows, 2 * samples); none beyond a pixel outside."""
    inside = (positions >= -1) & (positions <= length)
    clamped = positions.clamp(0, length - 1)
    left = clamped.floor().clamp(max=max(length - 2, 0)).to(torch.int64)
    part = clamped - left
    weights = torch.cat([(1 - part) * inside, part * inside], 1)
    return torch.cat([left, (left + 1).clamp(max=length - 1)], 1), weights


def _take_largest_neighbours(node: OnnxNode, x: NodeOutput, places: list[list[Tensor]], pooled: list[int]) -> Value:
    """The largest product of a pixel and its weight around the samples of each window, which ONNX calls a maximum."""
    counts = [rows.shape[1] * columns.shape[1] * 4 for rows, columns in places]
    widest = max([*counts, 1])  # of the windows
    total = len(places) * pooled[0] * pooled[1] * widest
    limits.check_limit(total * x.shape[0], limits.MAX_TABLE_ENTRIES, "elements in pooling windows", node.recorder.where)
    pixels = torch.zeros(len(places), pooled[0] * pooled[1], widest, dtype=torch.int64)
    weights = torch.zeros(pixels.shape, dtype=torch.float64)
    for i, ((rows, columns), count) in enumerate(zip(places, counts, strict=True)):
        (ys, y_weights), (xs, x_weights) = _find_neighbours(rows, x.shape[1]), _find_neighbours(columns, x.shape[2])
        flat = ys[:, None, :, None] * x.shape[2] + xs[None, :, None, :]
        product = y_weights[:, None, :, None] * x_weights[None, :, None, :]
        repeated = torch.arange(widest if count else 0) % max(count, 1)  # shorter windows repeat their elements
        pixels[i, :, : len(repeated)] = flat.reshape(len(pixels[i]), -1)[:, repeated]
        weights[i, :, : len(repeated)] = product.reshape(len(pixels[i]), -1)[:, repeated]
    chosen = node.rearrange([node.make_batched(x)], lambda v: v.flatten(2)[:, :, pixels.flatten()])
    product = node.call("mul.Tensor", node.as_batched(chosen), weights.reshape(1, 1, -1))
    scaled = node.recorder.graph.as_node_output(product)
    table = torch.arange(total).reshape(-1, widest)
    return _arrange_boxes(node, _take_maxima(node, scaled, table, (len(table),), "roi_align"), len(places), pooled)
