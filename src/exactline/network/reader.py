"""Convert an exported program to a `Network`, node by node, and report all unsupported operators at once."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import ArgumentError, CaptureError, UnsupportedError
from ..ops.base import Input
from .aten import RULES, SHAPE_OPERATORS, UNSUPPORTED_REASONS
from .aten.registry import bind_arguments, iterate_leaves
from .aten.shape import identity
from .builder import (
    IS_COMPLEX,
    MIXES_BATCH,
    MOVES_BATCH,
    MULTIPLIES_INPUTS,
    MUST_BE_LAST,
    NOT_KNOWN,
    READS_BATCH_SIZE,
    READS_UNINITIALIZED,
    BatchSize,
    GraphBuilder,
    NodeOutput,
    SmoothOutput,
    UnsupportedOperator,
    UnusableValue,
    Value,
)
from .constants import read_parameter, to_float64
from .graph import Network, Tail
from .graph_check import find_differences
from .scalar_functions import ScalarFunction, SourceOperator
from .traced_node import (
    as_list,
    clean_module_path,
    count_symbolic_dims,
    is_overload,
    module_path,
    operator_name,
    source_operator_name,
)
from .uninitialized import find_unwritten_reads, to_written

NO_REDUCTION = 0  # of the losses in torch
IGNORED_OPERATORS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
CONSTANT_FACTORIES = ("zeros", "ones", "full", "expand", "empty", "scalar_tensor")  # may make one row for each point
UNINITIALIZED_FACTORIES = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
CONSTANT_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
EXACT_DTYPES = (torch.float32, torch.float64)  # casts to these count as exact
PRODUCT_OPERATORS = ("mul", "div", "matmul", "bmm", "mm", "mv", "einsum")
DICT_PROBLEM = "The model returns a dict."
SMOOTH_OPERATORS = ("softmax", "_softmax", "log_softmax", "_log_softmax", "sigmoid", "tanh")


def read_program(program: ExportedProgram, until: str | None = None) -> Network:
    """Convert an exported program to a network.

    Args:
        program: exported with a dynamic batch dimension, and decomposed to torch's own operators.
        until: stop after this submodule, named as in ``named_modules()``.

    Raises UnsupportedError naming every operator that cannot be converted, CaptureError for a program without a dynamic
    batch dimension, ArgumentError for an unknown ``until``.
    """
    return ProgramReader(program, until).read_network()


class ProgramReader:
    """Walks an exported graph once and converts each node to a value of the network."""

    def __init__(self, program: ExportedProgram, until: str | None) -> None:
        self.program, self.until = program, until
        self.graph = GraphBuilder()
        self.values: dict[str, Value] = {}  # by name of the exported node
        self.rejections: dict[str, int] = {}  # each unsupported operator with its position in the graph
        self.operator_numbers: dict[tuple[str, str], int] = {}  # position of the last operator of a name in a module
        self.operator_number = 0  # position of the operator being converted
        self.batch_size: Any = None  # torch's symbol for it
        self.known_sizes: dict[str, int] = {}  # of dimensions that torch does not know, by its symbol

    def read_network(self) -> Network:
        """Convert the program; see `read_program`."""
        self._read_inputs()
        graph = self.program.graph
        stop = graph.output_node() if self.until is None else self._find_last_node(self.until)
        needed = self._find_needed_nodes(stop)
        for node in graph.nodes:
            if node not in needed:
                continue
            if node.op == "call_function":
                self.values[node.name] = self._convert_node(node)
            elif node.op == "get_attr":  # a subgraph of a control-flow operator, or a constant
                self.values[node.name] = self._read_attribute(node)
        outputs = self._convert_outputs(self._read_outputs() if self.until is None else self.values[stop.name])
        if self.graph.may_be_uninitialized and not self.rejections:
            for problem in find_unwritten_reads(self.graph.nodes, outputs[0]):
                self._reject(problem.name, READS_UNINITIALIZED, problem.path)
            self.values = {k: to_written(v) for k, v in self.values.items()}
        if self.rejections:
            self._raise_unsupported(
                "Use exactline.approximate, or restrict only to a submodule before them with until='name'."
            )
        self.operator_numbers.clear()  # differences are reported in the order of the graph
        for node, problem in find_differences(self.program.graph, self.graph, self.values):
            self._reject(source_operator_name(node), problem, module_path(node))
        if self.rejections:
            self._raise_unsupported("Compute each point of a batch independently of the others.")
        return self._make_network(*outputs)

    def _find_needed_nodes(self, stop: Any) -> set[Any]:
        """The nodes that an output depends on."""
        names = set(self._user_output_names())
        pending = [n for n in stop.all_input_nodes if n.name in names] if stop.op == "output" else [stop]
        needed: set[Any] = set()
        while pending:
            node = pending.pop()
            if node not in needed:
                needed.add(node)
                pending.extend(node.all_input_nodes)
        return needed

    def _read_inputs(self) -> None:
        """Convert the inputs, parameters, buffers and constants of the program."""
        signature, state, constants = self.program.graph_signature, self.program.state_dict, self.program.constants
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        if signature.buffers_to_mutate:
            name = next(iter(signature.buffers_to_mutate.values()))
            raise CaptureError(
                f"The forward pass changes buffer {name}, so it is not a function of its input.",
                where=f"buffer {name}",
                hint="Call model.eval(), or keep state out of forward.",
            )
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if spec.kind == InputKind.USER_INPUT:
                self.values[node.name] = self._read_input(node)
            else:
                target = spec.target or ""
                value = state[target] if target in state else constants.get(target)
                self.values[node.name] = read_parameter(value, target)

    def _read_input(self, node: Any) -> Value:
        """Add an input node; an input that is not a tensor stays as it was exported."""
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            return value
        if not value.dim() or isinstance(value.shape[0], int):
            raise CaptureError(
                "The exported program has a fixed batch size.",
                where=f"input {node.name} of shape {tuple(value.shape)}",
                hint="Export with dynamic_shapes={0: torch.export.Dim('batch')} for every input.",
            )
        if any(not isinstance(d, int) for d in value.shape[1:]):
            raise CaptureError(
                "An input has a dynamic dimension besides the batch dimension.",
                where=f"input {node.name} of shape {tuple(value.shape)}",
                hint="Only the batch dimension may be dynamic.",
            )
        self.batch_size = value.shape[0]
        self.graph.name = node.name
        return self.graph.add_node(Input(), [], [int(d) for d in value.shape[1:]])

    def _read_attribute(self, node: Any) -> Value:
        value = operator.attrgetter(node.target)(self.program.graph_module)
        return read_parameter(value, node.target) if isinstance(value, Tensor) else UnusableValue("")

    def _convert_node(self, node: Any) -> Value:
        """Convert one call of the exported program."""
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):  # pyright: ignore[reportPrivateUsage]
            self.graph.path = module_path(node)
            self._reject(target.name(), "is control flow, which is not supported")
            return self._make_stand_in(node)
        args, kwargs = self._substitute_values(node.args), self._substitute_values(node.kwargs)
        if target is operator.getitem:
            return args[0] if isinstance(args[0], UnusableValue) else args[0][args[1]]
        if not is_overload(target):
            return self._convert_python_call(node, args)
        name, source = operator_name(target), source_operator_name(node)
        if name in IGNORED_OPERATORS:
            return None
        if name == "sym_size":
            size = node.meta["val"]
            return size if isinstance(size, int) else self.known_sizes.get(str(size), BatchSize(1))
        graph = self.graph
        graph.name, graph.target, graph.call = node.name, f"{name}.{target._overloadname}", target
        graph.path, graph.shape = module_path(node), self._point_shape(node.meta.get("val"))
        self.operator_number += 1
        self.operator_numbers[source, graph.path] = self.operator_number
        after_rejection = any(isinstance(v, UnusableValue) and v.reason == "" for v in iterate_leaves((args, kwargs)))
        depends_on_input = any(_depends_on_input(v) for v in iterate_leaves((args, kwargs)))
        try:
            if not depends_on_input:
                if after_rejection:
                    return UnusableValue("", depends_on_input=False)
                return self._fold_constant(node, args, kwargs)
            if source in UNSUPPORTED_REASONS:
                raise UnsupportedOperator(UNSUPPORTED_REASONS[source])
            if after_rejection:
                return self._check_after_rejection(name, args)
            return self._apply_rule(node, args, kwargs)
        except UnsupportedOperator as problem:
            self._reject(problem.name or source, str(problem), problem.path)
            return self._make_stand_in(node) if depends_on_input else UnusableValue("", depends_on_input=False)

    def _make_stand_in(self, node: Any) -> Value:
        """A node in place of an operator that was rejected, so that every later operator gets its own reason."""
        traced = node.meta.get("val")
        if isinstance(traced, (tuple, list)):
            return tuple(self._make_tensor_stand_in(t) for t in traced)
        return self._make_tensor_stand_in(traced)

    def _make_tensor_stand_in(self, traced: Any) -> Value:
        is_value = isinstance(traced, Tensor) and traced.is_floating_point() and traced.dim() > 0
        if not is_value or not self._is_batch_size(traced.shape[0]):
            return UnusableValue("")
        shape = self._point_shape(traced)
        return UnusableValue("") if -1 in shape else self.graph.add_node(Input(), [], shape)

    def _is_batch_size(self, size: Any) -> bool:
        """Whether a traced size is the symbol of the batch size; comparing the sizes would make torch add a guard."""
        return isinstance(size, torch.SymInt) and size.node.expr == self.batch_size.node.expr

    def _point_shape(self, value: Any) -> Any:
        """The shape of a traced tensor without its batch dimension, -1 for a symbolic size; a tuple for several."""
        if isinstance(value, (tuple, list)):
            return tuple(self._point_shape(v) for v in value)
        if isinstance(value, Tensor):
            return tuple(d if isinstance(d, int) else self.known_sizes.get(str(d), -1) for d in value.shape[1:])
        return ()

    def _apply_rule(self, node: Any, args: Any, kwargs: Any) -> Value:
        """Convert an operator that depends on the input by its rule."""
        target, name = node.target, operator_name(node.target)
        rule = RULES.get(f"{name}.{target._overloadname}") or RULES.get(name)
        qualified = target._schema.name
        if rule is None or not qualified.startswith("aten::"):
            custom = RULES.get(qualified)
            if custom is None:
                reason = MIXES_BATCH if _reduces_batch(node, bind_arguments(target, args, kwargs)) else NOT_KNOWN
                raise UnsupportedOperator(UNSUPPORTED_REASONS.get(name, reason))
            rule = custom
        bound = bind_arguments(target, args, kwargs)
        may_read_size = name in SHAPE_OPERATORS or f"{name}.{target._overloadname}" in SHAPE_OPERATORS
        leaves = list(iterate_leaves(list(bound.values())))
        if not may_read_size and any(isinstance(v, BatchSize) for v in leaves):
            raise UnsupportedOperator(READS_BATCH_SIZE)
        if any(isinstance(v, complex) for v in leaves):
            raise UnsupportedOperator(IS_COMPLEX)
        if rule is not identity:
            for value in leaves:
                if isinstance(value, (SmoothOutput, UnusableValue)):
                    self.graph.as_node_output(value)  # raises with the reason
        self._check_precision(node, bound)
        value = rule(self.graph, bound)
        if name == "index":
            self._learn_sizes(value, node.meta.get("val"))
        self._check_batch_dimension(value, node)
        if isinstance(value, ScalarFunction):
            value = replace(value, source=SourceOperator(source_operator_name(node), self.graph.path))
        return value

    def _learn_sizes(self, value: Value, traced: Any) -> None:
        """Note the sizes of a value that was indexed by a constant mask, which torch treats as unknown."""
        if isinstance(value, NodeOutput) and isinstance(traced, Tensor) and traced.dim() == len(value.shape) + 1:
            for size, symbol in zip(value.shape, traced.shape[1:], strict=True):
                if not isinstance(symbol, int) and not self._is_batch_size(symbol):
                    self.known_sizes[str(symbol)] = size

    def _check_precision(self, node: Any, bound: Any) -> None:
        """Raise UnsupportedOperator for a value that depends on the input and is rounded inside forward.

        Values in float32 and float64, or in the precision that all of an operator's inputs have, count as exact.
        """
        traced, dtype = node.meta.get("val"), bound.get("dtype")
        if isinstance(dtype, torch.dtype) and operator_name(node.target) == "view":
            raise UnsupportedOperator("reads the bits of its input as numbers of another type")
        if not isinstance(traced, Tensor) or traced.dtype in EXACT_DTYPES:
            return
        dependent = [n for n in node.all_input_nodes if _depends_on_input(self.values[n.name])]
        inputs = [n.meta["val"].dtype for n in dependent if isinstance(n.meta.get("val"), Tensor)]
        is_rounded = any(d.is_floating_point for d in inputs) and (
            any(_is_finer(d, traced.dtype) for d in inputs)
            if traced.dtype.is_floating_point
            else isinstance(dtype, torch.dtype)
        )
        if is_rounded and operator_name(node.target) not in CONSTANT_LIKE:
            raise UnsupportedOperator(f"rounds to {str(traced.dtype).removeprefix('torch.')} inside forward")

    def _check_batch_dimension(self, value: Value, node: Any) -> None:
        """Raise UnsupportedOperator unless the first dimension of a traced output, and no other, is the batch."""
        traced = node.meta.get("val")
        for output, tensor in zip(as_list(value), as_list(traced), strict=False):
            if isinstance(output, (NodeOutput, ScalarFunction, SmoothOutput)) and isinstance(tensor, Tensor):
                first = tensor.shape[0] if tensor.dim() else None
                if not self._is_batch_size(first):
                    raise UnsupportedOperator(MOVES_BATCH)
                if any(not isinstance(d, int) and str(d) not in self.known_sizes for d in tensor.shape[1:]):
                    raise UnsupportedOperator(MOVES_BATCH)

    def _fold_constant(self, node: Any, args: Any, kwargs: Any) -> Value:
        """Compute an operator that does not depend on the input."""
        target, name = node.target, operator_name(node.target)
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnsupportedOperator("draws random numbers")
        if any(isinstance(v, BatchSize) for v in iterate_leaves((args, kwargs))) and name not in (
            *CONSTANT_FACTORIES,
            *UNINITIALIZED_FACTORIES,
        ):
            raise UnsupportedOperator(READS_BATCH_SIZE)
        if max(map(count_symbolic_dims, node.all_input_nodes), default=0) > count_symbolic_dims(node):
            raise UnsupportedOperator("reduces a constant with one row for each point of the batch")
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
        dtype = options.get("dtype") or torch.float64
        if name in UNINITIALIZED_FACTORIES:
            return self._make_uninitialized(node)
        if name == "_to_copy" and args[0].is_floating_point() and dtype in EXACT_DTYPES:
            return args[0]
        return to_float64(target(*args, **options))

    def _make_uninitialized(self, node: Any) -> Value:
        """A tensor of NaN, which tells the elements that nothing has been written to."""
        traced = node.meta["val"]
        if not traced.is_floating_point():
            raise UnsupportedOperator(READS_UNINITIALIZED)
        self.graph.may_be_uninitialized = True
        sizes = [d if isinstance(d, int) else self.known_sizes.get(str(d), 1) for d in traced.shape]
        return torch.full(sizes, torch.nan, dtype=torch.float64)

    def _convert_python_call(self, node: Any, args: Any) -> Value:
        """Convert a call of a Python operator, which may compute with sizes only."""
        if any(isinstance(v, UnusableValue) for v in iterate_leaves(args)):
            return UnusableValue("")
        if not any(isinstance(v, (NodeOutput, ScalarFunction)) for v in iterate_leaves(args)):
            result = node.target(*args)
            from_batch_size = any(isinstance(v, BatchSize) for v in iterate_leaves(args)) and isinstance(result, int)
            return BatchSize(result) if from_batch_size else result
        self.graph.path = module_path(node)
        name = getattr(node.target, "__name__", str(node.target))
        self._reject(name, "is control flow or Python arithmetic on a value that depends on the input")
        return UnusableValue("")

    def _check_after_rejection(self, name: str, args: Any) -> Value:
        """Check an operator whose inputs include the output of an unsupported one: its shape is not known."""
        dependent = [v for v in iterate_leaves(args) if _depends_on_input(v)]
        if name not in RULES and not any(key.startswith(f"{name}.") for key in RULES):
            raise UnsupportedOperator(NOT_KNOWN)
        if name in PRODUCT_OPERATORS and len(dependent) > 1:
            raise UnsupportedOperator(MULTIPLIES_INPUTS)
        for value in dependent:
            if isinstance(value, UnusableValue) and value.smooth_source:
                raise UnsupportedOperator(MUST_BE_LAST, *value.smooth_source)
        is_smooth = name in SMOOTH_OPERATORS
        source = SourceOperator(name.removeprefix("_"), self.graph.path) if is_smooth else None
        return UnusableValue("", smooth_source=source)

    def _reject(self, name: str, reason: str, path: str | None = None) -> None:
        """Record an unsupported operator; all are reported at the end."""
        path = self.graph.path if path is None else path
        where = f"{path}: " if path else ""
        number = self.operator_numbers.get((name, path), self.operator_number)
        self.rejections.setdefault(f"{where}{name} {reason}", number)

    def _raise_unsupported(self, hint: str) -> None:
        count, lines = len(self.rejections), sorted(self.rejections, key=self.rejections.__getitem__)
        raise UnsupportedError(
            f"{count} operator{'s are' if count > 1 else ' is'} not piecewise linear in each point by itself.",
            nodes=tuple(lines),
            where="\n         ".join(lines),
            hint=hint,
        )

    def _user_output_names(self) -> list[str]:
        # an in-place operator on the input adds the changed input to the outputs
        specs = self.program.graph_signature.output_specs
        return [spec.arg.name for spec in specs if spec.kind == OutputKind.USER_OUTPUT]

    def _read_outputs(self) -> Any:
        """The converted value of the output, or a tuple of several."""
        spec = self.program.call_spec.out_spec
        values = [self.values.get(name) for name in self._user_output_names()]
        if spec is not None and (nested := _find_dict_key(spec)) is not None:
            raise CaptureError(
                DICT_PROBLEM,
                where="forward",
                hint=f"Wrap it in a module that returns one tensor or a tuple, e.g. out[{nested!r}].",
            )
        single = spec is not None and spec.type not in (tuple, list)
        return values[0] if single and len(values) == 1 else tuple(values)

    def _convert_outputs(self, outputs: Any) -> tuple[list[int], list[Tail | None], bool]:
        """The nodes of the outputs, their tails, and whether the model returns a tuple."""
        several = isinstance(outputs, (tuple, list))
        indices: list[int] = []
        tails: list[Tail | None] = []
        for number, value in enumerate(outputs if several else [outputs]):
            self.graph.name, self.graph.path = f"output_{number}", "output"
            try:
                tails.append(value.tail if isinstance(value, SmoothOutput) else None)
                indices.append(self._find_output_node(value).index)
            except UnsupportedOperator as problem:
                if not (isinstance(value, UnusableValue) and value.reason == ""):
                    self._reject(problem.name or f"output {number}", str(problem), problem.path)
        return indices, tails, several

    def _find_output_node(self, value: Value) -> NodeOutput:
        if isinstance(value, SmoothOutput):
            return value.before
        if isinstance(value, Tensor):
            raise UnsupportedOperator("does not depend on the input")
        return self.graph.as_node_output(value)

    def _make_network(self, outputs: list[int], tails: list[Tail | None], several: bool) -> Network:
        nodes = tuple(self.graph.nodes)
        inputs = sum(isinstance(n.op, Input) for n in nodes)
        return Network(
            nodes,
            tuple(outputs),
            tuple(tails),
            several_inputs=inputs > 1,
            several_outputs=several,
            notes=tuple(self.graph.notes),
        )

    def _find_last_node(self, submodule: str) -> Any:
        """The last exported node of a submodule."""
        last, submodules = None, set[str]()
        for node in self.program.graph.nodes:
            paths = [clean_module_path(entry[0]) for entry in (node.meta.get("nn_module_stack") or {}).values()]
            submodules.update(p for p in paths if p)
            is_value = isinstance(node.meta.get("val"), (Tensor, tuple, list))
            if node.op == "call_function" and submodule in paths and is_value:
                last = node
        if last is None:
            raise ArgumentError(
                f"No submodule {submodule!r} takes part in the forward pass.",
                where="argument until",
                hint=f"One of: {', '.join(sorted(submodules)) or 'none'}.",
            )
        return last

    def _substitute_values(self, args: Any) -> Any:
        """Replace the exported nodes among arguments by their values."""
        return torch.fx.map_arg(args, lambda n: self.values[n.name]) if args else args


def _find_dict_key(spec: Any) -> Any:
    """A key of the first dict in a nested output structure, or None."""
    if spec.type is dict:
        return next(iter(spec.context), "key")
    children = spec.children() if hasattr(spec, "children") else spec.children_specs
    return next((key for child in children if (key := _find_dict_key(child)) is not None), None)


def _depends_on_input(value: Value) -> bool:
    """Whether a value depends on the network's input."""
    if isinstance(value, UnusableValue):
        return value.depends_on_input
    return isinstance(value, (NodeOutput, ScalarFunction, SmoothOutput))


def _is_finer(one: torch.dtype, two: torch.dtype) -> bool:
    """Whether some numbers of one floating-point type are rounded in another."""
    return one.is_floating_point and torch.finfo(one).eps < torch.finfo(two).eps


def _reduces_batch(node: Any, arguments: Any) -> bool:
    """Whether an operator makes a single number of a batch, as x.sum() does.

    A traced loss of each example (reduction 0, which is "none") may be recorded with the shape of a single number.
    """
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dim() == 0 and arguments.get("reduction") != NO_REDUCTION
