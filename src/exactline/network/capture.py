"""Capture a torch module without changing it: from its calls of common functions, or traced by torch.export."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import operator
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import CaptureError, TrainingModeError
from .aten import RULES, UNSUPPORTED_REASONS
from .call_reader import read_calls
from .example_batch import make_example_batch
from .fingerprint import GLOBAL_HOOKS
from .forward_check import (
    ForwardComparison,
    compare_forward_passes,
    differs_on_single_points,
    differs_when_called,
    find_random_difference,
    is_small,
    raise_not_repeatable,
    raise_reads_batch_size,
    raise_traced_differently,
    record_many_points,
)
from .graph import Network, WeakModule
from .preserve import StateRecorder, preserve_state
from .quick_shapes import use_quick_shapes
from .reader import IGNORED_OPERATORS, read_program
from .sequential import read_sequential
from .static_constants import replace_static_constants
from .traced_node import is_overload, operator_name

MAX_BATCH_POINTS = 1024  # the upper bound of the dynamic batch: some kernels have a limit, and the graph is never run
STOCHASTIC_MODULES = (nn.modules.dropout._DropoutNd, nn.RReLU)  # pyright: ignore[reportPrivateUsage]

REPEATED_PASSES = (1, 2, 3)  # before a second capture of a module that may not compute the same every time
QUANTIZED_PACKAGES = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
INTERNAL_PACKAGES = ("torch.export", "torch._export", "torch._functorch", "torch._dynamo", "torch.fx")


def capture_module(model: nn.Module, points: Sequence[Tensor], until: str | None = None) -> Network:
    """Capture a module as a `Network`.

    Args:
        model: the module, in evaluation mode.
        points: one tensor (*in) for every input; only their shapes matter.
        until: stop after this submodule, named as in ``named_modules()``.

    >>> capture_module(nn.Linear(2, 3), [torch.zeros(2)])
    <Network (2,) -> (3,): 2 nodes, no breaking units>

    Raises CaptureError, UnsupportedError, TrainingModeError or ArgumentError, as `as_network` does.
    """
    check_traceable(model)
    check_eval_mode(model)
    network = read_sequential(model, points[0].shape) if len(points) == 1 and until is None else None
    if network is None:
        network = _trace_module(model, points, until)
    if until is not None:  # part of a model has no forward pass to compare with
        return network
    return network.with_source(WeakModule(model))


def _trace_module(model: nn.Module, points: Sequence[Tensor], until: str | None) -> Network:
    """Convert the calls of a forward pass, or trace it with torch.export; check that it is one function.

    torch.export is used where the module calls other functions than common ones, and wherever something is wrong with
    the module: it says what.
    """
    with preserve_state(model) as state:
        observation = observe_forward(model, points, state)
        network = _read_plain_calls(model, points, state, observation) if until is None else None
        if network is not None:
            return network
        program = export_module(model, points)
        state.restore()
        network = read_program(program, until)
        check_one_function(
            model,
            points,
            state,
            program,
            None if until is not None else network,
            lambda again: _is_same_network(network, read_program(again, until)),
            observation,
        )
    return network


class ForwardObservation(NamedTuple):
    """What forward passes of a module without torch.export have shown."""

    comparison: ForwardComparison
    draws_random_numbers: bool


def observe_forward(model: nn.Module, points: Sequence[Tensor], state: StateRecorder) -> ForwardObservation:
    """Compare forward passes of a module; its state is restored afterwards."""
    with _run_quietly():
        examples = [make_example_batch(model, point) for point in points]
        comparison = compare_forward_passes(model, examples, state.restore)
    draws_random_numbers = state.has_drawn_random_numbers()
    state.restore()
    return ForwardObservation(comparison, draws_random_numbers)


def _read_plain_calls(
    model: nn.Module, points: Sequence[Tensor], state: StateRecorder, observation: ForwardObservation
) -> Network | None:
    """Convert a forward pass of common torch functions without torch.export; None where torch.export is needed."""
    differences, several, single = observation.comparison
    if torch._C._len_torch_function_stack():  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        return None  # a mode of the user may change what the functions compute
    if several is None or single is None or any(differences) or observation.draws_random_numbers:
        return None
    examples = [make_example_batch(model, point) for point in points]
    with _run_quietly():
        many = record_many_points(model, examples)
    state.restore()
    network = None if many is None else read_calls(model, several, (single, many))
    if network is None or not is_small(model, examples):
        return network
    with _run_quietly():
        is_different = differs_when_called(model, network, None, examples)
    state.restore()
    return None if is_different else network


def check_one_function(
    model: nn.Module,
    points: Sequence[Tensor],
    state: StateRecorder,
    program: ExportedProgram,
    captured: Callable[..., Any] | None,
    is_same: Callable[[ExportedProgram], bool],
    observation: ForwardObservation | None = None,
) -> None:
    """Raise CaptureError unless forward computes the same every time, at every batch size and when it is not traced.

    Torch calls are compared first, which is quick. Where they differ, the answers decide: a module may fill a cache in
    its first forward pass, or have a shorter way for a single point.

    Args:
        model: the module.
        points: one tensor (*in) for every input.
        state: of the module before it was captured; it is restored after every forward pass.
        program: what torch.export traced.
        captured: the function that was read from the program, to be called with ``tail=True``; None if only a part of
            the module was read, which has no forward pass to compare with.
        is_same: whether a second program is that of the same function.
        observation: of the forward passes; made here by default.
    """
    observation = observation or observe_forward(model, points, state)
    differences = observation.comparison.differences
    with _run_quietly():
        examples = [make_example_batch(model, point) for point in points]
        if observation.draws_random_numbers and (difference := find_random_difference(model, examples)):
            raise_not_repeatable(difference)
        state.restore()
        for passes in REPEATED_PASSES if differences.repeated else ():
            for _ in range(passes):
                model(*examples)
            if not is_same(export_module(model, points)):
                raise_not_repeatable(differences.repeated)
            state.restore()
        if differences.single and (captured is None or differs_on_single_points(model, captured, examples)):
            raise_reads_batch_size(differences.single)
        if captured is None or not is_small(model, examples):
            return
        if differs_when_called(model, captured, program, examples):
            raise_traced_differently()


def _is_same_network(one: Network, two: Network) -> bool:
    """Whether two captures of a module have the same operators and numbers."""
    nodes = [[(n.op.title, n.inputs, n.shape) for n in network.nodes] for network in (one, two)]
    return nodes[0] == nodes[1] and one.outputs == two.outputs and one.checksum() == two.checksum()


def check_traceable(model: nn.Module) -> None:
    """Raise CaptureError for a module that torch.export cannot trace by its nature, with what to use instead."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            problem = f"{type(module).__name__} is TorchScript, whose code cannot be traced."
            hint = "Use the Python module that it was made from, or export it to ONNX and use exactline.load."
        elif type(module).__module__.startswith(QUANTIZED_PACKAGES):
            problem = f"{type(module).__name__} is quantised: it rounds its values, which is not piecewise linear."
            hint = "Use the floating-point model that it was made from."
        elif any(p.is_inference() for p in (*module.parameters(False), *module.buffers(False))):
            problem = "The weights were made in inference mode, where torch.export cannot trace them."
            hint = "Use copy.deepcopy(model), made outside of torch.inference_mode(), or load the model outside of it."
        else:
            continue
        raise CaptureError(problem, where=f"submodule {name or '(the model itself)'}", hint=hint)


