"""ONNX files, read operator by operator into our own graph; nothing in a file is ever run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import ArgumentError, FileError, UnsupportedError
from ...network.builder import Barred, Refused
from ...network.graph import Network
from ...optional import require_package
from .. import limits
from ..graph_builder import Sketch
from . import affine as affine
from . import arithmetic as arithmetic
from . import pools as pools
from . import shapes as shapes
from .refusals import REASONS, reason
from .tensors import Store
from .values import OPERATORS, Call, Held, Value

OLDEST, NEWEST = 7, 28
OURS = ("", "ai.onnx")
GRAPH, GRAPHS = 5, 10  # kinds of attributes
TAILS = ("Softmax", "LogSoftmax", "Sigmoid", "Tanh")


def read_onnx(data: bytes, where: str, *, folder: Path | None, shape: Sequence[int] | None = None) -> Network:
    """The network in an ONNX file; ``folder`` is where data outside of the file may lie, None for nowhere.

    ``shape`` is that of one input point, for files that leave it open.
    """
    return _Graph(_parsed(data, where), where, folder, shape).network()


def _parsed(data: bytes, where: str) -> Any:
    with require_package("Reading ONNX needs the package onnx.", where=where, hint='pip install "exactline[onnx]"'):
        from onnx import ModelProto
    try:
        model = ModelProto.FromString(data)
    except Exception as problem:  # the parser has error types of its own
        raise _damaged("It is not an ONNX file.", where) from problem
    if not model.HasField("graph") or not model.graph.node:
        raise _damaged("It holds no graph.", where)
    limits.within(len(model.graph.node), limits.LAYERS, "nodes", where)
    if not all(isinstance(word, str) for word in _words(model.graph)):
        raise _damaged("It holds a name that is not UTF-8 text.", where)
    return model


def _words(graph: Any) -> Iterator[Any]:
    """Every name that is used; those that are not UTF-8 come as bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (a.name for a in node.attribute)
    yield from (v.name for v in (*graph.initializer, *graph.input, *graph.output))


