"""A model of any kind as one float64 function of batches of points: captured, from a file, or a black box."""

from __future__ import annotations

import contextlib
import copy
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import ArgumentError, CaptureError, ExactlineError, TrainingModeError
from ..fp_context import full_precision, settings_lock
from ..network import Network, unwrap_model
from ..network.capture import check_eval_mode, check_one_function, decompose_unknown, export_module
from ..network.fingerprint import Fingerprint, fingerprint_module
from ..network.prefix import Prefix, read_prefix
from ..network.preserve import preserve_state
from ..network.smooth_network import SmoothNetwork
from ..network.traced_node import is_overload
from .kinks import draws_random_numbers
from .program import ProgramRunner, as_batches, flatten_outputs
from .tolerances import REPEAT_TOLERANCE

NO_PREFIX = Prefix(None, is_whole=False)
MAX_CACHED_MODELS = 8  # captures of one module: one for each input shape and device
_captured_models: weakref.WeakKeyDictionary[nn.Module, _CapturedModels] = weakref.WeakKeyDictionary()


@dataclass
class _CapturedModels:
    """The captures of one module while its fingerprint stayed the same."""

    state: Fingerprint
    models: dict[Any, SmoothModel] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SmoothModel:
    """A model that can be evaluated in float64 at any points, with what is known of its graph.

    >>> model = prepare_model(nn.GELU(), [torch.zeros(2)], torch.device("cpu"))
    >>> model.evaluate([torch.zeros(3, 2).double()])[0].shape
    torch.Size([3, 2])
    """

    call: Callable[..., Any]  # takes one batch (n, *in) for each input
    prefix: Prefix  # the piecewise-linear part, restricted exactly
    device: torch.device
    kind: str  # "captured", "file" or "black box"
    output: str | int | None = None  # the only output to keep, if the model has several
    output_names: tuple[str, ...] = ()

    def evaluate(self, points: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Evaluate points (n, *in); returns each output, (n, *out).

        Raises CaptureError for a model that does not return one row for each point, or fails in float64.
        """
        batches = as_batches(points, self.device)
        try:
            with _plain_kernels():
                out = self.call(*batches)
        except ExactlineError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError) as problem:
            summary = (str(problem).strip().splitlines() or [""])[0][:300]
            raise CaptureError(
                f"The model fails on a batch in float64: {type(problem).__name__}: {summary}",
                where=f"forward, called with inputs of shape {', '.join(str(tuple(b.shape)) for b in batches)}",
                hint="Give points without a batch dimension. Keep tensors of the model in parameters or buffers.",
            ) from problem
        return self._select(out, len(points[0]))

    def _select(self, out: Any, count: int) -> tuple[Tensor, ...]:
        outputs: tuple[Any, ...] = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if any(not isinstance(o, Tensor) for o in outputs) or not outputs:
            raise CaptureError(
                f"The model returns {type(out).__name__}, not a tensor or a tuple of tensors.",
                where="forward",
                hint="Wrap it in a module that returns one tensor or a tuple.",
            )
        if self.output is not None:
            outputs = (outputs[self._output_index(len(outputs))],)
        if any(o.dim() == 0 or len(o) != count for o in outputs):
            raise CaptureError(
                f"The model does not return one row for each of {count} points.",
                where=f"outputs of shape {', '.join(str(tuple(o.shape)) for o in outputs)}",
                hint="The first dimension of inputs and outputs must be the batch; losses need reduction='none'.",
            )
        return tuple(o.to(torch.float64) for o in outputs)

    def _output_index(self, count: int) -> int:
        names = self.output_names or tuple(f"output_{i}" for i in range(count))
        if self.output in names:
            return names.index(self.output)  # pyright: ignore[reportArgumentType]
        if isinstance(self.output, int) and not isinstance(self.output, bool) and 0 <= self.output < count:
            return self.output
        raise ArgumentError(
            f"There is no output {self.output!r}: the model has {count}.",
            where="argument output",
            hint=f"Give a number from 0 to {count - 1}.",
        )


@contextlib.contextmanager
def _plain_kernels() -> Generator[None]:
    """Use kernels made of single operators, so that kinks and rounding inside of attention and encoders are seen."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def prepare_model(
    model: Any,
    points: Sequence[Tensor],  # (*in) each
    device: torch.device,
    output: str | int | None = None,
) -> SmoothModel:
    """Capture a model if torch.export can trace it; else take a float64 copy of it as a black box.

    Raises TrainingModeError, CaptureError for a model that is not a function of each point by itself.
    """
    if isinstance(model, Network):
        moved = model.to(device, torch.float64)
        prefix = Prefix(model, is_whole=not any(model.tails), has_tail=any(model.tails))
        return SmoothModel(lambda *xs: moved(*xs, tail=True), prefix, device, "file", output, model.list_output_names())
    if isinstance(model, SmoothNetwork):
        return SmoothModel(model.to(device), model.prefix, device, "file", output, model.output_names)
    if isinstance(model, ExportedProgram):
        return _from_program(decompose_unknown(model), device, output)
    module = unwrap_model(model)
    check_eval_mode(module)
    key = (tuple(tuple(p.shape) for p in points), device)
    with full_precision(kernels=False), settings_lock:
        state = fingerprint_module(module)
        captured = _captured_models.get(module)
        if captured is None or not captured.state.proves_unchanged(state) or len(captured.models) >= MAX_CACHED_MODELS:
            captured = _captured_models[module] = _CapturedModels(state)
        if key not in captured.models:
            captured.models[key] = _capture(module, points, device)
        return replace(captured.models[key], output=output)