def check_eval_mode(model: nn.Module) -> None:
    """Raise TrainingModeError if a submodule drops units at random or normalizes by the statistics of the batch."""
    for name, module in model.named_modules():
        batch = isinstance(module, nn.modules.batchnorm._BatchNorm)  # pyright: ignore[reportPrivateUsage]
        active = isinstance(module, STOCHASTIC_MODULES) and getattr(module, "p", 1.0) > 0
        if module.training and (batch or active):
            raise TrainingModeError(
                f"{type(module).__name__} is in training mode.",
                where=f"submodule {name or '(the model itself)'}",
                hint="Call model.eval() first.",
            )


def export_module(model: nn.Module, points: Sequence[Tensor]) -> ExportedProgram:
    """Run torch.export on a module with a dynamic batch dimension.

    Raises CaptureError with the first line of torch's own message.
    """
    examples = tuple(make_example_batch(model, point) for point in points)
    batch = torch.export.Dim("batch", max=MAX_BATCH_POINTS)
    shapes: Any = tuple({0: batch} for _ in examples)
    try:
        with _silence_torch_export(), torch.no_grad(), _disable_autocast(), _keep_hooks_out_of_torch():
            try:
                program = _export(model, examples, shapes)
            except Exception as problem:
                varargs = "varargs" in str(problem).lower() or _takes_varargs(model)
                if "dynamic_shapes" not in str(problem) or not varargs:
                    raise
                program = _export(model, examples, (shapes,))
            program = decompose_unknown(program)
            replace_static_constants(program)
            return program
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as problem:
        raise CaptureError(
            f"torch.export could not trace {type(model).__name__}: {_summarize_exception(problem)}",
            where=f"forward, called with inputs of shape {', '.join(str((len(e), *e.shape[1:])) for e in examples)}",
            hint=(
                "Give points without a batch dimension, and a tuple of points for several inputs."
                " forward must accept any batch size and must not branch on values."
            ),
        ) from problem


