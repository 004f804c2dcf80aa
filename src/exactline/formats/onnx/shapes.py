"""Operators that move elements, and those that make constants and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...network.builder import Data, Refused
from .. import limits
from .values import Call, Held, Value, given, operator

ValueShape = tuple[int, ...]


def shape_of(value: Value) -> ValueShape:
    """The shape of a value in the file."""
    return value.shape if isinstance(value, Held) else tuple(value.shape)


def picked(c: Call, value: Value, axis: int, chosen: range | np.ndarray[Any, Any]) -> Value:
    """Chosen slices along one axis, in the order given."""
    shape = shape_of(value)
    (axis,) = c.axes([axis], len(shape))
    size = shape[axis]
    most = max(limits.WIDTH, prod(shape))  # a weight may be larger than a value, and parts of it are no larger
    limits.sized([*shape[:axis], len(chosen), *shape[axis + 1 :]], "the result", c.sketch.where, most)
    listed = np.arange(chosen.start, chosen.stop, chosen.step) if isinstance(chosen, range) else chosen
    index = torch.from_numpy(listed.astype(np.int64))
    if bool(((index < 0) | (index >= size)).any()):
        raise c.damaged(f"An index lies outside of a dim of size {size}.")
    if isinstance(value, Tensor):
        return value.index_select(axis, index)
    if torch.equal(index, torch.arange(size)):
        return value
    return c.along(value, [axis], lambda x, d: c.call("index_select", x, d[0], index))


@operator("Reshape")
def reshape(c: Call, inputs: list[Value]) -> Value:
    value = inputs[0]
    asked = c.whole(inputs[1], "its shape") if len(inputs) > 1 else c.ints("shape")
    old = shape_of(value)
    if any(d < -1 for d in asked) or asked.count(-1) > 1:
        raise c.damaged(f"{asked} is not a shape.")
    shape = list(asked)
    if not c.get("allowzero", 0):
        if any(d == 0 and i >= len(old) for i, d in enumerate(shape)):
            raise c.damaged(f"Shape {asked} keeps a dim that the input does not have.")
        shape = [old[i] if d == 0 else d for i, d in enumerate(shape)]
    if -1 in shape:
        rest = prod(d for d in shape if d != -1)
        if rest == 0 or prod(old) % rest:
            raise c.damaged(f"A value of shape {list(old)} cannot become {asked}.")
        shape[shape.index(-1)] = prod(old) // rest
    if isinstance(value, Tensor):
        limits.sized(shape, "the result", c.sketch.where)
        return value.reshape(shape)
    return c.reshaped(value, shape)


@operator("Flatten")
def flatten(c: Call, inputs: list[Value]) -> Value:
    shape = shape_of(inputs[0])
    axis = int(c.number("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise c.damaged(f"Axis {axis} does not exist.")
    axis = axis + len(shape) if axis < 0 else axis
    return _with_shape(c, inputs[0], [prod(shape[:axis]), prod(shape[axis:])])


@operator("Squeeze")
def squeeze(c: Call, inputs: list[Value]) -> Value:
    shape = shape_of(inputs[0])
    axes = c.whole(inputs[1], "its axes") if given(inputs, 1) is not None else c.ints("axes")
    gone = c.axes(axes, len(shape)) if axes else [d for d, n in enumerate(shape) if n == 1]
    if any(shape[d] != 1 for d in gone):
        raise c.damaged(f"Only dims of size 1 can be squeezed, not those of {list(shape)} at {axes}.")
    return _with_shape(c, inputs[0], [n for d, n in enumerate(shape) if d not in gone])


@operator("Unsqueeze")
def unsqueeze(c: Call, inputs: list[Value]) -> Value:
    shape = list(shape_of(inputs[0]))
    axes = c.whole(inputs[1], "its axes") if given(inputs, 1) is not None else c.ints("axes")
    limits.within(len(axes), limits.DIMS, "dims of the result", c.sketch.where)
    for axis in sorted(c.axes(axes, len(shape) + len(axes))):
        shape.insert(axis, 1)
    return _with_shape(c, inputs[0], shape)


def _with_shape(c: Call, value: Value, shape: Sequence[int]) -> Value:
    if isinstance(value, Tensor):
        limits.sized(shape, "the result", c.sketch.where)
        return value.reshape(list(shape))
    return c.reshaped(value, shape)


@operator("Transpose")
def transpose(c: Call, inputs: list[Value]) -> Value:
    value, rank = inputs[0], len(shape_of(inputs[0]))
    perm = c.ints("perm", range(rank - 1, -1, -1))
    if sorted(perm) != list(range(rank)):
        raise c.damaged(f"{perm} is not an order of {rank} dims.")
    if isinstance(value, Tensor):
        return value.permute(perm)
    if value.leads and perm[0] == 0:
        return c.led(c.call("permute", c.data(value), perm))
    return c.whole_point(c.call("permute", c.full(value), [0, *(p + 1 for p in perm)]))


@operator("Concat")
def concat(c: Call, inputs: list[Value]) -> Value:
    ranks = {len(shape_of(v)) for v in inputs}
    if len(ranks) != 1 or "axis" not in c.settings:
        raise c.damaged("What is joined must have equally many dims, and an axis.")
    (axis,) = c.axes([int(c.number("axis", 0))], ranks.pop())
    if all(isinstance(v, Tensor) for v in inputs):
        limits.within(sum(v.numel() for v in inputs), limits.WIDTH, "elements of the result", c.sketch.where)
        return torch.cat([v.to(inputs[0].dtype) for v in inputs], axis)
    tensors = [v for v in inputs if isinstance(v, Tensor)]
    if axis and all(v.leads for v in inputs if isinstance(v, Held)) and all(t.shape[0] == 1 for t in tensors):
        parts = [c.data(v) if isinstance(v, Held) else v.to(torch.float64) for v in inputs]
        return c.led(c.call("cat", parts, axis))
    parts = [c.full(v) if isinstance(v, Held) else v.to(torch.float64)[None] for v in inputs]
    return c.whole_point(c.call("cat", parts, axis + 1))


@operator("Split")
def split(c: Call, inputs: list[Value]) -> Value:
    value, shape = inputs[0], shape_of(inputs[0])
    (axis,) = c.axes([int(c.number("axis", 0))], len(shape))
    sizes = c.ints("split") if given(inputs, 1) is None else c.whole(inputs[1], "its sizes")
    if not sizes:
        count = int(c.number("num_outputs", c.outputs))
        if count != c.outputs or not count:
            raise c.damaged(f"It splits into {count} parts and has {c.outputs} outputs.")
        chunk = ceil(shape[axis] / count)
        sizes = [max(0, min(chunk, shape[axis] - i * chunk)) for i in range(count)]
    if sum(sizes) != shape[axis] or any(s < 0 for s in sizes):
        raise c.damaged(f"Parts of {sizes[:20]} do not make {shape[axis]}.")
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(picked(c, value, axis, range(a, b)) for a, b in pairwise(ends))


@operator("Slice")
def slices(c: Call, inputs: list[Value]) -> Value:
    value, rank = inputs[0], len(shape_of(inputs[0]))
    if c.opset < 10:
        starts, ends = c.ints("starts"), c.ints("ends")
        axes, steps = c.ints("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = c.whole(given(inputs, 1), "its starts"), c.whole(given(inputs, 2), "its ends")
        listed, stepped = given(inputs, 3), given(inputs, 4)
        axes = list(range(len(starts))) if listed is None else c.whole(listed, "its axes")
        steps = [1] * len(starts) if stepped is None else c.whole(stepped, "its steps")
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise c.damaged("Its starts, ends, axes and steps do not fit together.")
    for axis, start, end, step in zip(c.axes(axes, rank), starts, ends, steps, strict=True):
        value = picked(c, value, axis, range(*slice(start, end, step).indices(shape_of(value)[axis])))
    return value


@operator("Gather")
def gather(c: Call, inputs: list[Value]) -> Value:
    value, index = inputs[0], c.constant(inputs[1], "its indices")
    shape = shape_of(value)
    if index.is_floating_point():
        raise c.damaged("Its indices are not whole numbers.")
    (axis,) = c.axes([int(c.number("axis", 0))], len(shape))
    limits.within(index.numel(), limits.WIDTH, "indices", c.name)
    chosen = torch.where(index < 0, index + shape[axis], index).reshape(-1).numpy()
    found = picked(c, value, axis, chosen)
    return _with_shape(c, found, [*shape[:axis], *index.shape, *shape[axis + 1 :]])


@operator("Expand")
def expand(c: Call, inputs: list[Value]) -> Value:
    asked = c.whole(inputs[1], "its shape")
    shape = torch.broadcast_shapes(shape_of(inputs[0]), asked)
    limits.sized(shape, "the result", c.sketch.where, limits.WIDTH)
    if isinstance(inputs[0], Tensor):
        return inputs[0].expand(shape)
    value = inputs[0]
    if value.leads and len(shape) == len(value.shape) and shape[0] == 1:
        return c.led(c.call("expand", c.data(value), [1, *shape[1:]]))
    wide = c.reshaped(value, (1,) * (len(shape) - len(value.shape)) + value.shape)
    return c.whole_point(c.call("expand", c.full(wide), [1, *shape]))


@operator("Tile")
def tile(c: Call, inputs: list[Value]) -> Value:
    value, repeats = inputs[0], c.whole(inputs[1], "its repeats")
    shape = shape_of(value)
    if len(repeats) != len(shape) or any(r < 0 for r in repeats):
        raise c.damaged(f"Repeats {repeats} do not fit shape {list(shape)}.")
    limits.sized([n * r for n, r in zip(shape, repeats, strict=True)], "the result", c.sketch.where, limits.WIDTH)
    for axis, count in enumerate(repeats):
        value = value if count == 1 else picked(c, value, axis, np.tile(np.arange(shape[axis]), count))
    return value


@operator("Pad")
def pad(c: Call, inputs: list[Value]) -> Value:
    value, shape = inputs[0], shape_of(inputs[0])
    fill = 0.0
    if c.opset < 11:
        pads, fill = c.ints("pads", c.ints("paddings")), c.number("value", 0.0)
    else:
        pads = c.whole(given(inputs, 1), "its pads")
        if given(inputs, 2) is not None:
            fill = float(c.constant(inputs[2], "its value").reshape(-1)[0])
    axes = c.whole(inputs[3], "its axes") if given(inputs, 3) is not None else list(range(len(shape)))
    dims = c.axes(axes, len(shape))
    if len(pads) != 2 * len(dims):
        raise c.damaged(f"{len(pads)} pads do not fit {len(dims)} dims.")
    ends = [(d, before, after) for d, before, after in zip(dims, pads, pads[len(dims) :], strict=False)]
    wide = {d: n + b + a for d, b, a in ends for n in [shape[d]]}
    if any(n < 0 for n in wide.values()):
        raise c.damaged("It cuts away more than there is.")
    limits.sized([wide.get(d, n) for d, n in enumerate(shape)], "the result", c.sketch.where, limits.WIDTH)
    mode = c.get("mode", "constant")
    for axis, before, after in ends:
        if before or after:
            value = _padded(c, value, axis, before, after, mode, fill)
    return value


def _padded(c: Call, value: Value, axis: int, before: int, after: int, mode: str, fill: float) -> Value:
    size = shape_of(value)[axis]
    inner = range(max(0, -before), size - max(0, -after))
    before, after = max(0, before), max(0, after)
    if mode in ("reflect", "edge", "wrap"):
        if not inner or (mode == "reflect" and len(inner) < 2):
            raise c.damaged("There is nothing to pad with.")
        return picked(c, value, axis, np.pad(np.array(inner), (before, after), mode))
    if mode != "constant":
        raise c.damaged(f"mode {str(mode)[:40]!r} does not exist.")
    value = picked(c, value, axis, inner)

    def draw(x: Data | Tensor, dims: list[int]) -> Any:
        rank = x.dim() if isinstance(x, Tensor) else len(x.shape) + 1
        return c.call("constant_pad_nd", x, [*[0, 0] * (rank - 1 - dims[0]), before, after], fill)

    return draw(value, [axis]) if isinstance(value, Tensor) else c.along(value, [axis], draw)


@operator("DepthToSpace", "SpaceToDepth")
def depth_to_space(c: Call, inputs: list[Value]) -> Value:
    x, block = c.leading(inputs[0]), int(c.number("blocksize", 0))
    if len(x.shape) != 3 or block < 1:
        raise c.damaged("It expects an image and a block of at least 1.")
    depth, high, wide = x.shape
    if c.kind == "SpaceToDepth":
        if high % block or wide % block:
            raise c.damaged("The block does not divide the image.")
        steps = [1, depth, high // block, block, wide // block, block]
        order, shape = [0, 3, 5, 1, 2, 4], [1, depth * block * block, high // block, wide // block]
    else:
        if depth % (block * block):
            raise c.damaged("The block does not divide the channels.")
        rest = depth // (block * block)
        rows = c.get("mode", "DCR") == "DCR"
        steps = [1, block, block, rest, high, wide] if rows else [1, rest, block, block, high, wide]
        order = [0, 3, 4, 1, 5, 2] if rows else [0, 1, 4, 2, 5, 3]
        shape = [1, rest, high * block, wide * block]
    moved = c.sketch.builder.rearranged(lambda n: n.reshape(steps).permute(order).reshape(shape), [x], c.kind.lower())
    return c.led(moved)


@operator("Constant")
def constant(c: Call, inputs: list[Value]) -> Value:
    for key in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if key in c.settings:
            value = c.settings[key]
            kind = torch.float64 if "float" in key else torch.int64
            return value if isinstance(value, Tensor) else torch.tensor(value, dtype=kind)
    raise Refused("holds no number")


@operator("ConstantOfShape")
def filled(c: Call, inputs: list[Value]) -> Value:
    shape = c.whole(inputs[0], "its shape")
    limits.sized(shape, "the constant", c.sketch.where, limits.WIDTH)
    value = c.get("value", torch.zeros(1, dtype=torch.float64))
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise c.damaged("It fills with something that is not one number.")
    return value.reshape(()).expand(shape).clone()


@operator("Shape")
def shape(c: Call, inputs: list[Value]) -> Value:
    found = list(shape_of(inputs[0]))
    end = c.get("end", None)
    return torch.tensor(found[int(c.number("start", 0)) : None if end is None else int(end)], dtype=torch.int64)


@operator("Size")
def size(c: Call, inputs: list[Value]) -> Value:
    return torch.tensor(prod(shape_of(inputs[0])))


@operator("Range")
def arange(c: Call, inputs: list[Value]) -> Value:
    start, limit, delta = (c.constant(v, "an end").reshape(-1)[0].item() for v in inputs[:3])
    if delta == 0:
        raise c.damaged("Its step is 0.")
    limits.within(max(0.0, (limit - start) / delta), limits.WIDTH, "numbers of a range", c.name)
    made = torch.from_numpy(np.arange(start, limit, delta))
    return made.to(torch.float64) if made.is_floating_point() else made