class _Graph:
    """Walks the nodes that the outputs need, keeping a value for each name."""

    def __init__(self, model: Any, where: str, folder: Path | None, point: Sequence[int] | None) -> None:
        self.graph, self.where, self.point = model.graph, where, point
        self.sketch, self.store = Sketch(where), Store(where, folder)
        self.opset = self._version(model)
        self.values: dict[str, Value] = {"": None}
        self.named: set[str] = set()  # nodes so far
        self.made = 0  # numbers in constants that nodes worked out

    def _version(self, model: Any) -> int:
        found = [o.version for o in model.opset_import if o.domain in OURS]
        if not found:
            raise _damaged("It does not say which operator set it uses.", self.where)
        if not OLDEST <= max(found) <= NEWEST:
            raise UnsupportedError(
                f"Operator set {max(found)} is not supported.",
                where=self.where,
                hint=f"Convert the file to one of the sets {OLDEST} to {NEWEST}, with onnx.version_converter.",
            )
        return max(found)

    def network(self) -> Network:
        order = self._order()
        self._constants()
        self._inputs()
        for number in order:
            self._node(self.graph.node[number], number)
        outputs = [self._output(o.name) for o in self.graph.output]
        return self.sketch.network([o.value if isinstance(o, Held) else o for o in outputs])

    def _order(self) -> list[int]:
        """Nodes that the outputs depend on, in an order in which they can be evaluated."""
        if not self.graph.output:
            raise _damaged("The graph has no output.", self.where)
        maker: dict[str, int] = {}
        for number, node in enumerate(self.graph.node):
            for name in filter(None, node.output):
                limits.within(len(name), limits.NAME, "characters of a name", self.where)
                if name in maker:
                    raise _damaged(f"Two nodes make {name[:80]!r}.", self.where)
                maker[name] = number
        order: list[int] = []
        done: dict[int, bool] = {}  # False: begun
        waiting = [maker[o.name] for o in reversed(self.graph.output) if o.name in maker]
        while waiting:
            number = waiting[-1]
            if number not in done:
                feeds = {maker[i] for i in self.graph.node[number].input if i in maker}
                done[number] = False
                if any(done.get(f) is False for f in feeds):
                    raise _damaged(f"{self.graph.node[number].output[0][:80]!r} depends on itself.", self.where)
                waiting += sorted((f for f in feeds if f not in done), reverse=True)
                continue
            waiting.pop()
            if not done[number]:
                done[number] = True
                order.append(number)
        return sorted(order) if self._sorted(order, maker) else order

    def _sorted(self, order: list[int], maker: dict[str, int]) -> bool:
        """Whether the file's own order will do, as it should: it reads best."""
        return all(maker.get(i, -1) < n for n in order for i in self.graph.node[n].input)

    def _constants(self) -> None:
        if self.graph.sparse_initializer:
            raise UnsupportedError(
                "Sparse weights are not read.", where=self.where, hint="Store them as dense tensors."
            )
        for proto in self.graph.initializer:
            if proto.name in self.values:
                raise _damaged(f"Two tensors are called {proto.name[:80]!r}.", self.where)
            self.values[proto.name] = self.store.tensor(proto)

    def _inputs(self) -> None:
        weights = set(self.values)
        for info in self.graph.input:
            if info.name in weights:
                continue  # old files list their weights among the inputs
            if info.name in self.values:
                raise _damaged(f"Two inputs are called {info.name[:80]!r}.", self.where)
            kind = info.type.tensor_type
            if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
                raise _damaged(f"Input {info.name[:80]!r} has no shape.", self.where)
            if kind.elem_type not in (1, 10, 11, 16):
                raise UnsupportedError(
                    f"Input {info.name[:80]!r} is not a floating-point tensor.",
                    where=self.where,
                    hint="Only networks of real inputs are piecewise linear.",
                )
            self.values[info.name] = self._input(info.name, kind.shape.dim)

    def _input(self, name: str, dims: Any) -> Held:
        shape = [d.dim_value if d.HasField("dim_value") else 0 for d in dims]
        limits.within(len(shape), limits.DIMS, f"dims of input {name[:80]}", self.where)
        if shape and shape[0] == 0:
            shape[0] = 1  # any number of points
        leads = bool(shape) and shape[0] == 1
        if self.point is not None:
            given = [1, *self.point] if leads else [*self.point]
            if len(given) != len(shape) or any(n not in (0, g) for n, g in zip(shape, given, strict=True)):
                raise ArgumentError(
                    f"Input {name[:80]!r} has shape {shape[leads:]}, which {list(self.point)} does not fit.",
                    where="argument shape",
                    hint="Give the shape of one point, without a batch dimension.",
                )
            shape = given
        if any(d < 1 for d in shape):
            raise ArgumentError(
                f"Input {name[:80]!r} has a free dim besides the first: {shape}.",
                where=self.where,
                hint="Say how large it is: load(path, shape=(12, 12, 3)), or --shape 12,12,3.",
            )
        return Held(self.sketch.input(name[:80], shape[1:] if leads else shape), tuple(shape), leads)

    def _output(self, name: str) -> Value:
        if name not in self.values or name == "":
            raise _damaged(f"Nothing makes the output {name[:80]!r}.", self.where)
        return self.values[name]

    def _node(self, node: Any, number: int) -> None:
        name = node.name or (node.output[0] if node.output else "") or f"{node.op_type}_{number}"
        name = f"{name}_{number}" if name in self.named else name
        self.named.add(name)
        inputs = [self._found(i) for i in node.input]
        self.sketch.at(_short(name))
        read = OPERATORS.get(node.op_type) if node.domain in OURS else None
        try:
            if read is None:
                raise Refused(reason(node.op_type, node.domain))
            settings = {a.name: v for a in node.attribute for v in self._attribute(a, node.op_type)}
            call = Call(self.sketch, self.store, self.opset, node.op_type, name, settings, len(node.output))
            if node.input and inputs[0] is None:
                raise call.damaged("An input is missing.")
            made = self._behind(call, inputs) or read(call, inputs)
            results = made if isinstance(made, tuple) else (made,)
            self._charge(results, [*inputs, *settings.values()])
        except Refused as problem:
            if problem.path:
                self.sketch.at(_short(problem.path))
            results = (Held(self.sketch.refuse(problem.name or node.op_type, str(problem)), (), False),)
        except (AttributeError, IndexError) as problem:
            raise _damaged("An input is missing, or not of the kind it should be.", self._at(node, name)) from problem
        except (ValueError, TypeError, OverflowError, RuntimeError) as problem:
            text = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
            raise _damaged(f"Its settings or inputs make no sense: {text}", self._at(node, name)) from problem
        for place, output in enumerate(node.output):
            if output:
                barred = Held(Barred(f"uses output {place} of {node.op_type}, which is not supported"), (), False)
                self.values[output] = results[place] if place < len(results) else barred

    def _charge(self, made: Sequence[Value], given: Sequence[Value]) -> None:
        """Count the constants that a node worked out, unless they are views of what it was given."""
        held = {v.untyped_storage().data_ptr() for v in given if isinstance(v, Tensor)}
        fresh = [v for v in made if isinstance(v, Tensor) and v.untyped_storage().data_ptr() not in held]
        self.made += sum(v.numel() for v in fresh)
        limits.within(self.made, limits.MADE, "numbers in constants that nodes work out", self.where)

    def _behind(self, call: Call, inputs: list[Value]) -> Held | None:
        """Behind a refused node only the operator's name and the number of its branches can still be judged."""
        moving = [v.value for v in inputs if isinstance(v, Held)]
        barred = [v for v in moving if isinstance(v, Barred) and not v.reason]
        if not barred:
            return None
        for value in barred:
            if value.smooth:
                self.sketch.at(value.smooth[1])
                self.sketch.refuse(value.smooth[0], "is smooth, and may only come last")
        self.sketch.at(_short(call.name))
        if call.kind in REASONS:
            raise Refused(REASONS[call.kind])
        if call.kind in ("Mul", "MatMul", "Gemm", "Div") and len(moving) > 1:
            raise Refused("multiplies two branches of data")
        return Held(Barred("", smooth=(call.kind, call.name) if call.kind in TAILS else None), (), False)

    def _found(self, name: str) -> Value:
        if name not in self.values:
            raise _damaged(f"Nothing makes {name[:80]!r}, which a node reads.", self.where)
        return self.values[name]

    def _at(self, node: Any, name: str) -> str:
        return f"{self.where}: {node.op_type[:80]} {name[:80]}"

    def _attribute(self, proto: Any, kind: str) -> Iterator[Any]:
        """The value of an attribute, as an iterator so that unset ones can be skipped."""
        if proto.type in (GRAPH, GRAPHS) or proto.ref_attr_name:
            raise Refused("holds a graph of its own, which is not supported")
        fields = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}
        if proto.type not in fields:
            raise _damaged(f"Attribute {proto.name[:80]!r} has no type we know.", f"{self.where}: {kind[:80]}")
        value = getattr(proto, fields[proto.type])
        if proto.type == 3:
            yield value.decode("utf-8", "replace")
        elif proto.type == 4:
            yield self.store.tensor(value)
        elif proto.type in (6, 7, 8):
            limits.within(len(value), limits.NUMBERS, f"numbers of attribute {proto.name[:80]}", self.where)
            yield list(value)
        else:
            yield value


def _short(name: str) -> str:
    """A name fit for messages and tables."""
    return "".join(c if c.isprintable() else "?" for c in name[:120])


def _damaged(problem: str, where: str) -> FileError:
    return FileError(problem, where=where, hint="The file is damaged, or made by something that breaks the format.")