def _capture(module: nn.Module, points: Sequence[Tensor], device: torch.device) -> SmoothModel:
    with preserve_state(module) as state:
        program = _try_export(module, points)
        if isinstance(program, ExportedProgram) and not _draws(program):  # an inspection names the node that draws
            state.restore()
            runner = ProgramRunner(program, device)
            check_one_function(
                module,
                points,
                state,
                program,
                runner.evaluate_widened,
                lambda again: _is_same_function(runner, ProgramRunner(again, device), points),
            )
    if isinstance(program, CaptureError):
        return _as_black_box(module, device, None, program)
    try:
        return _from_program(program, device, None)
    except TrainingModeError:
        raise
    except CaptureError as problem:
        return _as_black_box(module, device, None, problem)


def _try_export(module: nn.Module, points: Sequence[Tensor]) -> ExportedProgram | CaptureError:
    try:
        return export_module(module, points)
    except TrainingModeError:
        raise
    except CaptureError as problem:
        return problem


def _draws(program: ExportedProgram) -> bool:
    """Whether a node of a program draws random numbers."""
    calls = [n for n in program.graph.nodes if n.op == "call_function" and is_overload(n.target)]
    return any(draws_random_numbers(n.target, n.args, n.kwargs) for n in calls)


def _is_same_function(one: ProgramRunner, two: ProgramRunner, points: Sequence[Tensor]) -> bool:
    """Whether two captures of a module agree at a random point."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(2, *p.shape, generator=generator, dtype=torch.float64).to(one.device) for p in points]
    with torch.no_grad():
        values = [flatten_outputs(runner(*batches)) for runner in (one, two)]
    return len(values[0]) == len(values[1]) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=REPEAT_TOLERANCE, atol=0.0, equal_nan=True)
        for a, b in zip(*values, strict=True)
    )


def _from_program(program: ExportedProgram, device: torch.device, output: str | int | None) -> SmoothModel:
    spec = program.call_spec.out_spec
    names = [o.arg.name for o in program.graph_signature.output_specs if o.kind.name == "USER_OUTPUT"]
    is_tuple = spec is not None and spec.type in (tuple, list)
    runner = ProgramRunner(program, device)
    return SmoothModel(runner, read_prefix(program), device, "captured", output, tuple(names) if is_tuple else ())


def _as_black_box(
    module: nn.Module, device: torch.device, output: str | int | None, refusal: CaptureError
) -> SmoothModel:
    """A float64 copy of a module that cannot be captured."""
    try:
        clone = copy.deepcopy(module).to(device, torch.float64)
    except Exception as problem:  # anything may happen in a module's own copy
        raise CaptureError(
            f"{refusal.problem} It cannot be copied either: {type(problem).__name__}.",
            where=refusal.where,
            hint="Make forward traceable, or the module copyable with copy.deepcopy.",
        ) from problem
    for part in clone.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(part, name, value.detach().to(device, torch.float64))
    return SmoothModel(clone, NO_PREFIX, device, "black box", output)
