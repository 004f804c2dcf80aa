"""Trace a model, and the gradient of its output, to a tape."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...errors import CaptureError, ExactlineError
from ...network.capture import check_eval_mode, check_traceable
from .tape import Tape, check_operators, describe_node, fold_constants

aten = torch.ops.aten
# Derivatives that torch itself writes in terms of operators with rules.
DECOMPOSED_OPERATORS = (
    aten.native_layer_norm_backward,
    aten._softmax_backward_data,
    aten._log_softmax_backward_data,
    aten.tanh_backward,
    aten.sigmoid_backward,
    aten.native_batch_norm_backward,
    aten.linear,
    aten.addmv,
    aten.mv,
    aten.dot,
    aten.std,
    aten.log_sigmoid_forward,
    aten.log_sigmoid_backward,
    aten.mish,
)


def record_values(model: nn.Module, points: Sequence[Tensor]) -> Tape:
    """Trace a model in eval mode.

    Args:
        model: Takes batches of points. It is copied to float64.
        points: A point for each input, (*in), without batch dimension; only their shapes matter.

    Raises CaptureError, TrainingModeError, and UnsupportedError naming all operators without a rule.
    """
    copied = copy_to_float64(model)
    return trace(copied, lambda *xs: evaluate_point(copied, xs), [torch.zeros_like(p) for p in points])


def record_gradients(model: nn.Module, points: Sequence[Tensor]) -> Tape:
    """Trace a model together with its vector-Jacobian product: (*points, cotangent) to (output, gradients).

    Args:
        model: Takes batches of points. It is copied to float64.
        points: A point for each input, (*in), without batch dimension; only their shapes matter.

    Raises CaptureError, TrainingModeError, and UnsupportedError naming all operators without a rule.
    """
    copied = copy_to_float64(model)
    zeros = [torch.zeros_like(p) for p in points]
    with _explain_failure(copied, zeros), torch.no_grad():
        cotangent = torch.zeros_like(evaluate_point(copied, zeros))

    def differentiate(*args: Tensor) -> Any:
        output, vjp, *_ = torch.func.vjp(lambda *xs: evaluate_point(copied, xs), *args[:-1])
        return output, vjp(args[-1])

    return trace(copied, differentiate, [*zeros, cotangent])


def copy_to_float64(model: nn.Module) -> nn.Module:
    """Copy a model in eval mode to float64 on the CPU."""
    if not isinstance(model, nn.Module):
        raise CaptureError(
            f"A {type(model).__name__} cannot be traced with proven bounds.",
            where="argument model",
            hint="Give a torch.nn.Module in eval mode.",
        )
    check_traceable(model)
    check_eval_mode(model)
    try:
        copied = copy.deepcopy(model)
    except Exception as problem:
        raise CaptureError(
            f"The model cannot be copied: {problem}",
            where="argument model",
            hint="Give a model without hooks or locks.",
        ) from problem
    return copied.to(device="cpu", dtype=torch.float64).requires_grad_(False)


def evaluate_point(model: nn.Module, points: Sequence[Tensor]) -> Tensor:
    """Call a model on a batch of one point, with attention written as matrix products and a softmax."""
    with sdpa_kernel(SDPBackend.MATH):
        output = model(*(point[None] for point in points))
    if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != 1:
        raise CaptureError(
            "The model does not return one tensor with a batch dimension.",
            where="forward, called with a batch of one point",
            hint="Wrap the model in a module that returns the output of interest.",
        )
    return output[0]


def trace(model: nn.Module, function: Callable[..., Any], points: Sequence[Tensor]) -> Tape:
    """Trace a function that calls the model on points of given shapes."""
    table: Any = get_decompositions(DECOMPOSED_OPERATORS)
    functional = torch.func.functionalize(function)
    tracer = make_fx(functional, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)
    with (
        _explain_failure(model, points),
        torch.enable_grad(),
        torch.inference_mode(False),
        _label_nodes(model) as label,
    ):
        graph = tracer(*points)
    label(graph)
    graph.graph.eliminate_dead_code()
    _check_repeatable(graph)
    constants = fold_constants(graph)
    check_operators(graph, constants)
    output: Any = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    first = output[0] if isinstance(output, list | tuple) else output
    return Tape(graph, constants, first.meta["val"].shape)


@contextlib.contextmanager
def _explain_failure(model: nn.Module, points: Sequence[Tensor]) -> Generator[None]:
    """Turn errors of torch and of the model into a CaptureError."""
    try:
        yield
    except (ExactlineError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [""])[0][:300]
        raise CaptureError(
            f"torch could not trace {type(model).__name__}: {type(problem).__name__}: {reason}",
            where=f"forward, called with points of shape {', '.join(str((1, *p.shape)) for p in points)}",
            hint="forward must accept a batch of one point, and must not branch on values.",
        ) from problem


def _check_repeatable(graph: GraphModule) -> None:
    """Raise CaptureError if an operator draws random numbers."""
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CaptureError(
                "The model draws random numbers, so it is not a function of its input.",
                where=describe_node(node),
                hint="Switch the randomness off, for example with model.eval().",
            )


@contextlib.contextmanager
def _label_nodes(model: nn.Module) -> Generator[Callable[[GraphModule], None]]:
    """Provide a function that writes to every node of a traced graph the submodule that was running."""
    running: list[str] = []
    starts = [(0, "")]  # the number of nodes when a submodule started or resumed, and its name

    def mark() -> None:
        mode: Any = get_proxy_mode()
        if mode is not None:
            starts.append((len(mode.tracer.graph.nodes), running[-1] if running else ""))

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            running.append(name)
            mark()

        return hook

    def leave(*_: Any) -> None:
        running.pop()
        mark()

    handles = [m.register_forward_pre_hook(enter(name)) for name, m in model.named_modules() if name]
    handles += [m.register_forward_hook(leave) for name, m in model.named_modules() if name]

    def label(graph: GraphModule) -> None:
        nodes = list(graph.graph.nodes)
        for (first, name), (last, _) in zip(starts, [*starts[1:], (len(nodes), "")], strict=True):
            for node in nodes[first:last]:
                node.meta["submodule"] = name

    try:
        yield label
    finally:
        for handle in handles:
            handle.remove()
