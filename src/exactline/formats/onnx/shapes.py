"""Read operators that rearrange elements, and those that make constants and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...humanize import count_noun
from ...network.builder import NodeOutput, UnsupportedOperator
from .. import limits
from .values import DependentValue, OnnxNode, Value, drop_equal_rows, get_input, operator, read_rows

ValueShape = tuple[int, ...]


def get_shape(value: Value) -> ValueShape:
    """The shape of a value in the file."""
    return value.shape if isinstance(value, DependentValue) else tuple(value.shape)


def select_along_axis(node: OnnxNode, value: Value, axis: int, indices: range | np.ndarray[Any, Any]) -> Value:
    """Select slices along one axis by their indices, in the order of ``indices``."""
    shape = get_shape(value)
    (axis,) = node.resolve_axes([axis], len(shape))
    size = shape[axis]
    limit = max(limits.MAX_VALUE_ELEMENTS, prod(shape))  # a part of a large weight is allowed
    limits.count_elements([*shape[:axis], len(indices), *shape[axis + 1 :]], "the result", node.recorder.where, limit)
    array = np.arange(indices.start, indices.stop, indices.step) if isinstance(indices, range) else indices
    index = torch.from_numpy(array.astype(np.int64))
    node.check_keeps_batch(value, keeps=axis != 0)
    if bool(((index < 0) | (index >= size)).any()):
        raise node.make_error(f"An index is outside of a dimension of size {size}.")
    if isinstance(value, Tensor):
        return value.index_select(axis, index)
    if torch.equal(index, torch.arange(size)):
        return value
    return node.apply_along_axes(value, [axis], lambda x, d: node.call("index_select", x, d[0], index))


@operator("Reshape")
def reshape(node: OnnxNode, inputs: list[Value]) -> Value:
    value = inputs[0]
    target = node.require_whole_numbers(inputs[1], "its shape") if len(inputs) > 1 else node.get_ints("shape")
    old = get_shape(value)
    if any(d < -1 for d in target) or target.count(-1) > 1:
        raise node.make_error(f"{target} is not a shape.")
    shape = _read_batch_target(node, value, target)
    if not node.get_attribute("allowzero", 0):
        if any(d == 0 and i >= len(old) for i, d in enumerate(shape)):
            raise node.make_error(f"Shape {target} copies a dimension that the input does not have.")
        shape = [old[i] if d == 0 else d for i, d in enumerate(shape)]
    if -1 in shape:
        rest = prod(d for d in shape if d != -1)
        if rest == 0 or prod(old) % rest:
            raise node.make_error(f"A value of shape {list(old)} cannot become {target}.")
        shape[shape.index(-1)] = prod(old) // rest
    return reshape_value(node, value, shape)


def _read_batch_target(node: OnnxNode, value: Value, target: list[int]) -> list[int]:
    """A shape whose first dimension is the file's fixed batch, for a batch of one point.

    Raises UnsupportedOperator where the first dimension is not the batch.
    """
    is_batched = node.batch_size > 1 and isinstance(value, DependentValue) and value.has_batch_dim
    if not is_batched:
        return list(target)
    node.check_keeps_batch(value, keeps=bool(target) and target[0] in (0, -1, node.batch_size))
    return [1 if target[0] == node.batch_size else target[0], *target[1:]]


@operator("Flatten")
def flatten(node: OnnxNode, inputs: list[Value]) -> Value:
    shape = get_shape(inputs[0])
    axis = int(node.get_number("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise node.make_error(f"Axis {axis} does not exist.")
    axis = axis + len(shape) if axis < 0 else axis
    node.check_keeps_batch(inputs[0], keeps=axis == 1)
    return reshape_value(node, inputs[0], [prod(shape[:axis]), prod(shape[axis:])])


@operator("Squeeze")
def squeeze(node: OnnxNode, inputs: list[Value]) -> Value:
    shape = get_shape(inputs[0])
    axes = _read_input_or_attribute(node, inputs, "axes")
    dropped = node.resolve_axes(axes, len(shape)) if axes else [d for d, n in enumerate(shape) if n == 1]
    if node.batch_size > 1 and not axes and isinstance(inputs[0], DependentValue) and inputs[0].has_batch_dim:
        dropped.remove(0)  # the batch has another size in the file
    node.check_keeps_batch(inputs[0], keeps=0 not in dropped)
    if any(shape[d] != 1 for d in dropped):
        raise node.make_error(
            f"Shape {list(shape)} cannot be squeezed along axes {axes}: only dimensions of size 1 can."
        )
    return reshape_value(node, inputs[0], [n for d, n in enumerate(shape) if d not in dropped])


@operator("Unsqueeze")
def unsqueeze(node: OnnxNode, inputs: list[Value]) -> Value:
    shape = list(get_shape(inputs[0]))
    axes = _read_input_or_attribute(node, inputs, "axes")
    limits.check_limit(len(axes), limits.MAX_DIMS, "dimensions of the result", node.recorder.where)
    dims = sorted(node.resolve_axes(axes, len(shape) + len(axes)))
    node.check_keeps_batch(inputs[0], keeps=0 not in dims)
    for axis in dims:
        shape.insert(axis, 1)
    return reshape_value(node, inputs[0], shape)


def _read_input_or_attribute(node: OnnxNode, inputs: list[Value], key: str) -> list[int]:
    """Whole numbers that are the second input in newer operator sets, and an attribute in older ones."""
    if get_input(inputs, 1) is None:
        return node.get_ints(key)
    return node.require_whole_numbers(inputs[1], f"its {key}")


def reshape_value(node: OnnxNode, value: Value, shape: Sequence[int]) -> Value:
    """Reshape a constant or a value that depends on the input."""
    if isinstance(value, Tensor):
        limits.count_elements(shape, "the result", node.recorder.where)
        return value.reshape(list(shape))
    return node.reshape(value, shape)


@operator("Transpose")
def transpose(node: OnnxNode, inputs: list[Value]) -> Value:
    value, rank = inputs[0], len(get_shape(inputs[0]))
    perm = node.get_ints("perm", range(rank - 1, -1, -1))
    if sorted(perm) != list(range(rank)):
        raise node.make_error(f"{perm} is not a permutation of {rank} dimensions.")
    if isinstance(value, Tensor):
        return value.permute(perm)
    if value.has_batch_dim and perm[0] == 0:
        return node.make_batched(node.call("permute", node.as_node_output(value), perm))
    return node.make_unbatched(node.call("permute", node.as_unbatched(value), [0, *(p + 1 for p in perm)]))


@operator("Concat")
def concat(node: OnnxNode, inputs: list[Value]) -> Value:
    ranks = {len(get_shape(v)) for v in inputs}
    if len(ranks) != 1 or ("axis" not in node.attributes and node.opset >= 4):
        raise node.make_error("Its inputs must have equally many dimensions, and it needs an axis.")
    (axis,) = node.resolve_axes([int(node.get_number("axis", 1))], ranks.pop())
    if node.batch_size > 1 and axis and any(isinstance(v, DependentValue) for v in inputs):
        inputs = [drop_equal_rows(node, v) for v in inputs]
    if all(isinstance(v, Tensor) for v in inputs):
        elements = sum(v.numel() for v in inputs)
        limits.check_limit(elements, limits.MAX_VALUE_ELEMENTS, "elements of the result", node.recorder.where)
        return torch.cat([v.to(inputs[0].dtype) for v in inputs], axis)
    if axis and all(v.has_batch_dim if isinstance(v, DependentValue) else v.shape[0] == 1 for v in inputs):
        parts = [node.as_node_output(v) if isinstance(v, DependentValue) else v.to(torch.float64) for v in inputs]
        return node.make_batched(node.call("cat", parts, axis))
    parts = [node.as_unbatched(v) if isinstance(v, DependentValue) else v.to(torch.float64)[None] for v in inputs]
    return node.make_unbatched(node.call("cat", parts, axis + 1))


@operator("Split")
def split(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = inputs[0], get_shape(inputs[0])
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(shape))
    sizes = _read_input_or_attribute(node, inputs, "split")
    if not sizes:
        count = int(node.get_number("num_outputs", node.output_count))
        if count != node.output_count or not count:
            raise node.make_error(
                f"It splits into {count_noun(count, 'part')}, but has {count_noun(node.output_count, 'output')}."
            )
        chunk = ceil(shape[axis] / count)
        sizes = [max(0, min(chunk, shape[axis] - i * chunk)) for i in range(count)]
    if sum(sizes) != shape[axis] or any(s < 0 for s in sizes):
        raise node.make_error(f"A dimension of size {shape[axis]} cannot be split into sizes {sizes[:20]}.")
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(select_along_axis(node, value, axis, range(a, b)) for a, b in pairwise(ends))


@operator("Slice")
def slices(node: OnnxNode, inputs: list[Value]) -> Value:
    value, rank = inputs[0], len(get_shape(inputs[0]))
    if node.opset < 10:
        starts, ends = node.get_ints("starts"), node.get_ints("ends")
        axes, steps = node.get_ints("axes", range(len(starts))), [1] * len(starts)
    else:
        starts = node.require_whole_numbers(get_input(inputs, 1), "its starts")
        ends = node.require_whole_numbers(get_input(inputs, 2), "its ends")
        axes_input, steps_input = get_input(inputs, 3), get_input(inputs, 4)
        axes = list(range(len(starts))) if axes_input is None else node.require_whole_numbers(axes_input, "its axes")
        steps = [1] * len(starts) if steps_input is None else node.require_whole_numbers(steps_input, "its steps")
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.make_error("Its starts, ends, axes and steps do not fit together.")
    for axis, start, end, step in zip(node.resolve_axes(axes, rank), starts, ends, steps, strict=True):
        indices = range(*slice(start, end, step).indices(get_shape(value)[axis]))
        value = select_along_axis(node, value, axis, indices)
    return value


@operator("Gather")
def gather(node: OnnxNode, inputs: list[Value]) -> Value:
    value, index = inputs[0], node.require_constant(inputs[1], "its indices")
    shape = get_shape(value)
    if index.is_floating_point():
        raise node.make_error("Its indices are not whole numbers.")
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(shape))
    limits.check_limit(index.numel(), limits.MAX_VALUE_ELEMENTS, "indices", node.name)
    indices = torch.where(index < 0, index + shape[axis], index).reshape(-1).numpy()
    selected = select_along_axis(node, value, axis, indices)
    return reshape_value(node, selected, [*shape[:axis], *index.shape, *shape[axis + 1 :]])


@operator("Expand")
def expand(node: OnnxNode, inputs: list[Value]) -> Value:
    target = node.require_whole_numbers(inputs[1], "its shape")
    if node.batch_size > 1 and len(target) == len(get_shape(inputs[0])):
        target = [1 if target[0] == node.batch_size else target[0], *target[1:]]
    shape = torch.broadcast_shapes(get_shape(inputs[0]), target)
    node.check_result_size(shape)
    if isinstance(inputs[0], Tensor):
        return inputs[0].expand(shape)
    value = inputs[0]
    if value.has_batch_dim and len(shape) == len(value.shape) and shape[0] == 1:
        return node.make_batched(node.call("expand", node.as_node_output(value), [1, *shape[1:]]))
    full_rank = node.reshape(value, (1,) * (len(shape) - len(value.shape)) + value.shape)
    return node.make_unbatched(node.call("expand", node.as_unbatched(full_rank), [1, *shape]))


@operator("Tile")
def tile(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = inputs[0], get_shape(inputs[0])
    if node.opset < 6:  # one axis and how often it is repeated
        count, axis = (int(node.require_constant(v, "its repeats").reshape(-1)[0]) for v in inputs[1:3])
        (axis,) = node.resolve_axes([axis], len(shape))
        repeats = [count if d == axis else 1 for d in range(len(shape))]
    else:
        repeats = node.require_whole_numbers(inputs[1], "its repeats")
    if len(repeats) != len(shape) or any(r < 0 for r in repeats):
        raise node.make_error(f"Repeats {repeats} do not fit shape {list(shape)}.")
    node.check_result_size([n * r for n, r in zip(shape, repeats, strict=True)])
    for axis, count in enumerate(repeats):
        value = value if count == 1 else select_along_axis(node, value, axis, np.tile(np.arange(shape[axis]), count))
    return value


@operator("Pad")
def pad(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = inputs[0], get_shape(inputs[0])
    fill = 0.0
    if node.opset < 11:
        pads, fill = node.get_ints("pads", node.get_ints("paddings")), node.get_number("value", 0.0)
    else:
        pads = node.require_whole_numbers(get_input(inputs, 1), "its pads")
        if get_input(inputs, 2) is not None:
            fill = float(node.require_constant(inputs[2], "its value").reshape(-1)[0])
    axes_input = get_input(inputs, 3)
    axes = list(range(len(shape))) if axes_input is None else node.require_whole_numbers(axes_input, "its axes")
    dims = node.resolve_axes(axes, len(shape))
    if len(pads) != 2 * len(dims):
        raise node.make_error(f"{len(pads)} pads do not fit {len(dims)} dimensions.")
    padding = {d: (before, after) for d, before, after in zip(dims, pads, pads[len(dims) :], strict=False)}
    sizes = [n + sum(padding.get(d, (0, 0))) for d, n in enumerate(shape)]
    if any(sizes[d] < 0 for d in dims):
        raise node.make_error("It removes more elements than there are.")
    node.check_result_size(sizes)
    for axis, (before, after) in padding.items():
        if before or after:
            value = _pad_axis(node, value, axis, (before, after), fill)
    return value


def _pad_axis(node: OnnxNode, value: Value, axis: int, padding: tuple[int, int], fill: float) -> Value:
    """Pad one axis before and after; negative numbers remove elements."""
    mode, size = node.get_attribute("mode", "constant"), get_shape(value)[axis]
    inner = range(max(0, -padding[0]), size - max(0, -padding[1]))
    before, after = (max(0, p) for p in padding)
    if mode in ("reflect", "edge", "wrap"):
        if not inner or (mode == "reflect" and len(inner) < 2):
            raise node.make_error("There are too few elements to pad with.")
        return select_along_axis(node, value, axis, np.pad(np.array(inner), (before, after), mode))
    if mode != "constant":
        raise node.make_error(f"mode {str(mode)[:40]!r} does not exist.")
    value = select_along_axis(node, value, axis, inner)

    def pad_dim(x: NodeOutput | Tensor, dims: list[int]) -> Any:
        rank = x.dim() if isinstance(x, Tensor) else len(x.shape) + 1
        return node.call("constant_pad_nd", x, [*[0, 0] * (rank - 1 - dims[0]), before, after], fill)

    return pad_dim(value, [axis]) if isinstance(value, Tensor) else node.apply_along_axes(value, [axis], pad_dim)


@operator("DepthToSpace", "SpaceToDepth")
@read_rows(0)
def depth_to_space(node: OnnxNode, inputs: list[Value]) -> Value:
    x, block = node.as_batched(inputs[0]), int(node.get_number("blocksize", 0))
    if len(x.shape) != 3 or block < 1:
        raise node.make_error("It expects an image and a block of at least 1.")
    depth, height, width = x.shape
    if node.op_type == "SpaceToDepth":
        if height % block or width % block:
            raise node.make_error("The block does not divide the image.")
        split_shape = [1, depth, height // block, block, width // block, block]
        is_dcr = node.get_attribute("mode", "DCR") == "DCR"
        order = [0, 3, 5, 1, 2, 4] if is_dcr else [0, 1, 3, 5, 2, 4]
        shape = [1, depth * block * block, height // block, width // block]
    else:
        if depth % (block * block):
            raise node.make_error("The block does not divide the channels.")
        rest = depth // (block * block)
        is_dcr = node.get_attribute("mode", "DCR") == "DCR"  # depth, column, row
        split_shape = [1, block, block, rest, height, width] if is_dcr else [1, rest, block, block, height, width]
        order = [0, 3, 4, 1, 5, 2] if is_dcr else [0, 1, 4, 2, 5, 3]
        shape = [1, rest, height * block, width * block]

    def rearrange(x: Tensor) -> Tensor:
        return x.reshape(split_shape).permute(order).reshape(shape)

    return node.make_batched(node.recorder.graph.rearrange(rearrange, [x], node.op_type.lower()))


@operator("Constant")
def constant(node: OnnxNode, inputs: list[Value]) -> Value:
    for key in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if key in node.attributes:
            value = node.attributes[key]
            dtype = torch.float64 if "float" in key else torch.int64
            return value if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)
    raise UnsupportedOperator("is neither a number nor a tensor of numbers")


@operator("ConstantOfShape")
def constant_of_shape(node: OnnxNode, inputs: list[Value]) -> Value:
    shape = node.require_whole_numbers(inputs[0], "its shape")
    limits.count_elements(shape, "the constant", node.recorder.where, limits.MAX_VALUE_ELEMENTS)
    value = node.get_attribute("value", torch.zeros(1, dtype=torch.float64))
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise node.make_error("Its value is not a single number.")
    return value.reshape(()).expand(shape).clone()


def _get_declared_shape(node: OnnxNode, value: Value) -> ValueShape:
    """The shape of a value for the batch size that the file declares."""
    shape = get_shape(value)
    is_batched = isinstance(value, DependentValue) and value.has_batch_dim
    return (node.batch_size, *shape[1:]) if is_batched else shape


@operator("Shape")
def shape(node: OnnxNode, inputs: list[Value]) -> Value:
    sizes = list(_get_declared_shape(node, inputs[0]))
    start, end = int(node.get_number("start", 0)), node.get_attribute("end", None)
    return torch.tensor(sizes[start : None if end is None else int(end)], dtype=torch.int64)


@operator("Size")
def size(node: OnnxNode, inputs: list[Value]) -> Value:
    return torch.tensor(prod(_get_declared_shape(node, inputs[0])))


@operator("Range")
def arange(node: OnnxNode, inputs: list[Value]) -> Value:
    start, stop, step = (node.require_constant(v, "a limit").reshape(-1)[0].item() for v in inputs[:3])
    if step == 0:
        raise node.make_error("Its step is 0.")
    limits.check_limit(max(0.0, (stop - start) / step), limits.MAX_VALUE_ELEMENTS, "numbers of a range", node.name)
    numbers = torch.from_numpy(np.arange(start, stop, step))
    return numbers.to(torch.float64) if numbers.is_floating_point() else numbers
