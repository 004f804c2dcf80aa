"""Read ONNX files with smooth operators: a graph in which they are nodes that can be evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FileError, NumberError, UnsupportedError
from ...network.builder import MIXES_BATCH, UnsupportedOperator
from ...network.graph import Network
from ...network.prefix import Prefix, select_prefix
from ...network.smooth_network import SmoothNetwork
from ...ops.base import Input
from ...ops.smooth import Smooth
from ..graph_builder import OperatorRecorder
from .graph_reader import GraphReader
from .inputs import InputShapes
from .judge import ONNX_DOMAINS, depends_on_input
from .smooth_operators import SMOOTH, SOMETIMES_SMOOTH
from .values import DependentValue, OnnxNode, Value

APPROXIMATE_HINT = "Use exactline.approximate, which follows any network along a line to a tolerance."


def read_smooth(
    model: Any, where: str, folder: Path | None, inputs: InputShapes, refusal: UnsupportedError
) -> SmoothNetwork:
    """Read a model that is not piecewise linear.

    Args:
        model: the parsed file.
        where: the name of the file, for error messages.
        folder: where the file may keep external data.
        inputs: the shapes of its inputs.
        refusal: why it is not piecewise linear; raised if it cannot be evaluated either.
    """
    reader = SmoothReader(model, where, folder, inputs)
    try:
        network = reader.read_network()
        shapes = [network.nodes[i].shape for i in network.inputs]
        with torch.no_grad():
            network(*(torch.zeros(2, *shape, dtype=torch.float64) for shape in shapes))
    except (UnsupportedError, FileError, NumberError, RuntimeError, NotImplementedError):
        raise refusal from None
    nodes = [replace(n, op=Input(), inputs=()) if isinstance(n.op, Smooth) else n for n in network.nodes]
    counts = Counter(n.op.title for n in network.nodes if not isinstance(n.op, Input))
    refusal = UnsupportedError(refusal.problem, nodes=refusal.nodes, where=refusal.where, hint=APPROXIMATE_HINT)
    return SmoothNetwork(
        function=NetworkFunction(network),
        shapes=tuple(shapes),
        output_shapes=tuple(network.nodes[i].shape for i in network.outputs),
        output_names=network.list_output_names(),
        prefix=Prefix(select_prefix(nodes, len(shapes)), is_whole=False),
        refusal=refusal,
        operators=dict(counts),
    )


@dataclass(frozen=True, eq=False)
class NetworkFunction:
    """A graph with smooth nodes as a function of batches."""

    network: Network

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Evaluate one batch (n, *in) for each input."""
        out = self.network(*xs)
        return out if isinstance(out, tuple) else (out,)

    def to(self, device: torch.device | str) -> NetworkFunction:
        """Copy the graph to a device."""
        return NetworkFunction(self.network.to(device))


class SmoothReader(GraphReader):
    """Reads smooth operators as `Smooth` nodes, and all others as they are read for exact restrictions."""

    def _read_results(self, node: Any, onnx_node: OnnxNode, inputs: list[Value]) -> Sequence[Value]:
        known = node.domain in ONNX_DOMAINS and any(depends_on_input(v) for v in inputs)
        if known and node.op_type in SMOOTH:
            return self._add_smooth(node, onnx_node, inputs)
        try:
            return super()._read_results(node, onnx_node, inputs)
        except UnsupportedOperator:
            if not known or node.op_type not in SOMETIMES_SMOOTH:
                raise
            return self._add_smooth(node, onnx_node, inputs)

    def _find_outputs(self) -> list[Value]:
        """The values that the network returns, without the batch dimension of one that the file declares."""
        for output in self.graph.output:
            value = self.values.get(output.name)
            if not isinstance(value, DependentValue) or value.has_batch_dim or len(value.shape) < 2:
                continue
            if value.shape[0] == 1 and all(shape[:1] == (1,) for shape in self.input_shapes.values()):
                node = OnnxNode(self.recorder, self.versions[""], "Output", output.name, {}, 1)
                self.recorder.begin_node(output.name)
                self.values[output.name] = DependentValue(node.as_batched(value), value.shape, True)
        return super()._find_outputs()

    def _add_smooth(self, node: Any, onnx_node: OnnxNode, inputs: list[Value]) -> Sequence[Value]:
        """Add a node for each output of a smooth operator."""
        if self.batch_size > 1:
            raise UnsupportedOperator(MIXES_BATCH)
        onnx_node.attributes.update({a.name: self._read_attribute(a, node.op_type) for a in node.attribute})
        dependent = [v for v in inputs if isinstance(v, DependentValue)]
        sources = [onnx_node.as_node_output(v) for v in dependent]
        batched = any(v.has_batch_dim for v in dependent)
        shapes_in = tuple(v.shape if isinstance(v, DependentValue) else None for v in inputs)
        apply = _PointFunction(replace(onnx_node, recorder=OperatorRecorder(self.recorder.where)), shapes_in)
        constants = tuple(v for v in inputs if not isinstance(v, DependentValue))
        points = [torch.zeros(s.shape, dtype=torch.float64) for s in sources]
        with torch.no_grad():
            shapes = [tuple(t.shape) for t in apply(*points, *constants)]
        results: list[Value] = []
        for k, shape in enumerate(shapes[: onnx_node.output_count]):
            has_batch_dim = batched and shape[:1] == (1,)
            onnx_node.check_result_size(shape)
            op = Smooth(node.op_type, _Squeeze(apply) if has_batch_dim else apply, k, constants)
            self.recorder.begin_node(onnx_node.name)
            output = self.recorder.graph.add_node(op, sources, shape[has_batch_dim:])
            results.append(DependentValue(output, shape, has_batch_dim))
        return results


@dataclass(frozen=True)
class _Squeeze:
    """A function without the batch dimension of size 1 in front of its results."""

    function: Callable[..., tuple[Tensor, ...]]

    def __call__(self, *xs: Any) -> tuple[Tensor, ...]:
        return tuple(t[0] if t.shape[:1] == (1,) else t for t in self.function(*xs))


@dataclass(frozen=True)
class _PointFunction:
    """A smooth operator on one point: inputs that depend on the network's input come first, then constants.

    It is found by its name, so that the network can be pickled.
    """

    node: OnnxNode  # with an empty recorder
    shapes: tuple[tuple[int, ...] | None, ...]  # of each input in the file; None for a constant

    def __call__(self, *xs: Any) -> tuple[Tensor, ...]:
        count = sum(shape is not None for shape in self.shapes)
        points, constants = iter(xs[:count]), iter(xs[count:])
        args = [next(constants) if shape is None else next(points).reshape(shape) for shape in self.shapes]
        table = SMOOTH if self.node.op_type in SMOOTH else SOMETIMES_SMOOTH
        found = table[self.node.op_type](self.node, *args)
        return found if isinstance(found, tuple) else (found,)