def _export(model: nn.Module, examples: tuple[Tensor, ...], shapes: Any) -> ExportedProgram:
    with use_quick_shapes():
        return torch.export.export(model, examples, dynamic_shapes=shapes, strict=False)


def decompose_unknown(program: ExportedProgram) -> ExportedProgram:
    """Remove in-place operators from a program, and decompose unknown operators where torch can.

    A program that needs neither is returned as it is, because decomposing takes most of the time of an export.
    """
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return program if all(map(_is_known, targets)) else program.run_decompositions({})


def _is_known(target: Any) -> bool:
    """Whether the reader handles a call target without decomposing it."""
    if not is_overload(target) or target._schema.is_mutable:
        return target is operator.getitem
    name = operator_name(target)
    names = (target._schema.name, name, f"{name}.{target._overloadname}")
    return any(n in RULES or n in UNSUPPORTED_REASONS or n in IGNORED_OPERATORS for n in names) or name == "sym_size"


def _takes_varargs(model: nn.Module) -> bool:
    kinds = [p.kind for p in inspect.signature(model.forward).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _summarize_exception(problem: Exception) -> str:
    """The type and the first line of an exception."""
    text = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {text[0] if text else ''}"[:300]


@contextlib.contextmanager
def _silence_torch_export() -> Generator[None]:
    """Suppress what torch.export writes to its loggers, to warnings and to standard error."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _run_quietly() -> Generator[None]:
    """Run forward passes without gradients and autocast, without what they print, and without compiling anything."""
    with contextlib.ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_silence_torch_export())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_disable_autocast())
        yield


@contextlib.contextmanager
def _keep_hooks_out_of_torch() -> Generator[None]:
    """Keep hooks of all modules from being called for the modules that torch.export puts around the user's."""
    saved = [(hooks, dict(hooks)) for hooks in GLOBAL_HOOKS if hooks]
    for hooks, originals in saved:
        hooks.update({key: _skip_modules_of_export(hook) for key, hook in originals.items() if callable(hook)})
    try:
        yield
    finally:
        for hooks, originals in saved:
            hooks.clear()
            hooks.update(originals)


def _skip_modules_of_export(hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        is_internal = type(module).__module__.startswith(INTERNAL_PACKAGES)
        return None if is_internal else hook(module, *args, **kwargs)

    return call


@contextlib.contextmanager
def _disable_autocast() -> Generator[None]:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield
