"""Read ONNX files operator by operator; nothing in a file is ever run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import FileError, UnsupportedError
from ...network.builder import MIXES_BATCH
from ...network.graph import Network
from ...network.smooth_network import SmoothNetwork
from ...optional import require_package
from .. import limits
from . import activations as activations
from . import affine as affine
from . import arithmetic as arithmetic
from . import fourier as fourier
from . import gathering as gathering
from . import linear as linear
from . import optimizers as optimizers
from . import pools as pools
from . import quantized as quantized
from . import recurrent as recurrent
from . import reductions as reductions
from . import regions as regions
from . import resize as resize
from . import shapes as shapes
from .control_flow import GRAPH_ATTRIBUTE
from .graph_reader import NEWEST_OPSET as NEWEST_OPSET
from .graph_reader import OLDEST_OPSET as OLDEST_OPSET
from .graph_reader import GraphReader
from .inputs import InputShapes, PointShapes, resolve_inputs
from .smooth_reader import read_smooth
from .tensors import make_damaged_error
from .unsupported import UNSUPPORTED_REASONS as UNSUPPORTED_REASONS
from .values import OPERATORS as OPERATORS


def read_onnx(
    data: bytes, where: str, *, folder: Path | None, shape: PointShapes | None = None
) -> Network | SmoothNetwork:
    """Read a network from the content of an ONNX file; one with smooth operators as a `SmoothNetwork`.

    Args:
        data: the content of the file.
        where: the name of the file, for error messages.
        folder: where the file may keep external data; None if it must not have any.
        shape: of one input point, for files with dynamic dimensions; for several inputs a list of shapes in the
            order of the file, or a dict of shapes by name.

    Raises FileError for a damaged file, UnsupportedError naming every operator that is not known,
    NumberError for NaN weights, ArgumentError where ``shape`` does not fit or is missing.
    """
    model = _parse_model(data, where)
    inputs = resolve_inputs(model.graph, where, shape)
    try:
        return _read_piecewise_linear(model, where, folder, inputs)
    except UnsupportedError as refusal:
        return read_smooth(model, where, folder, inputs, refusal)


def _read_piecewise_linear(model: Any, where: str, folder: Path | None, inputs: InputShapes) -> Network:
    if inputs.batch_size == 1:
        return GraphReader(model, where, folder, inputs).read_network()
    try:
        return GraphReader(model, where, folder, inputs).read_network()
    except (UnsupportedError, FileError) as problem:
        if inputs.is_batch_certain:
            raise
        refusal = problem
    reader = GraphReader(model, where, folder, inputs.as_one_point())  # the first dimension belongs to the point
    try:
        network = reader.read_network()
    except (UnsupportedError, FileError) as problem:
        mixes = any(MIXES_BATCH in line for line in getattr(refusal, "nodes", ()))
        raise (problem if mixes or isinstance(refusal, FileError) else refusal) from None
    if reader.recorder.has_rows:
        raise _make_mixing_error(refusal, inputs) from None
    return network


def _make_mixing_error(refusal: UnsupportedError | FileError, inputs: InputShapes) -> UnsupportedError:
    """An error about a fixed batch whose points are mixed, and operators that expect a batch."""
    shapes = {name: ",".join(map(str, shape)) for name, shape in inputs.as_one_point().shapes.items()}
    option = next(iter(shapes.values())) if len(shapes) == 1 else ";".join(f"{n[:80]}={s}" for n, s in shapes.items())
    return UnsupportedError(
        f"The points of its batch of {inputs.batch_size} are mixed.",
        nodes=getattr(refusal, "nodes", ()),
        where=refusal.where,
        hint=f"Export the file for a batch of 1, or give the shape of the whole batch as one point: --shape {option}.",
    )


def _parse_model(data: bytes, where: str) -> Any:
    """Parse an ONNX model; raises FileError for anything that is not one."""
    with require_package("Reading ONNX needs the package onnx.", where=where, hint='pip install "exactline[onnx]"'):
        from onnx import ModelProto
    try:
        model = ModelProto.FromString(data)
    except Exception as problem:  # the parser has its own error types
        raise make_damaged_error("The file is not an ONNX file.", where) from problem
    if not model.HasField("graph") or not model.graph.node:
        raise make_damaged_error("The file has no graph.", where)
    limits.check_limit(len(model.graph.node), limits.MAX_LAYERS, "nodes", where)
    graphs = (model.graph, *model.functions)
    if not all(isinstance(name, str) for graph in graphs for name in _iterate_names(graph)):
        raise make_damaged_error("The file has a name that is not UTF-8 text.", where)
    return model


def _iterate_names(graph: Any) -> Iterator[Any]:
    """Iterate over all names in a graph or a function; a name that is not UTF-8 is bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            if attribute.type == GRAPH_ATTRIBUTE:
                yield from _iterate_names(attribute.g)
    values = (*getattr(graph, "initializer", ()), *graph.input, *graph.output)
    yield from (getattr(v, "name", v) for v in values)  # a function has the names alone
