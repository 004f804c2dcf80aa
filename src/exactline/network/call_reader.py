"""Convert a recorded forward pass of common torch functions to a `Network`, without torch.export.

torch.export takes a second to import and, for a deep architecture, two more to trace. A forward pass that calls only
functions of `PLAIN_FUNCTIONS` needs neither: the calls on several points, on one and on many show what each function
gets, and the check of the graph shows that it treats every point alike.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from ..errors import ExactlineError
from ..ops.base import Input
from .aten import RULES, SHAPE_OPERATORS
from .aten.registry import bind_arguments, iterate_leaves
from .builder import BatchSize, GraphBuilder, NodeOutput, UnsupportedOperator, Value
from .call_recorder import (
    FIRST_INPUT,
    NOT_RECORDED,
    CallRecorder,
    RecordedCall,
    RecordedSize,
    list_tensors,
)
from .constants import read_parameter
from .example_batch import find_held_values
from .graph import Network
from .graph_check import find_differences
from .plain_functions import IN_PLACE_FUNCTIONS, PLAIN_FUNCTIONS, READING_FUNCTIONS

aten: Any = torch.ops.aten


def read_calls(model: nn.Module, several: CallRecorder, others: Sequence[CallRecorder]) -> Network | None:
    """Convert a forward pass to a network, with the names and paths that torch.export would lead to.

    Args:
        model: the module.
        several: records a pass on several points.
        others: record passes on other numbers of points, such as one and many.

    Returns None for a module that calls other functions, reads a tensor in another way than by a function, branches on
    the batch size, or cannot be converted for any other reason; torch.export then says what is wrong.
    """
    if not all(r.reads.are_plain for r in (several, *others)) or several.changed_inputs():
        return None
    try:
        return CallReader(model, several, others).read_network()
    except REFUSALS:
        return None


class _NotPlain(Exception):
    """Raised for a call that is left to torch.export."""


# What reading a call that is left to torch.export may raise.
REFUSALS = (
    *(_NotPlain, UnsupportedOperator, ExactlineError),
    *(RuntimeError, TypeError, ValueError, LookupError, AttributeError),
)


class CallReader:
    """Walks over the recorded calls once and converts each to nodes of the network."""

    def __init__(self, model: nn.Module, several: CallRecorder, others: Sequence[CallRecorder]) -> None:
        self.several, self.others = several, others
        self.builder, self.graph = GraphBuilder(), Graph()
        self.values: dict[str, Value] = {}  # by name of the node of the graph
        self.results: dict[tuple[int, int], Node] = {}  # by call and position
        self.weights = dict(_list_weights(model))
        self.weight_nodes: dict[str, Node] = {}
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.input_names = _list_input_names(model, len(several.inputs))

    def read_network(self) -> Network:
        """Convert the calls; see `read_calls`."""
        self._add_inputs()
        *calls, end = self.several.calls
        if any(len(other.calls) != len(self.several.calls) for other in self.others):
            raise _NotPlain
        for number, call in enumerate(calls):
            if call.function not in READING_FUNCTIONS:
                self._convert_call(number, call)
        outputs = self._read_outputs(end)
        if find_differences(self.graph, self.builder, self.values):
            raise _NotPlain
        return Network(
            tuple(self.builder.nodes),
            tuple(output.index for output in outputs),
            (None,) * len(outputs),
            several_inputs=len(self.several.inputs) > 1,
            several_outputs=not isinstance(end.result, Tensor),
            notes=tuple(self.builder.notes),
        )

    def _add_inputs(self) -> None:
        for number, tensor in enumerate(self.several.inputs):
            self.builder.name = self.input_names[number]
            node = self.graph.placeholder(self.builder.name)
            self.values[node.name] = self.builder.add_node(Input(), [], tuple(tensor.shape[1:]))
            self.results[FIRST_INPUT - number, 0] = node

    def _convert_call(self, number: int, call: RecordedCall) -> None:
        """Add the nodes of one call on several points."""
        self._check_call(number, call)
        args, keywords = self._find_arguments(call)
        converted = PLAIN_FUNCTIONS[call.function](*args, **keywords)
        if converted is None:
            raise _NotPlain
        target, args, keywords = converted
        name = target._schema.name.split("::")[1]
        node = self.graph.create_node("call_function", target, tuple(args), keywords, name)
        several = not isinstance(call.result, Tensor)
        shapes = tuple(tuple(t.shape[1:]) for t in list_tensors(call.result))
        builder = self.builder
        builder.name, builder.target, builder.call = node.name, f"{name}.{target._overloadname}", target
        builder.path, builder.shape = self.paths.get(id(call.module), ""), shapes if several else shapes[0]
        value = self._apply_rule(name, target, *self._substitute_values((list(args), keywords)))
        self.values[node.name] = value
        for position, (part, shape) in enumerate(zip(value if several else [value], shapes, strict=True)):
            if not isinstance(part, NodeOutput) or part.shape != shape:
                raise _NotPlain
            self.results[number, position] = self._select(node, part, position) if several else node

    def _check_call(self, number: int, call: RecordedCall) -> None:
        """Require that this call gets the same on every batch, and that nothing but the batch size differs."""
        if call.function in IN_PLACE_FUNCTIONS and call.sources[0] == NOT_RECORDED:  # it changes a weight
            raise _NotPlain
        for recorder in self.others:
            other = recorder.calls[number]
            if not (call.is_current and other.is_current):
                raise _NotPlain
            if (call.function, call.sources, call.positions) != (other.function, other.sources, other.positions):
                raise _NotPlain
            points = len(recorder.inputs[0])
            if not _is_fixed(call.arguments, other.arguments, points):
                raise _NotPlain
            self._check_results(call, other, points)

    def _select(self, node: Node, value: Value, position: int) -> Node:
        part = self.graph.create_node("call_function", operator.getitem, (node, position), name="getitem")
        self.values[part.name] = value
        return part

    def _apply_rule(self, name: str, target: Any, args: list[Any], keywords: dict[str, Any]) -> Value:
        rule = RULES.get(self.builder.target) or RULES[name]
        bound = bind_arguments(target, args, keywords)
        leaves = list(iterate_leaves(list(bound.values())))
        reads_size = any(isinstance(v, BatchSize) for v in leaves)
        if reads_size and not {name, self.builder.target} & SHAPE_OPERATORS:
            raise _NotPlain
        if not any(isinstance(v, NodeOutput) for v in leaves):
            raise _NotPlain
        return rule(self.builder, bound)

    def _check_results(self, call: RecordedCall, other: RecordedCall, points: int) -> None:
        """Require floating-point tensors of one type, with the batch as their first dimension."""
        pairs = list(zip(list_tensors(call.result), list_tensors(other.result), strict=True))
        first = self.several.inputs[0]
        is_batch = all(one.dim() and two.dim() and (len(one), len(two)) == (len(first), points) for one, two in pairs)
        if not is_batch or any(one.shape[1:] != two.shape[1:] or one.dtype != first.dtype for one, two in pairs):
            raise _NotPlain

    def _find_arguments(self, call: RecordedCall) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call, with nodes of the graph for tensors and batch sizes."""
        origins = iter(zip(call.sources, call.positions, strict=True))

        def find(value: Any) -> Any:
            if isinstance(value, list):
                return [find(v) for v in value]
            if isinstance(value, tuple):  # a keyword and its value
                return tuple(find(v) for v in value)
            if isinstance(value, RecordedSize):
                return self._find_batch_size()
            return self._find_tensor(value, *next(origins)) if isinstance(value, Tensor) else value

        args, keywords = find(call.arguments)
        return args, dict(keywords)

    def _find_tensor(self, tensor: Tensor, source: int, position: int) -> Node:
        if source != NOT_RECORDED:
            return self.results[source, position]
        name = self.weights[id(tensor)]
        if type(tensor) not in (nn.Parameter, Tensor):
            raise _NotPlain
        if name not in self.weight_nodes:
            node = self.graph.create_node("placeholder", "weight", name="weight")
            self.values[node.name], self.weight_nodes[name] = read_parameter(tensor, name), node
        return self.weight_nodes[name]

    def _find_batch_size(self) -> Node:
        node = self.graph.create_node("call_function", aten.sym_size.int, (self.results[FIRST_INPUT, 0], 0))
        self.values[node.name] = BatchSize(1)
        return node

    def _substitute_values(self, args: Any) -> Any:
        """Replace the nodes among arguments by their values."""
        return torch.fx.map_arg(args, lambda n: self.values[n.name])

    def _read_outputs(self, end: RecordedCall) -> list[NodeOutput]:
        """The outputs of the network: those of forward, which returns one tensor, or several in a tuple or list."""
        outputs = end.result if type(end.result) in (tuple, list) else [end.result]
        if not outputs or not all(isinstance(value, Tensor) for value in outputs):
            raise _NotPlain
        self._check_call(len(self.several.calls) - 1, end)
        origins = zip(end.sources, end.positions, strict=True)
        return [self.values[self.results[origin].name] for origin in origins]


def _list_weights(model: nn.Module) -> Iterator[tuple[int, str]]:
    """The id and the name of each parameter and buffer, also of what plain functions in the model read."""
    for holder in (*find_held_values(model), model):
        if isinstance(holder, Tensor):
            yield id(holder), "a tensor that forward reads"
        else:
            yield from ((id(t), name) for name, t in (*holder.named_parameters(), *holder.named_buffers()))


def _list_input_names(model: nn.Module, count: int) -> list[str]:
    """The names of a module's inputs, as torch.export would give them."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        is_repeated = parameter.kind == inspect.Parameter.VAR_POSITIONAL
        names += [f"{parameter.name}_{i}" for i in range(count)] if is_repeated else [parameter.name]
    return names


def _is_fixed(one: Any, two: Any, points: int) -> bool:
    """Whether two calls have the same arguments, besides tensors and the batch size: ``points`` in the second call."""
    if isinstance(one, Tensor):
        return isinstance(two, Tensor)
    if isinstance(one, RecordedSize):
        return type(two) in (RecordedSize, int) and int.__eq__(two, points)
    if type(one) is not type(two):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(_is_fixed(a, b, points) for a, b in zip(one, two, strict=True))
    return bool(one == two)
