"""A captured network against torch's own graph, node by node, before anyone trusts it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from .builder import BatchSize, Builder, Data, Value
from .constants import all_finite
from .curves import Curve
from .graph import Node

POINTS = 3  # and one fewer for what counts them
SPREAD = 16.0  # the usual knots, such as 6, lie well inside
SCALES = (1.0, 2.0**-64, 2.0**-464, 2.0**-864)
TOLERANCE = 1e-7  # generous: a wrong rule is off by far more, rounding by far less
MIXED = "mixes the batch dimension, or does not do what we read in it"
COUNTED = "computes with the number of points in the batch"


def differences(
    program: ExportedProgram, builder: Builder, values: dict[str, Value]
) -> list[tuple[torch.fx.Node, str]]:
    """All nodes that do something else than we read in them, in the order of the graph, and what."""
    trial, found = None, []
    for scale in SCALES:  # weights may be so large that only tiny points stay finite
        trial = _Trial(program, builder, values, POINTS, scale)
        found = list(trial.differences())
        if trial.finite:
            break
    if found or trial is None or not trial.counting:
        return found
    return list(_Trial(program, builder, values, POINTS - 1).differences())


class _Trial:
    """Runs the graph in float64 on a few points, every node on data of its own.

    Fresh data for every node: behind a unit that sleeps at all likely points, no value would tell that a
    node mixes points. Only what comparisons tie together, such as x and x > 0, stays together.
    """

    def __init__(
        self, program: ExportedProgram, builder: Builder, values: dict[str, Value], points: int, scale: float = 1.0
    ) -> None:
        self.graph, self.nodes, self.values = program.graph, builder.nodes, values
        self.points, self.scale = points, scale
        self.generator = torch.Generator().manual_seed(0)
        roots = {v.root for v in values.values() if isinstance(v, Curve)}
        self.tied = {p for p, curve in builder.curve_of.items() if curve.root != p and curve.root in roots}
        self.drawn: dict[int, Tensor] = {}  # by place: the data that later nodes are given
        self.theirs: dict[str, Any] = {}
        self.finite, self.counting = True, False

    def differences(self) -> Iterator[tuple[torch.fx.Node, str]]:
        for node in self.graph.nodes:
            if node.name not in self.values:  # no output needs it
                continue
            ours = theirs = self.values[node.name]
            tried = self._counts(node) or self.points == POINTS or not isinstance(ours, Data)
            if tried and node.op != "placeholder":
                theirs = self._called(node)
                if not self._same(ours, theirs) and "empty" not in str(node.target):  # which holds anything
                    yield node, COUNTED if isinstance(ours, Tensor) else MIXED
            self.theirs[node.name] = self._passed_on(ours, theirs)

    def _counts(self, node: torch.fx.Node) -> bool:
        """Whether a node is given the number of points, or a constant as long as they are many."""
        given = [(self.values[n.name], self.theirs[n.name]) for n in node.all_input_nodes]
        found = any(
            isinstance(ours, BatchSize) or (isinstance(ours, Tensor) and ours.shape != theirs.shape)
            for ours, theirs in given
        )
        self.counting = self.counting or found
        return found

    def _called(self, node: torch.fx.Node) -> Any:
        target: Any = node.target
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self.theirs[n.name])
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        if options.get("dtype") in (torch.float16, torch.bfloat16, torch.float32):
            options["dtype"] = torch.float64
        with torch.no_grad():
            return _double(target(*args, **options))

    def _same(self, ours: Value, theirs: Any) -> bool:
        """Whether a node does what we read in it; what is neither data nor a constant tells nothing."""
        if isinstance(ours, (tuple, list)):
            return all(self._same(o, t) for o, t in zip(ours, theirs, strict=False))
        if not isinstance(ours, (Data, Tensor)) or not isinstance(theirs, Tensor):
            return True
        if isinstance(ours, Data) and not all_finite(theirs):
            self.finite = False
            return True
        try:
            here = self._value(ours.place) if isinstance(ours, Data) else _as_long(ours, theirs)
        except RuntimeError:  # a constant as long as the batch was made for one point, and does not fit more
            return False
        return here.shape == theirs.shape and _close(here.to(torch.float64), theirs.to(torch.float64))

    def _passed_on(self, ours: Value, theirs: Any) -> Any:
        """What later nodes get to see: fresh data, or the constant itself."""
        if isinstance(ours, (tuple, list)) and isinstance(theirs, (tuple, list)):
            return [self._passed_on(o, t) for o, t in zip(ours, theirs, strict=False)]
        if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
            made = _as_long(ours, theirs)
            return made.to(theirs.dtype) if made.shape == theirs.shape else theirs
        if not isinstance(ours, Data):
            return theirs
        if ours.place not in self.drawn:
            tied = ours.place in self.tied
            self.drawn[ours.place] = self._value(ours.place) if tied else self._fresh(self.nodes[ours.place])
        return self.drawn[ours.place]

    def _fresh(self, node: Node) -> Tensor:
        shape = (self.points, *node.shape)
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64, device="cpu")
        return drawn.sub_(0.5).mul_(SPREAD).mul_(self.scale)

    def _value(self, place: int) -> Tensor:
        """A node of ours on the data that was drawn for what it reads."""
        if place in self.drawn:
            return self.drawn[place]
        node = self.nodes[place]
        return node.op.evaluate(*(self._value(p) for p in node.inputs))


def _as_long(ours: Tensor, theirs: Tensor) -> Tensor:
    """A constant made for one point, for as many as there are."""
    fits = ours.dim() == theirs.dim() and all(d in (1, e) for d, e in zip(ours.shape, theirs.shape, strict=True))
    return ours.expand_as(theirs) if fits else ours


def _close(here: Tensor, there: Tensor) -> bool:
    if not there.numel():
        return True
    largest, worst = float(there.abs().amax()), float((here - there).abs_().amax())
    if largest < float("inf") and worst <= TOLERANCE * largest:
        return True  # as almost always
    known = there[torch.isfinite(there)]
    scale = float(known.abs().max()) if known.numel() else 0.0
    return torch.allclose(here, there, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)


def _double(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_double(v) for v in value)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to("cpu", torch.float64)
    return value.detach().cpu() if isinstance(value, Tensor) else value
