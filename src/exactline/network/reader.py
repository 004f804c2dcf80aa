"""From an exported program to a Network: the graph is read node by node, and all that is refused is told at once."""

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
from .aten import REFUSED, RULES, SHAPED
from .aten.registry import bind, flattened
from .aten.shape import identity
from .builder import Barred, BatchSize, Builder, Data, Refused, Smooth, Value
from .constants import doubled, parameter
from .curves import Curve
from .graph import Network, Tail
from .graph_check import differences

IGNORED = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
MADE = ("zeros", "ones", "full", "expand", "empty", "scalar_tensor")  # constants that may be as long as the batch
PRODUCTS = ("mul", "div", "matmul", "bmm", "mm", "mv", "einsum")
SMOOTH = ("softmax", "_softmax", "log_softmax", "_log_softmax", "sigmoid", "tanh")


def read(program: ExportedProgram, until: str | None = None) -> Network:
    """The network in an exported program whose operators are torch's own."""
    return Reader(program, until).network()


class Reader:
    """Walks the exported graph once, keeping a value for every node."""

    def __init__(self, program: ExportedProgram, until: str | None) -> None:
        self.program, self.until = program, until
        self.builder = Builder()
        self.values: dict[str, Value] = {}
        self.refused: dict[str, int] = {}  # what is told, and the node's number in the graph
        self.numbers: dict[tuple[str, str], int] = {}  # of the last node of an operator in a module
        self.number = 0
        self.batch: Any = None
        self.calls: set[str] = set()

    def network(self) -> Network:
        self._inputs()
        graph = self.program.graph
        stop = graph.output_node() if self.until is None else self._last_of(self.until)
        needed = self._needed(stop)
        for node in graph.nodes:
            if node in needed and node.op == "call_function":
                self.values[node.name] = self._node(node)
        found = self._finished(self._outputs() if self.until is None else self.values[stop.name])
        if self.refused:
            self._raise("Replace them, or restrict only to a submodule before them with until='name'.")
        self.numbers.clear()  # differences are in order
        for node, problem in differences(self.program, self.builder, self.values):
            self._refuse(written(node), problem, module_path(node))
        if self.refused:
            self._raise("Each point must be treated by itself: keep operators away from the batch dimension.")
        return self._made(*found)

    def _needed(self, stop: Any) -> set[Any]:
        """The nodes that an output depends on."""
        names = set(self._user_outputs())
        waiting = [n for n in stop.all_input_nodes if n.name in names] if stop.op == "output" else [stop]
        found: set[Any] = set()
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting.extend(node.all_input_nodes)
        return found

    def _inputs(self) -> None:
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
                self.values[node.name] = self._input(node)
            else:
                target = spec.target or ""
                value = state[target] if target in state else constants.get(target)
                self.values[node.name] = parameter(value, target)

    def _input(self, node: Any) -> Value:
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
                "An input has a free dim besides the batch dimension.",
                where=f"input {node.name} of shape {tuple(value.shape)}",
                hint="Only the batch dimension may be dynamic.",
            )
        self.batch = value.shape[0]
        self.builder.name = node.name
        return self.builder.add(Input(), [], [int(d) for d in value.shape[1:]])

    def _node(self, node: Any) -> Value:
        target = node.target
        args, kwargs = self._filled(node.args), self._filled(node.kwargs)
        if target is operator.getitem:
            return args[0] if isinstance(args[0], Barred) else args[0][args[1]]
        if not is_overload(target):
            return self._arithmetic(node, args)
        name, called = operator_name(target), written(node)
        if name in IGNORED:
            return None
        if name == "sym_size":
            size = node.meta["val"]
            return size if isinstance(size, int) else BatchSize(1)
        b = self.builder
        b.name, b.target, b.call = node.name, f"{name}.{target._overloadname}", target
        b.path, b.shape = module_path(node), _shape(node.meta.get("val"))
        self.number += 1
        self.numbers[called, b.path] = self.number
        barred = any(isinstance(v, Barred) and v.reason == "" for v in flattened((args, kwargs)))
        moving = any(_depends(v) for v in flattened((args, kwargs)))
        try:
            if not moving:
                return Barred("", data=False) if barred else self._folded(target, name, args, kwargs, node)
            if called in REFUSED:
                raise Refused(REFUSED[called])
            if barred:
                return self._after_refusal(name, args)
            return self._ruled(target, name, args, kwargs, node)
        except Refused as problem:
            self._refuse(problem.name or called, str(problem), problem.path)
            return Barred("", data=moving)

    def _ruled(self, target: Any, name: str, args: Any, kwargs: Any, node: Any) -> Value:
        rule = RULES.get(f"{name}.{target._overloadname}") or RULES.get(name)
        qualified = target._schema.name
        if rule is None or not qualified.startswith("aten::"):
            custom = RULES.get(qualified)
            if custom is None:
                raise Refused(REFUSED.get(name, "is not an operator we know to be piecewise linear"))
            rule = custom
        self.calls.add(name)
        bound = bind(target, args, kwargs)
        shaped = name in SHAPED or f"{name}.{target._overloadname}" in SHAPED
        if not shaped and any(isinstance(v, BatchSize) for v in flattened(list(bound.values()))):
            raise Refused("computes with the number of points in the batch")
        if rule is not identity:
            for value in flattened(list(bound.values())):
                if isinstance(value, (Smooth, Barred)):
                    self.builder.data(value)  # which says why nothing may use it
        value = rule(self.builder, bound)
        self._keeps_batch(value, node)
        if isinstance(value, Curve):
            value = replace(value, origin=(written(node), self.builder.path))
        return value

    def _keeps_batch(self, value: Value, node: Any) -> None:
        traced = node.meta.get("val")
        for made, seen in zip(_listed(value), _listed(traced), strict=False):
            if isinstance(made, (Data, Curve, Smooth)) and isinstance(seen, Tensor):
                first = seen.shape[0] if seen.dim() else None
                if first is None or isinstance(first, int) or first != self.batch:
                    raise Refused("moves or mixes the batch dimension")
                if any(not isinstance(d, int) for d in seen.shape[1:]):
                    raise Refused("moves or mixes the batch dimension")

    def _folded(self, target: Any, name: str, args: Any, kwargs: Any, node: Any) -> Value:
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise Refused("draws random numbers")
        if any(isinstance(v, BatchSize) for v in flattened((args, kwargs))) and name not in MADE:
            raise Refused("computes with the number of points in the batch")
        if max(map(_free, node.all_input_nodes), default=0) > _free(node):
            raise Refused("reduces a constant that is as long as the batch")
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
        dtype = options.get("dtype") or torch.float64
        if name == "_to_copy" and args[0].is_floating_point() and dtype.is_floating_point:
            return args[0]
        return doubled(target(*args, **options))

    def _arithmetic(self, node: Any, args: Any) -> Value:
        if any(isinstance(v, Barred) for v in flattened(args)):
            return Barred("")
        if not any(isinstance(v, (Data, Curve)) for v in flattened(args)):
            found = node.target(*args)
            tainted = any(isinstance(v, BatchSize) for v in flattened(args)) and isinstance(found, int)
            return BatchSize(found) if tainted else found
        self.builder.path = module_path(node)
        self._refuse(getattr(node.target, "__name__", str(node.target)), "is control flow or arithmetic on data")
        return Barred("")

    def _after_refusal(self, name: str, args: Any) -> Value:
        """Behind a refused node only the operator's name and the number of its branches can still be judged."""
        branches = [v for v in flattened(args) if _depends(v)]
        if name not in RULES and not any(key.startswith(f"{name}.") for key in RULES):
            raise Refused("is not an operator we know to be piecewise linear")
        if name in PRODUCTS and len(branches) > 1:
            raise Refused("multiplies two branches of data")
        for value in branches:
            if isinstance(value, Barred) and value.smooth:
                raise Refused("is smooth, and may only come last", *value.smooth)
        return Barred("", smooth=(name.removeprefix("_"), self.builder.path) if name in SMOOTH else None)

    def _refuse(self, name: str, reason: str, path: str | None = None) -> None:
        path = self.builder.path if path is None else path
        where = f"{path}: " if path else ""
        self.refused.setdefault(f"{where}{name} {reason}", self.numbers.get((name, path), self.number))

    def _raise(self, hint: str) -> None:
        count, lines = len(self.refused), sorted(self.refused, key=self.refused.__getitem__)
        raise UnsupportedError(
            f"{count} operator{'s are' if count > 1 else ' is'} not piecewise linear in each point by itself.",
            nodes=tuple(lines),
            where="\n         ".join(lines),
            hint=hint,
        )

    def _user_outputs(self) -> list[str]:
        # an in-place operator on the input itself adds outputs that only tell of the change
        specs = self.program.graph_signature.output_specs
        return [spec.arg.name for spec in specs if spec.kind == OutputKind.USER_OUTPUT]

    def _outputs(self) -> Any:
        spec = self.program.call_spec.out_spec
        values = [self.values.get(name) for name in self._user_outputs()]
        if spec is not None and (nested := _dict_in(spec)) is not None:
            raise CaptureError(
                "The model returns a dict.",
                where="forward",
                hint=f"Wrap it in a module that returns one tensor or a tuple, e.g. out[{nested!r}].",
            )
        single = spec is not None and spec.type not in (tuple, list)
        return values[0] if single and len(values) == 1 else tuple(values)

    def _finished(self, outputs: Any) -> tuple[list[int], list[Tail | None], bool]:
        several = isinstance(outputs, (tuple, list))
        places: list[int] = []
        tails: list[Tail | None] = []
        for number, value in enumerate(outputs if several else [outputs]):
            self.builder.name, self.builder.path = f"output_{number}", "output"
            try:
                tails.append(value.tail if isinstance(value, Smooth) else None)
                places.append(self._as_output(value).place)
            except Refused as problem:
                if not (isinstance(value, Barred) and value.reason == ""):
                    self._refuse(problem.name or f"output {number}", str(problem), problem.path)
        return places, tails, several

    def _as_output(self, value: Value) -> Data:
        if isinstance(value, Smooth):
            return value.data
        if isinstance(value, Tensor):
            raise Refused("does not depend on the input")
        return self.builder.data(value)

    def _made(self, places: list[int], tails: list[Tail | None], several: bool) -> Network:
        nodes = tuple(self.builder.nodes)
        count = sum(isinstance(n.op, Input) for n in nodes)
        return Network(nodes, tuple(places), tuple(tails), count > 1, several, tuple(self.builder.notes))

    def _last_of(self, name: str) -> Any:
        found, known = None, set[str]()
        for node in self.program.graph.nodes:
            paths = [clean(entry[0]) for entry in (node.meta.get("nn_module_stack") or {}).values()]
            known.update(p for p in paths if p)
            if node.op == "call_function" and name in paths and isinstance(node.meta.get("val"), (Tensor, tuple, list)):
                found = node
        if found is None:
            raise ArgumentError(
                f"No submodule {name!r} takes part in the forward pass.",
                where="argument until",
                hint=f"One of: {', '.join(sorted(known)) or 'none'}.",
            )
        return found

    def _filled(self, args: Any) -> Any:
        return torch.fx.map_arg(args, lambda n: self.values[n.name]) if args else args


