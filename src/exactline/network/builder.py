"""The graph while it is being read: values that rules take and give, and what was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..errors import NumberError
from ..ops.affine import Rearrange, Reshape, Scale
from ..ops.base import Input, Op
from ..ops.pointwise import Pointwise
from . import curves
from .constants import all_finite
from .curves import Curve
from .graph import Node, Shape, Tail


class Refused(Exception):
    """Raised by a rule: this node, or another that is named, is not piecewise linear or not known to us."""

    def __init__(self, reason: str, name: str = "", path: str | None = None) -> None:
        super().__init__(reason)
        self.name, self.path = name, path


@dataclass(frozen=True)
class Data:
    """A value that depends on the input: the output of a node."""

    place: int
    shape: Shape


@dataclass(frozen=True)
class Smooth:
    """The output of a smooth operator: a network may end in it, nothing may use it."""

    data: Data
    tail: Tail
    path: str = ""


@dataclass(frozen=True)
class Barred:
    """A value that exists but that nothing may use, and why; no reason: it was refused already."""

    reason: str
    smooth: tuple[str, str] | None = None  # operator and module, if it may only come last
    data: bool = True  # whether it depends on the input


class BatchSize(int):
    """The number of points: fine in a shape, refused as a number."""


Value: TypeAlias = Any  # Data, Curve, Smooth, Barred, a constant Tensor, a number, or a tuple of these


@dataclass
class Builder:
    """Nodes added so far, and helpers that rules share."""

    nodes: list[Node] = field(default_factory=list)
    curve_of: dict[int, Curve] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    name: str = ""  # of the node being read
    target: str = ""  # the operator being read, without its namespace
    call: Callable[..., Any] | None = None  # torch's own operator
    path: str = ""
    shape: Any = ()  # of the node being read, without the batch dimension; a tuple of shapes for several
    notes: list[str] = field(default_factory=list)

    def add(self, op: Op, inputs: Sequence[Data], shape: Sequence[int] | None = None) -> Data:
        """Append a node; its shape is the one that was traced unless given."""
        where = tuple(self.shape if shape is None else shape)
        self._finite(op)
        name, suffix = self.name, 1
        while name in self.names:
            name, suffix = f"{self.name}.{suffix}", suffix + 1
        self.names.add(name)
        self.nodes.append(Node(name, op, tuple(d.place for d in inputs), where, self.path))
        place = len(self.nodes) - 1
        curve = None if isinstance(op, Input) or len(inputs) != 1 else self._curve(op, inputs[0])
        self.curve_of[place] = curve or Curve.identity(place)
        return Data(place, where)

    def pointwise(self, op: Pointwise, x: Data) -> Data:
        """Append an elementwise breaking node, on data as wide as its knots."""
        wide = torch.broadcast_shapes((1, *x.shape), *(k.shape for k in op.knots if isinstance(k, Tensor)))
        x = self.expanded(x, wide[1:])
        knots = tuple(k.expand(wide).contiguous() if isinstance(k, Tensor) else k for k in op.knots)
        return self.add(replace(op, knots=knots), [x], x.shape)

    def expanded(self, x: Data, shape: Sequence[int]) -> Data:
        """Data repeated to a wider shape."""
        if tuple(shape) == x.shape:
            return x
        return self.rearranged(lambda n: n.expand(1, *shape), [x], "expand")

    def data_args(self, args: dict[str, Any]) -> list[Data]:
        """The data among an operator's arguments, lists included, in order."""
        flat: list[Data] = []
        for value in args.values():
            values = value if isinstance(value, (list, tuple)) else [value]
            flat.extend(v for v in values if isinstance(v, Data))
        return flat

    def call_with_data(self, args: dict[str, Any]) -> Callable[..., Any]:
        """Torch's own operator as a function of its data alone, everything else as it was given."""
        target = self.call

        def call(*xs: Tensor) -> Any:
            given = iter(xs)

            def fill(value: Any) -> Any:
                if isinstance(value, (list, tuple)):
                    return [fill(v) for v in value]
                return next(given) if isinstance(value, Data) else value

            if target is None:
                raise Refused("has no operator")
            return target(**{k: fill(v) for k, v in args.items()})

        return call

    def rearranged(self, call: Callable[..., Tensor], xs: Sequence[Data], name: str) -> Data:
        """An operator that only moves elements, as an index map found by moving their numbers."""
        counts = [torch.Size(x.shape).numel() for x in xs]
        numbers, base = [], 1
        for x, count in zip(xs, counts, strict=True):
            numbers.append(torch.arange(base, base + count, dtype=torch.float64).view(1, *x.shape))
            base += count
        try:
            once, twice, none = (call(*(n * f for n in numbers)) for f in (1, 2, 0))
        except (RuntimeError, IndexError):
            raise Refused("mixes the batch dimension, or cannot be done to a single point") from None
        if once.shape[:1] != (1,):
            raise Refused("moves or mixes the batch dimension")
        moved = (once != twice).flatten()
        index = torch.where(moved, once.flatten() - 1, torch.full_like(once.flatten(), -1)).to(torch.int64)
        shape = tuple(once.shape[1:])
        if len(xs) == 1 and bool(moved.all()) and torch.equal(index, torch.arange(counts[0])):
            return xs[0] if shape == xs[0].shape else self.add(Reshape(shape), xs, shape)
        constant = None if bool(moved.all()) else none.flatten().clone()
        return self.add(Rearrange(index, constant, shape, name), xs, shape)

    def data(self, value: Value) -> Data:
        """A value as data that operators can take; a curve becomes an operator if it is continuous."""
        if isinstance(value, Data):
            return value
        if isinstance(value, Barred):
            raise Refused(value.reason)
        if isinstance(value, Smooth):
            raise Refused("is smooth, and may only come last", value.tail.name, value.path)
        if not isinstance(value, Curve):
            raise Refused(f"expects data, not {type(value).__name__}")
        knot = value.jump()
        if value.boolean or knot is not None:
            at = "" if knot is None else f" (it jumps at {float(knot):g})"
            raise Refused(f"is not continuous{at}", *value.origin)
        root = Data(value.root, self.nodes[value.root].shape)
        made = value.pointwise()
        if isinstance(made, Pointwise):
            return self.pointwise(made, root)
        slope, shift = (torch.tensor(float(v), dtype=torch.float64) for v in made)
        return self.add(Scale(slope, None, shift), [root], root.shape)

    def curve(self, value: Value, root: int | None = None) -> Curve:
        """A value as a scalar function of one node."""
        if isinstance(value, Curve):
            return value
        if isinstance(value, Data):
            return self.curve_of[value.place]
        if isinstance(value, (bool, int, float)) and root is not None and not isinstance(value, BatchSize):
            return curves.constant(root, float(value))
        if isinstance(value, Tensor) and value.numel() and root is not None:
            first = value.flatten()[0]
            if bool((value == first).all()):
                return curves.constant(root, float(first))
        raise Refused("combines data in a way that is not piecewise linear")

    def together(self, *values: Value) -> list[Curve]:
        """Values as functions of one and the same node."""
        made = [self.curve(v) for v in values if isinstance(v, (Data, Curve))]
        if not made:
            raise Refused("expects data")
        root = made[0].root
        found = [self.curve(v, root) for v in values]
        if any(c.root != root for c in found):
            raise Refused("mixes two branches of data in a way that is not piecewise linear")
        return found

    def _finite(self, op: Op) -> None:
        """Folding may overflow or divide by zero even where all weights are finite."""
        for value in vars(op).values():
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor) and not all_finite(tensor):
                    raise NumberError(
                        f"{op.title} has a constant that is NaN or infinite.",
                        where=self.path or self.name,
                        hint="Look for a division by zero, such as a variance and an eps of 0.",
                    )

    def _curve(self, op: Op, x: Data) -> Curve | None:
        if isinstance(op, Pointwise) and all(isinstance(v, Fraction) for v in (*op.knots, *op.slopes, op.value)):
            return curves.through(op, self.curve_of[x.place])
        if isinstance(op, Scale):
            numbers = [op.weight, op.divisor, op.offset]
            if all(v is None or v.numel() == 1 for v in numbers):
                weight, divisor, offset = (None if v is None else Fraction(float(v)) for v in numbers)
                old = self.curve_of[x.place]
                root = old.root
                factor = (Fraction(1) if weight is None else weight) / (Fraction(1) if divisor is None else divisor)
                scaled = curves.multiply(old, curves.constant(root, factor))
                return curves.add(scaled, curves.constant(root, offset or Fraction(0)))
        return None
