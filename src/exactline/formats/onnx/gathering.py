"""Read operators that gather, scatter, mask or reverse elements by constant indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator
from .arithmetic import elementwise
from .shapes import get_shape, select_along_axis
from .unsupported import explain_unsupported
from .values import DependentValue, OnnxNode, Value, get_input, operator

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}  # ONNX's names and torch's


def _read_index(node: OnnxNode, value: Value, what: str = "its indices") -> Tensor:
    """A constant of whole numbers."""
    index = node.require_constant(value, what)
    if index.is_floating_point():
        raise node.make_error(f"{what} are not whole numbers.")
    return index.to(torch.int64)


def _wrap_indices(node: OnnxNode, index: Tensor, size: int) -> Tensor:
    """Indices counted from 0; raises FileError for one outside of a dimension."""
    if bool(((index < -size) | (index >= size)).any()):
        raise node.make_error(f"An index is outside of a dimension of size {size}.")
    return torch.where(index < 0, index + size, index)


@operator("GatherElements")
def gather_elements(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, index = get_shape(inputs[0]), _read_index(node, inputs[1])
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(shape))
    if index.dim() != len(shape) or any(
        n > m for d, (n, m) in enumerate(zip(index.shape, shape, strict=True)) if d != axis
    ):
        raise node.make_error(f"Indices of shape {list(index.shape)} do not fit a value of shape {list(shape)}.")
    index = _wrap_indices(node, index, shape[axis])
    return node.rearrange(inputs[:1], lambda x: x.gather(axis, index))


@operator("GatherND")
def gather_nd(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, index = get_shape(inputs[0]), _read_index(node, inputs[1])
    batch = int(node.get_number("batch_dims", 0))
    if not index.dim() or not 0 <= batch < index.dim() or index.shape[-1] + batch > len(shape):
        raise node.make_error(f"Indices of shape {list(index.shape)} do not fit a value of shape {list(shape)}.")
    if tuple(index.shape[:batch]) != shape[:batch]:
        raise node.make_error("The batch dimensions of its indices and its data differ.")
    position = _flatten_positions(node, index, shape[: batch + index.shape[-1]], batch)
    rest = shape[batch + index.shape[-1] :]
    node.check_result_size([*position.shape, *rest])

    def gather(x: Tensor) -> Tensor:
        return x.reshape(-1, *rest)[position]

    return node.rearrange(inputs[:1], gather)


def _flatten_positions(node: OnnxNode, index: Tensor, sizes: Sequence[int], batch: int = 0) -> Tensor:
    """Positions in the flattened leading dimensions, (...), of index tuples, (..., k) with k = len(sizes) - batch."""
    position = torch.zeros(index.shape[:-1], dtype=torch.int64)
    for d in range(batch):
        view = [1] * position.dim()
        view[d] = -1
        position = position * sizes[d] + torch.arange(sizes[d]).view(view)
    for d, size in enumerate(sizes[batch:]):
        position = position * size + _wrap_indices(node, index[..., d], size)
    return position


@operator("ScatterND")
def scatter_nd(node: OnnxNode, inputs: list[Value]) -> Value:
    data, updates = inputs[0], inputs[2]
    shape, index = get_shape(data), _read_index(node, inputs[1])
    depth = index.shape[-1] if index.dim() else 0
    if not 1 <= depth <= len(shape) or get_shape(updates) != (*index.shape[:-1], *shape[depth:]):
        raise node.make_error("Its data, indices and updates do not fit together.")
    rows = _flatten_positions(node, index, shape[:depth]).reshape(-1)
    inner = torch.Size(shape[depth:]).numel()
    position = (rows[:, None] * inner + torch.arange(inner)).reshape(-1)
    return _scatter(node, data, updates, position)


@operator("ScatterElements", "Scatter")
def scatter_elements(node: OnnxNode, inputs: list[Value]) -> Value:
    data, updates = inputs[0], inputs[2]
    shape, index = get_shape(data), _read_index(node, inputs[1])
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(shape))
    fits = index.dim() == len(shape) and all(
        n <= m for d, (n, m) in enumerate(zip(index.shape, shape, strict=True)) if d != axis
    )
    if not fits or get_shape(updates) != tuple(index.shape):
        raise node.make_error("Its data, indices and updates do not fit together.")
    flat = torch.arange(torch.Size(shape).numel()).reshape(shape)
    corner = flat[tuple(slice(0, 1) if d == axis else slice(0, n) for d, n in enumerate(index.shape))]
    step = torch.Size(shape[axis + 1 :]).numel()
    position = (corner + _wrap_indices(node, index, shape[axis]) * step).reshape(-1)
    return _scatter(node, data, updates, position)


def _scatter(node: OnnxNode, data: Value, updates: Value, position: Tensor) -> Value:
    """Put updates, in order, into the flat positions, (updates,), of the data."""
    reduction = node.get_attribute("reduction", "none")
    if reduction == "none":

        def put(x: Tensor, new: Tensor) -> Tensor:
            flat = x.clone().reshape(-1)
            flat[position] = new.reshape(-1).to(flat.dtype)
            return flat.reshape(x.shape)

        return node.rearrange([data, updates], put)
    if reduction not in REDUCTIONS:
        raise node.make_error(f"reduction {str(reduction)[:40]!r} does not exist.")
    if isinstance(updates, DependentValue):
        raise UnsupportedOperator(f"scatters values that depend on the input with reduction {reduction!r}")
    return _reduce_into(node, data, updates, position, reduction)


def _reduce_into(node: OnnxNode, data: Value, updates: Tensor, position: Tensor, reduction: str) -> Value:
    """Combine the data with constant updates: one constant for each element that any update reaches."""
    shape = get_shape(data)
    count = torch.Size(shape).numel()
    start = torch.full((count,), 1.0 if reduction == "mul" else 0.0, dtype=torch.float64)
    new = updates.reshape(-1).to(torch.float64)
    is_bound = reduction in ("max", "min")
    constant = start.scatter_reduce(0, position, new, REDUCTIONS[reduction], include_self=not is_bound).reshape(shape)
    names = {"add": "add.Tensor", "mul": "mul.Tensor", "max": "maximum", "min": "minimum"}
    combined = elementwise(node, names[reduction], data, constant)
    if not is_bound:
        return combined
    is_reached = torch.zeros(count, dtype=torch.bool).index_fill(0, position, True).reshape(shape)
    return node.rearrange([combined, data], lambda new, old: torch.where(is_reached, new, old))


@operator("MaxUnpool")
def max_unpool(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, index = get_shape(inputs[0]), _read_index(node, inputs[1])
    kernel = node.get_ints("kernel_shape")
    strides, pads = node.get_ints("strides", [1] * len(kernel)), node.get_ints("pads", [0] * (2 * len(kernel)))
    if not len(kernel) == len(strides) == len(pads) // 2 == len(shape) - 2 or tuple(index.shape) != shape:
        raise node.make_error("Its kernel, strides, pads and indices do not fit its input.")
    ends = zip(shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False)
    unpooled = (*shape[:2], *((n - 1) * s - (b + a) + k for n, s, k, b, a in ends))
    target = unpooled
    if get_input(inputs, 2) is not None:
        target = tuple(node.require_whole_numbers(inputs[2], "its output shape"))
    node.check_result_size(unpooled)
    node.check_result_size(target)
    if len(target) != len(unpooled) or any(m < n for m, n in zip(target, unpooled, strict=True)):
        raise node.make_error(f"Its output shape {list(target)} is smaller than {list(unpooled)}.")
    position = _wrap_indices(node, index, torch.Size(unpooled).numel()).reshape(-1)

    def unpool(x: Tensor) -> Tensor:
        flat = x.new_zeros(torch.Size(unpooled).numel())
        flat[position] = x.reshape(-1)
        out = x.new_zeros(target)
        out[tuple(slice(n) for n in unpooled)] = flat.reshape(unpooled)
        return out

    return node.rearrange(inputs[:1], unpool)


@operator("OneHot")
def one_hot(node: OnnxNode, inputs: list[Value]) -> Value:
    if any(isinstance(v, DependentValue) for v in inputs[:2]):
        raise UnsupportedOperator(explain_unsupported(node.op_type, ""))
    index, depth = inputs[0].to(torch.int64), int(inputs[1].reshape(-1)[0])
    (axis,) = node.resolve_axes([int(node.get_number("axis", -1))], index.dim() + 1)
    if depth < 1 or get_shape(inputs[2]) != (2,):
        raise node.make_error("Its depth is less than 1, or its values are not two numbers.")
    node.check_result_size([*index.shape, depth])
    wrapped = torch.where(index < 0, index + depth, index).unsqueeze(axis)
    is_on = wrapped == torch.arange(depth).reshape([-1 if d == axis else 1 for d in range(wrapped.dim())])
    return node.rearrange(inputs[2:3], lambda values: values[is_on.to(torch.int64)])


@operator("ai.onnx.ml.ArrayFeatureExtractor")
def extract_features(node: OnnxNode, inputs: list[Value]) -> Value:
    rank, index = len(get_shape(inputs[0])), _read_index(node, inputs[1]).reshape(-1)
    if rank < 2:
        raise UnsupportedOperator("is supported for matrices only")
    return select_along_axis(node, inputs[0], rank - 1, _wrap_indices(node, index, get_shape(inputs[0])[-1]).numpy())


@operator("Trilu")
def trilu(node: OnnxNode, inputs: list[Value]) -> Value:
    if len(get_shape(inputs[0])) < 2:
        raise node.make_error("It takes matrices.")
    offset = get_input(inputs, 1)
    k = 0 if offset is None else node.require_whole_numbers(offset, "its diagonal")[0]
    cut = torch.triu if node.get_attribute("upper", 1) else torch.tril
    return node.rearrange(inputs[:1], lambda x: cut(x, k))


@operator("Compress")
def compress(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, condition = get_shape(inputs[0]), node.require_constant(inputs[1], "its condition").reshape(-1) != 0
    chosen = condition.nonzero().reshape(-1)
    if "axis" not in node.attributes:
        chosen = _wrap_indices(node, chosen, torch.Size(shape).numel())
        return node.rearrange(inputs[:1], lambda x: x.reshape(-1)[chosen])
    (axis,) = node.resolve_axes([int(node.get_number("axis", 0))], len(shape))
    return select_along_axis(node, inputs[0], axis, chosen.numpy())


@operator("ReverseSequence")
def reverse_sequence(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, lengths = get_shape(inputs[0]), _read_index(node, inputs[1], "its lengths").reshape(-1)
    axes = [int(node.get_number("batch_axis", 1)), int(node.get_number("time_axis", 0))]
    batch, time = node.resolve_axes(axes, len(shape))
    if len(lengths) != shape[batch] or bool(((lengths < 0) | (lengths > shape[time])).any()):
        raise node.make_error("Its lengths do not fit its input.")
    steps = torch.arange(shape[time])[None]  # (1, time)
    order = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)  # (batch, time)
    order = order if batch < time else order.T
    view = [n if d in (batch, time) else 1 for d, n in enumerate(shape)]
    return node.rearrange(inputs[:1], lambda x: x.gather(time, order.reshape(view).expand(shape)))


@operator("CenterCropPad")
def center_crop_pad(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = inputs[0], get_shape(inputs[0])
    sizes = node.require_whole_numbers(inputs[1], "its shape")
    dims = node.resolve_axes(node.get_ints("axes", range(len(shape))), len(shape))
    if len(sizes) != len(dims) or any(n < 0 for n in sizes):
        raise node.make_error(f"Sizes {sizes[:20]} do not fit {len(dims)} dimensions.")
    target = list(shape)
    for dim, size in zip(dims, sizes, strict=True):
        target[dim] = size
    node.check_result_size(target)
    kept = [min(n, m) for n, m in zip(shape, target, strict=True)]
    source = tuple(slice((n - k) // 2, (n - k) // 2 + k) for n, k in zip(shape, kept, strict=True))
    place = tuple(slice((m - k) // 2, (m - k) // 2 + k) for m, k in zip(target, kept, strict=True))

    def crop_and_pad(x: Tensor) -> Tensor:
        out = x.new_zeros(target)
        out[place] = x[source]
        return out

    return node.rearrange([value], crop_and_pad)


@operator("TensorScatter")
def tensor_scatter(node: OnnxNode, inputs: list[Value]) -> Value:
    shape, update_shape = get_shape(inputs[0]), get_shape(inputs[1])
    (axis,) = node.resolve_axes([int(node.get_number("axis", -2))], len(shape))
    begin = torch.zeros(shape[0], dtype=torch.int64)
    if get_input(inputs, 2) is not None:
        begin = _read_index(node, inputs[2], "its write indices").reshape(-1)
    fits = len(update_shape) == len(shape) and all(
        n == m for d, (n, m) in enumerate(zip(update_shape, shape, strict=True)) if d != axis
    )
    if not fits or len(begin) != shape[0] or axis == 0:
        raise node.make_error("Its cache, update and write indices do not fit together.")
    steps = begin[:, None] + torch.arange(update_shape[axis])  # (batch, steps)
    steps = steps % shape[axis] if node.get_attribute("mode", "linear") == "circular" else steps
    steps = _wrap_indices(node, steps, shape[axis])
    view = [n if d in (0, axis) else 1 for d, n in enumerate(update_shape)]
    index = steps.reshape(view).expand(update_shape)
    return node.rearrange(inputs[:2], lambda old, new: old.scatter(axis, index, new.to(old.dtype)))
