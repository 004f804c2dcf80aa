"""The shapes of a file's inputs: dynamic dimensions, fixed batches, and the shapes that the user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...errors import ArgumentError
from .. import limits

Shape: TypeAlias = tuple[int, ...]
# one shape, or one for each input in the order of the file, or by name
PointShapes: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]

# operators whose first dimension is the batch, and products whose rows are independent
BATCH_OPERATORS = {
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "BatchNormalization"),
    *("DepthToSpace", "SpaceToDepth", "LpPool", "GlobalLpPool", "InstanceNormalization", "GroupNormalization"),
    *("Gemm", "MatMul", "LRN", "Upsample", "Col2Im"),
}
CHANNEL_COUNTS = (1, 3, 4)  # of images
EXAMPLE_SIZES = {1: (10,), 2: (10, 10), 3: (3, 224, 224), 4: (3, 16, 224, 224)}  # by rank of one point, for hints


@dataclass(frozen=True)
class InputShapes:
    """The shape of every input as it is read, with a first dimension of 1 for a batch."""

    shapes: dict[str, Shape]
    batch_size: int = 1  # that the file declares where it is fixed
    is_batch_certain: bool = True  # whether the first dimension cannot belong to the point

    def as_one_point(self) -> InputShapes:
        """The same inputs, with a first dimension that belongs to the point."""
        shapes = {name: (self.batch_size, *shape[1:]) for name, shape in self.shapes.items()}
        return replace(self, shapes=shapes, batch_size=1)


def resolve_inputs(graph: Any, where: str, given: PointShapes | None) -> InputShapes:
    """Resolve the shapes of a graph's inputs; weights that are listed among the inputs are left out.

    Args:
        graph: the ONNX graph.
        where: the name of the file, for error messages.
        given: the shapes of one point that the user gives, if any.

    Raises ArgumentError where a given shape does not fit, or a dimension is dynamic and no shape is given.
    """
    weights = {tensor.name for tensor in graph.initializer}
    declared = {i.name: _read_dims(i, where) for i in graph.input if i.name not in weights}
    points = _match_shapes(declared, given)
    firsts = {dims[0] for dims in declared.values() if dims}
    size = max(firsts, default=1)
    may_be_batch = len(firsts) == 1 and size > 1 and all(len(dims) > 1 for dims in declared.values())
    leaves_out_batch = may_be_batch and all(
        name in points and len(points[name]) == len(dims) - 1 for name, dims in declared.items()
    )
    if may_be_batch and not points:
        may_be_batch = any(node.op_type in BATCH_OPERATORS for node in graph.node)
    is_batch = leaves_out_batch or (may_be_batch and not points)
    if is_batch:
        declared = {name: [1, *dims[1:]] for name, dims in declared.items()}
    missing = [name for name, dims in declared.items() if 0 in dims and name not in points]
    if missing:
        symbols = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in graph.input}
        raise _make_missing_error(declared, missing, symbols, where)
    shapes = {name: _resolve_shape(name, dims, points.get(name)) for name, dims in declared.items()}
    return InputShapes(shapes, size if is_batch else 1, leaves_out_batch)


def _read_dims(info: Any, where: str) -> list[int]:
    """The declared sizes of an input, 0 for a dynamic dimension; some exporters write -1 for one."""
    dims = info.type.tensor_type.shape.dim
    limits.check_limit(len(dims), limits.MAX_DIMS, f"dimensions of input {info.name[:80]}", where)
    sizes = [max(d.dim_value, 0) if d.HasField("dim_value") else 0 for d in dims]
    return [1, *sizes[1:]] if sizes and sizes[0] == 0 else sizes


def _match_shapes(declared: dict[str, list[int]], given: PointShapes | None) -> dict[str, Shape]:
    """The given shapes by the names of the inputs; a single one is for the inputs with dynamic dimensions."""
    if given is None:
        return {}
    names = list(declared)
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ArgumentError(
                f"The file has no input {unknown[0][:80]!r}.",
                where="argument shape",
                hint=f"Its inputs are {', '.join(name[:80] for name in names[:20])}.",
            )
        return {name: tuple(int(n) for n in shape) for name, shape in given.items()}
    parts: list[Any] = list(given)
    if all(isinstance(part, int) for part in parts):
        dynamic = [name for name, dims in declared.items() if 0 in dims]
        return {name: tuple(parts) for name in dynamic or names}
    if len(parts) != len(names) or not all(isinstance(part, Sequence) for part in parts):
        raise ArgumentError(
            f"{len(parts)} shapes do not fit {len(names)} inputs.",
            where="argument shape",
            hint=f"Give one shape for each of {', '.join(name[:80] for name in names[:20])}, or a dict by name.",
        )
    return {name: tuple(int(n) for n in part) for name, part in zip(names, parts, strict=True)}


def _resolve_shape(name: str, dims: list[int], point: Shape | None) -> Shape:
    """The shape of one input; a first dimension of size 1, or of any size, is the batch dimension."""
    has_batch_dim = bool(dims) and dims[0] == 1
    if point is None:
        return tuple(dims)
    wanted = [1, *point] if has_batch_dim else [*point]
    if len(wanted) != len(dims) or any(n not in (0, w) for n, w in zip(dims, wanted, strict=True)):
        raise ArgumentError(
            f"{list(point)} does not fit input {name[:80]!r} of shape {_format_dims(dims[has_batch_dim:])}.",
            where="argument shape",
            hint="Give the shape of one point, without a batch dimension; for several inputs one for each.",
        )
    if any(n < 1 for n in wanted):
        raise ArgumentError(f"{list(point)} is not a shape.", where="argument shape", hint="Give sizes of at least 1.")
    return tuple(wanted)


def _make_missing_error(
    declared: dict[str, list[int]], missing: list[str], symbols: dict[str, list[str]], where: str
) -> ArgumentError:
    """An error about inputs whose shapes the user has to give, with an example that fits them.

    A dimension that is called like the first one of an input is a batch, of size 1 in the example.
    """
    batches = {symbols[name][0] for name, dims in declared.items() if dims[:1] == [1] and symbols[name][0]}
    points = {name: dims[1:] if dims[:1] == [1] else dims for name, dims in declared.items()}
    own = {name: symbols[name][len(symbols[name]) - len(points[name]) :] for name in missing}
    sizes = {name: [1 if s in batches else n for n, s in zip(points[name], own[name], strict=True)] for name in missing}
    examples = {name[:80]: _complete_shape(sizes[name]) for name in missing[:8]}
    first = next(iter(examples.values()))
    argument, option = f"{first}", ",".join(map(str, first))
    if len(declared) > 1:
        argument = "{" + ", ".join(f"{name!r}: {shape}" for name, shape in examples.items()) + "}"
        option = '"' + ";".join(f"{name}={','.join(map(str, shape))}" for name, shape in examples.items()) + '"'
    return ArgumentError(
        f"Input {missing[0][:80]!r} has a dynamic dimension besides the first: {_format_dims(points[missing[0]])}.",
        where=where,
        hint=f"Give the size of one point, for instance: load(path, shape={argument}), or --shape {option}.",
    )


def _complete_shape(dims: list[int]) -> Shape:
    """An example of one point's shape that fits the declared sizes: an image with channels first or last.

    A single open size in the middle of two others is a batch, as in the state of a recurrent network.
    """
    sizes = EXAMPLE_SIZES.get(len(dims), (10,) * len(dims))
    if len(dims) == 3 and dims[-1] in CHANNEL_COUNTS and dims[0] == 0:
        sizes = (224, 224, 3)
    elif len(dims) == 3 and dims[1] == 0 and dims[0] and dims[2] and dims[0] not in CHANNEL_COUNTS:
        sizes = (dims[0], 1, dims[2])
    return tuple(n or size for n, size in zip(dims, sizes, strict=True))


def _format_dims(dims: Sequence[int]) -> str:
    """Sizes with a question mark for a dynamic one."""
    return "[" + ", ".join(str(n) if n else "?" for n in dims) + "]"
