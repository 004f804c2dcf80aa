"""Check a captured network against torch's graph, node by node, on random points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..tolerances import GRAPH_CHECK_TOLERANCE
from .builder import READS_BATCH_SIZE, BatchSize, GraphBuilder, NodeOutput, Value
from .constants import all_finite
from .graph import Node
from .scalar_functions import ScalarFunction

TRIAL_POINTS = 3  # in a trial batch; a second trial with one point fewer reveals a dependence on the batch size
TRIAL_WIDTH = 16.0  # of the interval around 0 that points are drawn from: the usual knots, such as 6, lie inside
TRIAL_SCALES = (1.0, 2.0**-64, 2.0**-464, 2.0**-864)  # factors on the points, tried until every value stays finite
DIFFERS = "mixes the batch dimension, or differs from its conversion rule"


def find_differences(
    graph: torch.fx.Graph, builder: GraphBuilder, values: dict[str, Value]
) -> list[tuple[torch.fx.Node, str]]:
    """Find the nodes of a graph of torch operators that compute something else than the network does.

    Args:
        graph: that of an exported program, or one of ATen operators.
        builder: the network read from it.
        values: the value that was read for each node of the graph, by name.

    Returns the nodes in the order of the graph, each with the reason.
    """
    comparison, differences = None, []
    for scale in TRIAL_SCALES:  # with very large weights only tiny points stay finite
        comparison = _GraphComparison(graph, builder, values, TRIAL_POINTS, scale)
        differences = list(comparison.find_differences())
        if comparison.stayed_finite:
            break
    if differences or comparison is None or not comparison.saw_batch_size:
        return differences
    return list(_GraphComparison(graph, builder, values, TRIAL_POINTS - 1).find_differences())


class _GraphComparison:
    """Runs torch's graph in float64 on a few points, with new random inputs for every node.

    A unit that is inactive at all likely points would hide whether the nodes behind it mix points, so a node does not
    get the outputs of earlier nodes. Values that are functions of one node, such as x and x > 0, stay consistent.
    """

    def __init__(
        self, graph: torch.fx.Graph, builder: GraphBuilder, values: dict[str, Value], points: int, scale: float = 1.0
    ) -> None:
        self.graph, self.nodes, self.values = graph, builder.nodes, values
        self.points, self.scale = points, scale
        self.generator = torch.Generator().manual_seed(0)
        compared = {v.node for v in values.values() if isinstance(v, ScalarFunction)}
        self.tied_nodes = {i for i, f in builder.node_functions.items() if f.node != i and f.node in compared}
        self.node_data: dict[int, Tensor] = {}  # (points, *shape) by node: what later nodes read
        self.torch_values: dict[str, Any] = {}  # by name of the torch node: what later torch nodes read
        self.stayed_finite, self.saw_batch_size = True, False

    def find_differences(self) -> Iterator[tuple[torch.fx.Node, str]]:
        for node in self.graph.nodes:
            if node.name not in self.values:  # no output needs it
                continue
            ours = theirs = self.values[node.name]
            runs = self._reads_batch_size(node) or self.points == TRIAL_POINTS or not isinstance(ours, NodeOutput)
            if runs and node.op != "placeholder":
                theirs = self._call_torch(node)
                if not self._matches(ours, theirs) and "empty" not in str(node.target):  # uninitialized memory
                    yield node, READS_BATCH_SIZE if isinstance(ours, Tensor) else DIFFERS
            self.torch_values[node.name] = self._choose_data(ours, theirs)

    def _reads_batch_size(self, node: torch.fx.Node) -> bool:
        """Whether a node reads the batch size, or a constant with the length of the batch."""
        inputs = [(self.values[n.name], self.torch_values[n.name]) for n in node.all_input_nodes]
        reads = any(
            isinstance(ours, BatchSize) or (isinstance(ours, Tensor) and ours.shape != theirs.shape)
            for ours, theirs in inputs
        )
        self.saw_batch_size = self.saw_batch_size or reads
        return reads

    def _call_torch(self, node: torch.fx.Node) -> Any:
        """Run one torch node in float64 on the CPU."""
        target: Any = node.target
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self.torch_values[n.name])
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        if options.get("dtype") in (torch.float16, torch.bfloat16, torch.float32):
            options["dtype"] = torch.float64
        with torch.no_grad():
            return _to_float64_on_cpu(target(*args, **options))

    def _matches(self, ours: Value, theirs: Any) -> bool:
        """Whether torch's value is the network's; only node outputs and constants are compared."""
        if isinstance(ours, (tuple, list)):
            return all(self._matches(o, t) for o, t in zip(ours, theirs, strict=False))
        if not isinstance(ours, (NodeOutput, Tensor)) or not isinstance(theirs, Tensor):
            return True
        if isinstance(ours, NodeOutput) and not all_finite(theirs):
            self.stayed_finite = False
            return True
        try:
            value = self._evaluate_node(ours.index) if isinstance(ours, NodeOutput) else _expand_to_batch(ours, theirs)
        except RuntimeError:  # a constant with the length of the batch was folded for one point
            return False
        if isinstance(ours, NodeOutput) and ours.shape != theirs.shape[1:]:
            return False
        return value.shape == theirs.shape and _is_close(value.to(torch.float64), theirs.to(torch.float64))

    def _choose_data(self, ours: Value, theirs: Any) -> Any:
        """The value that later nodes read: random data for a node output, or the constant itself."""
        if isinstance(ours, (tuple, list)) and isinstance(theirs, (tuple, list)):
            return [self._choose_data(o, t) for o, t in zip(ours, theirs, strict=False)]
        if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
            constant = _expand_to_batch(ours, theirs)
            return constant.to(theirs.dtype) if constant.shape == theirs.shape else theirs
        if not isinstance(ours, NodeOutput):
            return theirs
        if ours.index not in self.node_data:
            is_tied = ours.index in self.tied_nodes
            node = self.nodes[ours.index]
            self.node_data[ours.index] = self._evaluate_node(ours.index) if is_tied else self._draw_data(node)
        return self.node_data[ours.index]

    def _draw_data(self, node: Node) -> Tensor:
        shape = (self.points, *node.shape)
        data = torch.rand(shape, generator=self.generator, dtype=torch.float64, device="cpu")
        return data.sub_(0.5).mul_(TRIAL_WIDTH).mul_(self.scale)

    def _evaluate_node(self, index: int) -> Tensor:
        """The output of a network node on the data of its inputs."""
        if index in self.node_data:
            return self.node_data[index]
        node = self.nodes[index]
        return node.op.evaluate(*(self._evaluate_node(i) for i in node.inputs))


def _expand_to_batch(ours: Tensor, theirs: Tensor) -> Tensor:
    """Expand a constant that was folded for one point to the batch of torch's value."""
    fits = ours.dim() == theirs.dim() and all(d in (1, e) for d, e in zip(ours.shape, theirs.shape, strict=True))
    return ours.expand_as(theirs) if fits else ours


def _is_close(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors agree to `GRAPH_CHECK_TOLERANCE` of the largest finite value."""
    if not theirs.numel():
        return True
    largest, error = float(theirs.abs().amax()), float((ours - theirs).abs_().amax())
    if largest < float("inf") and error <= GRAPH_CHECK_TOLERANCE * largest:
        return True  # the common case, without further passes over the data
    finite = theirs[torch.isfinite(theirs)]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(ours, theirs, rtol=GRAPH_CHECK_TOLERANCE, atol=GRAPH_CHECK_TOLERANCE * scale, equal_nan=True)


def _to_float64_on_cpu(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_to_float64_on_cpu(v) for v in value)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to("cpu", torch.float64)
    return value.detach().cpu() if isinstance(value, Tensor) else value
