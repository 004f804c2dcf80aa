"""A network drawn operator by operator, as the readers of file formats do it.

Operators are torch's own, by name; the rules that capture uses make nodes of them. Constants are worked out at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..errors import FileError, UnsupportedError
from ..network.aten import REFUSED, RULES
from ..network.aten.registry import bind, flattened
from ..network.builder import Barred, Builder, Data, Refused, Smooth, Value
from ..network.constants import doubled
from ..network.curves import Curve, NotLinear
from ..network.graph import Network, Tail
from ..network.simplify import simplified
from ..ops.base import Input
from ..ops.maximum import Maximum
from . import limits

ELEMENTWISE = {  # torch works out their shapes in Python, which loads its compiler first
    *("add", "sub", "mul", "div", "neg", "abs", "relu", "maximum", "minimum", "where"),
    *(
        "gt",
        "ge",
        "lt",
        "le",
        "eq",
        "ne",
        "logical_and",
        "logical_or",
        "logical_not",
        "clamp",
        "leaky_relu",
        "hardtanh",
    ),
}
UNFIT = (RuntimeError, ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError, AssertionError)

SHOWN = 64  # refused operators in one message


class Sketch:
    """Values are Data (one point's shape, without a batch dimension) or constant tensors."""

    def __init__(self, where: str) -> None:
        self.where = where  # the file, for messages
        self.builder = Builder()
        self.refused: dict[str, None] = {}  # in order, each once
        self._seen, self._places = 0, 0  # nodes whose tables were counted, and places in them

    def input(self, name: str, shape: Sequence[int]) -> Data:
        """A new input of the network."""
        limits.sized(shape, f"input {name}", self.where, limits.WIDTH)
        self.builder.name = name
        return self.builder.add(Input(), [], shape)

    def at(self, name: str, path: str = "") -> None:
        """The node that is drawn next, by its name in the file."""
        self._count_tables()
        self.builder.name, self.builder.path = name, path

    def _count_tables(self) -> None:
        """Moves and maxima keep a table of places for each node: a short file must not ask for many large ones."""
        for node in self.builder.nodes[self._seen :]:
            tables = [v for v in vars(node.op).values() if isinstance(v, Tensor) and v.dtype == torch.int64]
            self._places += sum(t.numel() for t in tables)
        self._seen = len(self.builder.nodes)
        limits.within(self._places, limits.TABLES, "places in tables of moves and maxima", self.where)

    def call(self, operator: str, *args: Any, **kwargs: Any) -> Value:
        """One of torch's operators, ``name`` or ``name.overload``, in the file's order of dims: the batch comes first.

        Data in the arguments stands for (1, *shape). Raises Refused where the operator is not piecewise linear.
        """
        name, _, overload = operator.partition(".")
        packet: Any = getattr(torch.ops.aten, name)
        target: Any = getattr(packet, overload or "default", None) or getattr(packet, packet.overloads()[0])
        bound = bind(target, args, kwargs)
        missing = [a.name for a in target._schema.arguments if a.name not in bound]
        if missing:
            raise Refused(f"lacks its input {missing[0]!r}")
        flat = list(flattened(list(bound.values())))
        for value in flat:
            if isinstance(value, (Smooth, Barred)):
                self.builder.data(value)  # which says why nothing may use it
        if not any(isinstance(v, (Data, Curve)) for v in flat):
            return self._folded(target, bound)
        if name in REFUSED:
            raise Refused(REFUSED[name])
        rule = RULES.get(f"{name}.{target._overloadname}") or RULES.get(name)
        if rule is None:
            raise Refused("is not an operator we know to be piecewise linear")
        b = self.builder
        b.target, b.call, b.shape = f"{name}.{target._overloadname}", target, self._shape(target, bound)
        try:
            return rule(b, bound)
        except NotLinear:
            raise Refused("multiplies two branches of data") from None

    def refuse(self, operator: str, reason: str) -> Barred:
        """Note an operator that cannot be treated; all are told at once at the end."""
        where = self.builder.path or self.builder.name
        line = f"{where}: {operator} {reason}" if where else f"{operator} {reason}"
        self.refused[line] = None
        return Barred("")

    def network(self, outputs: Sequence[Value], names: Sequence[str] = ()) -> Network:
        """The finished network."""
        places: list[int] = []
        tails: list[Tail | None] = []
        for number, value in enumerate(outputs):
            self.at(names[number] if number < len(names) else f"output_{number}", "output")
            tails.append(value.tail if isinstance(value, Smooth) else None)
            try:
                if isinstance(value, Tensor):
                    raise Refused("does not depend on the input")
                places.append((value.data if isinstance(value, Smooth) else self.builder.data(value)).place)
            except Refused as problem:
                if not (isinstance(value, Barred) and value.reason == ""):
                    self.refuse(problem.name or "output", str(problem))
        self.raise_refused()
        nodes = tuple(self.builder.nodes)
        if not any(isinstance(n.op, Input) for n in nodes):
            raise FileError("The network has no input.", where=self.where, hint="The file is damaged or incomplete.")
        count = sum(isinstance(n.op, Input) for n in nodes)
        several = len(places) > 1
        network = Network(nodes, tuple(places), tuple(tails), count > 1, several, tuple(self.builder.notes))
        # only maxima are fused with what is around them, and looking for them takes long in long networks
        return simplified(network, rewrite=any(isinstance(n.op, Maximum) for n in nodes))

    def raise_refused(self) -> None:
        """One error for all that was refused."""
        if self.refused:
            count = len(self.refused)
            lines = [*islice(self.refused, SHOWN), *([f"and {count - SHOWN:,} more"] if count > SHOWN else [])]
            raise UnsupportedError(
                f"{count} operator{'s are' if count > 1 else ' is'} not piecewise linear, or not known to us.",
                nodes=tuple(self.refused),
                where="\n         ".join([self.where, *lines]),
                hint="Only networks of affine and piecewise-linear operators can be restricted exactly.",
            )

    def _shape(self, target: Any, bound: dict[str, Any]) -> Any:
        """The shape that the operator gives for one point; worked out without computing a value."""

        def fill(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [fill(v) for v in value]
            if isinstance(value, Curve):
                kind = torch.bool if value.boolean else torch.float64
                return torch.empty(1, *self.builder.nodes[value.root].shape, dtype=kind, device="meta")
            if isinstance(value, Data):
                return torch.empty(1, *value.shape, dtype=torch.float64, device="meta")
            return value.to("meta") if isinstance(value, Tensor) else value

        try:
            made = _known_shape(target, {k: fill(v) for k, v in bound.items()})
        except UNFIT as problem:
            first = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            raise Refused(f"does not fit its input: {first[:200]}") from None
        several = isinstance(made, (tuple, list))
        shapes = [tuple(t.shape[1:]) for t in made] if several else [tuple(made.shape[1:])]
        for shape, whole in zip(shapes, made if several else [made], strict=True):
            limits.within(prod(shape), limits.WIDTH, "elements of one value", f"{self.where}: {self.builder.name}")
            if whole.dim() == 0 or whole.shape[0] != 1:
                raise Refused("moves or mixes the batch dimension")
        return tuple(shapes) if several else shapes[0]

    def _folded(self, target: Any, bound: dict[str, Any]) -> Value:
        try:
            return doubled(target(**bound))
        except UNFIT as problem:
            first = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            raise Refused(f"does not fit its constants: {first[:200]}") from None


def _known_shape(target: Any, bound: dict[str, Any]) -> Any:
    """What an operator gives for tensors without values; torch loads its compiler to say so of the simplest ones."""
    name, tensors = target._schema.name.removeprefix("aten::"), [v for v in bound.values() if isinstance(v, Tensor)]
    if name in ELEMENTWISE:
        return torch.empty(torch.broadcast_shapes(*(t.shape for t in tensors)), device="meta")
    if name in ("linear", "matmul") and all(t.dim() > 1 for t in tensors[:2]):
        one, two = tensors[0], tensors[1].transpose(-1, -2) if name == "linear" else tensors[1]
        if one.shape[-1] != two.shape[-2] or (len(tensors) > 2 and tuple(tensors[2].shape) != (two.shape[-1],)):
            raise ValueError(f"shapes {[tuple(t.shape) for t in tensors]} do not fit together")
        batch = torch.broadcast_shapes(one.shape[:-2], two.shape[:-2])
        return torch.empty((*batch, one.shape[-2], two.shape[-1]), device="meta")
    if name == "batch_norm" and tensors[0].dim() > 1:
        if any(tuple(t.shape) != (tensors[0].shape[1],) for t in tensors[1:]):
            raise ValueError(f"numbers of shapes {[tuple(t.shape) for t in tensors[1:]]} are not one for each channel")
        return tensors[0]
    return target(**bound)
