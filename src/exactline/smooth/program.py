"""Run an exported program in float64, and say which of its nodes runs at the moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ..network.reader import IGNORED_OPERATORS
from ..network.traced_node import is_overload, module_path, operator_name

# The node of the model that runs at the moment, as an error message names it; empty where it is not known.
running_node: ContextVar[str] = ContextVar("running_node", default="")


class ProgramRunner:
    """Evaluates an exported program on float64 batches; its weights are copied, the model is never changed.

    >>> from exactline.network.capture import export_module
    >>> runner = ProgramRunner(export_module(torch.nn.GELU(), [torch.zeros(1)]), torch.device("cpu"))
    >>> runner(torch.zeros(2, 1).double()).dtype
    torch.float64
    """

    def __init__(self, program: ExportedProgram, device: torch.device) -> None:
        self.module, self.device = program.graph_module, device
        self.spec = program.call_spec.out_spec
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        state: dict[str, Any] = {**program.constants, **program.state_dict}
        self.fixed: dict[str, Any] = {}  # float64 copies of weights and constants, by placeholder
        for node in program.graph.nodes:
            if node.op == "placeholder" and specs[node.name].kind != InputKind.USER_INPUT:
                self.fixed[node.name] = _to_float64(state.get(specs[node.name].target or ""), device)
        outputs = program.graph_signature.output_specs
        self.user_outputs = [i for i, spec in enumerate(outputs) if spec.kind == OutputKind.USER_OUTPUT]
        self.placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]

    def __call__(self, *xs: Tensor) -> Any:
        """Evaluate batches (n, *in); returns what the model returns."""
        inputs = iter(xs)
        args = [self.fixed[name] if name in self.fixed else next(inputs, None) for name in self.placeholders]
        outputs = _Float64Interpreter(self.module, self.device).run(*args)
        flat = [outputs[i] for i in self.user_outputs]
        return flat if self.spec is None else pytree.tree_unflatten(flat, self.spec)

    def evaluate_widened(self, *xs: Tensor, tail: bool) -> tuple[Tensor, ...]:
        """Evaluate batches of any precision; returns the outputs on the CPU, as a `Network` does with ``tail=True``."""
        return tuple(y.cpu() for y in flatten_outputs(self(*(x.to(self.device, torch.float64) for x in xs))))


def flatten_outputs(outputs: Any) -> list[Tensor]:
    """All tensors that a model returns, widened to float64."""
    return [y.detach().to(torch.float64) for y in pytree.tree_leaves(outputs) if isinstance(y, Tensor)]


class _Float64Interpreter(fx.Interpreter):
    """Runs a graph node by node; casts and new tensors that ask for float32 give float64."""

    def __init__(self, module: Any, device: torch.device) -> None:
        super().__init__(module)
        self.device = device

    def run_node(self, n: fx.Node) -> Any:
        token = running_node.set(_describe(n))
        try:
            return super().run_node(n)
        finally:
            running_node.reset(token)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if is_overload(target):
            if operator_name(target) in IGNORED_OPERATORS:
                return None
            args, kwargs = _widen(args), _widen(kwargs)
            if target is torch.ops.aten.view.default:  # strides may differ from those of the traced kernels
                return torch.reshape(*args)
            if "device" in kwargs and kwargs["device"] is not None:
                kwargs = {**kwargs, "device": self.device}
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _to_float64(super().get_attr(target, args, kwargs), self.device)


def _describe(node: fx.Node) -> str:
    path, name = module_path(node), node.name
    if node.op == "call_function" and is_overload(node.target):
        name = operator_name(node.target)
    return f"{path}: {name}" if path else name


def _to_float64(value: Any, device: torch.device) -> Any:
    if not isinstance(value, Tensor):
        return value
    value = value.detach().to(device)
    return value.to(torch.float64) if value.is_floating_point() else value


def _widen(value: Any) -> Any:
    """Replace the type float32 among arguments by float64."""
    if value is torch.float32:
        return torch.float64
    if isinstance(value, dict):
        return {k: _widen(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_widen(v) for v in value)
    return value


def describe_running_node(operator: str) -> str:
    """Name the node that runs at the moment for an error message; the operator alone where it is not known."""
    return running_node.get() or operator


def as_batches(points: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Move points (n, *in) to a device."""
    return [p.to(device) for p in points]