def _dict_in(spec: Any) -> Any:
    """A key of the first dict in a nested output, or None."""
    if spec.type is dict:
        return next(iter(spec.context), "key")
    children = spec.children() if hasattr(spec, "children") else spec.children_specs
    return next((key for child in children if (key := _dict_in(child)) is not None), None)


def module_path(node: Any) -> str:
    """The innermost module a node belongs to, as in named_modules()."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((p for entry in reversed(list(stack.values())) if (p := clean(entry[0]))), "")


def clean(path: str) -> str:
    return path.removeprefix("L['self']").removeprefix(".").split("@")[0]


def is_overload(target: Any) -> bool:
    """Whether a node calls one of torch's operators, rather than Python's."""
    return isinstance(target, torch._ops.OpOverload)  # pyright: ignore[reportPrivateUsage]


def operator_name(target: Any) -> str:
    """An overload's name without namespace and overload."""
    return target._schema.name.split("::")[1]


def written(node: Any) -> str:
    """The operator that a node was made of: its own, or the one that torch took apart."""
    origin = str(node.meta["from_node"][0].target).split(".") if node.meta.get("from_node") else []
    if len(origin) == 3 and origin[0] == "aten":
        return origin[1]
    return operator_name(node.target) if is_overload(node.target) else node.name


def _shape(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_shape(v) for v in value)
    if isinstance(value, Tensor):
        return tuple(int(d) if isinstance(d, int) else -1 for d in value.shape[1:])
    return ()


def _depends(value: Value) -> bool:
    """Whether a value depends on the input."""
    return isinstance(value, (Data, Curve, Smooth)) or (isinstance(value, Barred) and value.data)


def _free(node: Any) -> int:
    """How many dims of a node's value, of the shortest if there are several, are as long as the batch makes them."""
    values = [v for v in _listed(node.meta.get("val")) if isinstance(v, Tensor)]
    return min((sum(not isinstance(d, int) for d in v.shape) for v in values), default=0)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]
