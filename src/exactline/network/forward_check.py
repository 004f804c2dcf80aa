"""Check that a forward pass is one function: it makes the same torch calls every time and at every batch size."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

from ..errors import CaptureError
from ..tolerances import SINGLE_POINT_TOLERANCES
from .call_recorder import END_OF_FORWARD, CallRecorder, RecordedCall, list_tensors, record_calls
from .shape_recorder import NeedsData, ShapeRecorder, is_plain_weight

SEVERAL_POINTS = 3  # in the larger of the two batches that are compared
MANY_POINTS = 1021  # in the largest batch, which is recorded without data; a prime is hardly a size in the model
RANDOM_PASSES = 48  # forward passes that are compared where they draw random numbers: a rare branch shows
MAX_RUN_WEIGHTS = 1 << 22  # numbers in a module whose forward pass is run on data; `preserve_state` can restore them
MAX_RUN_ELEMENTS = 1 << 15  # of an input of such a module
VALUE_TRIALS = 4  # single points that are compared by value
COMPARED_TYPES = (bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


class ForwardDifferences(NamedTuple):
    """The first difference between two forward passes, or an empty text."""

    repeated: str  # between two passes on the same batch
    single: str  # between passes on several points and on one point


class ForwardComparison(NamedTuple):
    """The recorded forward passes of a module, and how they differ."""

    differences: ForwardDifferences
    several: CallRecorder | None = None  # of a pass on `SEVERAL_POINTS`; None where the module fails
    single: CallRecorder | None = None  # of a pass on one point, likewise


def compare_forward_passes(
    model: nn.Module, examples: Sequence[Tensor], restore: Callable[[], None]
) -> ForwardComparison:
    """Compare the torch calls of a module's forward passes: twice on the same batch, then on one point of it.

    The module's state changes as in any forward pass: call this inside `preserve_state`. A module that fails on one
    point has no other function there: that is no difference.

    Args:
        model: the module.
        examples: one batch of `SEVERAL_POINTS` for each input, for the shapes, precisions and devices.
        restore: undoes what a forward pass that failed has changed.
    """
    batch = _draw_points(examples, SEVERAL_POINTS)
    for run in _list_runners(model, examples):
        try:
            first, second, *others = run(model, [batch, batch, [points[:1] for points in batch]])
        except Exception:  # noqa: BLE001  where it matters, torch.export says why the module fails
            restore()
            continue
        single = others[0] if others else None
        repeated = _find_call_difference(first.calls, second.calls, (1, 1))
        other = _find_call_difference(second.calls, single.calls, (SEVERAL_POINTS, 1)) if single else ""
        return ForwardComparison(ForwardDifferences(repeated, other), first, single)
    return ForwardComparison(ForwardDifferences("", ""))


def record_many_points(model: nn.Module, examples: Sequence[Tensor]) -> CallRecorder | None:
    """Record a forward pass on many points without data; None where it fails.

    It shows what three points do not: a slice of the first 100 points, or a loop over the points that does something
    else from the tenth on.

    Args:
        model: the module; call this inside `preserve_state`, as its state changes.
        examples: one batch for each input, for the shapes, precisions and devices.
    """
    try:
        return record_calls(model, ShapeRecorder(examples, MANY_POINTS))
    except Exception:  # noqa: BLE001  such as NeedsData
        return None


def find_random_difference(model: nn.Module, examples: Sequence[Tensor]) -> str:
    """The first difference among many forward passes on the same batch, or an empty text.

    It is for a module that draws random numbers, and may compute with them rarely. Its first pass is not compared: it
    may fill a cache.
    """
    batch = _draw_points(examples, SEVERAL_POINTS)
    for run in _list_runners(model, examples):
        with contextlib.suppress(Exception):
            _, first, *others = run(model, [batch] * (RANDOM_PASSES + 2))
            pairs = ((first.calls, other.calls) for other in others)
            return next(filter(None, (_find_call_difference(*pair, (1, 1)) for pair in pairs)), "")
    return ""


def _draw_points(examples: Sequence[Tensor], points: int) -> list[Tensor]:
    """Random points for each input, in the precision and on the device of its example batch."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(points, *e.shape[1:], generator=generator, dtype=torch.float64).to(e) for e in examples]


def _list_runners(model: nn.Module, examples: Sequence[Tensor]) -> tuple[Callable[..., list[CallRecorder]], ...]:
    """How to run the forward passes: the next way where one fails."""
    return (_run_real,) if is_small(model, examples) else (_run_shapes, _run_fake, _run_real)


def is_small(model: nn.Module, examples: Sequence[Tensor]) -> bool:
    """Whether forward passes on data are quicker than those without."""
    weights = sum(p.numel() for p in (*model.parameters(), *model.buffers()))
    return weights <= MAX_RUN_WEIGHTS and all(example[0].numel() <= MAX_RUN_ELEMENTS for example in examples)


def _run_shapes(model: nn.Module, batches: Sequence[Sequence[Tensor]]) -> list[CallRecorder]:
    """Record forward passes of common torch functions on tensors without data, for which torch imports nothing."""
    if not all(is_plain_weight(t) for t in (*model.parameters(), *model.buffers())):
        raise NeedsData
    return [record_calls(model, ShapeRecorder(batch)) for batch in batches]


def _run_fake(model: nn.Module, batches: Sequence[Sequence[Tensor]]) -> list[CallRecorder]:
    """Record forward passes on tensors without data, which take little memory."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return _run_real(model, [[mode.from_tensor(t) for t in batch] for batch in batches])


def _run_real(model: nn.Module, batches: Sequence[Sequence[Tensor]]) -> list[CallRecorder]:
    *repeated, single = batches
    records = [record_calls(model, CallRecorder(batch)) for batch in repeated]
    with contextlib.suppress(Exception):
        records.append(record_calls(model, CallRecorder(single)))
    return records


def _find_call_difference(one: list[RecordedCall], two: list[RecordedCall], points: Sequence[int]) -> str:
    for i, (call, other) in enumerate(zip(one, two, strict=False)):
        if call.name != other.name:
            return f"call {i + 1} of a torch function is {call.name}, then {other.name}"
        is_same = (call.sources, call.is_current) == (other.sources, other.is_current)
        if not is_same or not _same(call.arguments, other.arguments, points):
            is_end = call.name == END_OF_FORWARD
            return "other values are returned" if is_end else f"call {i + 1}, of {call.name}, gets other arguments"
    return ""


def _same(one: Any, two: Any, points: Sequence[int]) -> bool:
    """Whether arguments of two calls agree, where sizes may be multiples of the numbers of points."""
    if type(one) is not type(two):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(_same(a, b, points) for a, b in zip(one, two, strict=True))
    if isinstance(one, Tensor):
        return one is two or _same_tensors(one, two, points)
    if isinstance(one, np.ndarray):
        return one.shape == two.shape and bool(np.array_equal(one, two, equal_nan=one.dtype.kind in "fc"))
    if isinstance(one, slice):
        return _same([one.start, one.stop, one.step], [two.start, two.stop, two.step], points)
    if isinstance(one, COMPARED_TYPES):
        return one == two
    if isinstance(one, int):
        return one == two or one * points[1] == two * points[0]
    if isinstance(one, (float, complex)):
        return one == two or (one != one and two != two)
    return True  # functions, modules and the like


def _same_tensors(one: Tensor, two: Tensor, points: Sequence[int]) -> bool:
    if one.dim() != two.dim() or one.dtype != two.dtype:
        return False
    if not all(_same(a, b, points) for a, b in zip(map(int, one.shape), map(int, two.shape), strict=True)):
        return False
    if isinstance(one, FakeTensor) or isinstance(two, FakeTensor):
        constants: list[Any] = [getattr(t, "constant", None) for t in (one, two)]
        if any(c is None for c in constants):
            return True
        one, two = constants
    if one.shape != two.shape or one.is_meta:
        return True
    with contextlib.suppress(RuntimeError):  # sparse tensors and the like
        return bool(torch.equal(one.detach(), two.detach()) or torch.isnan(one).any())
    return True


def differs_on_single_points(model: nn.Module, network: Callable[..., Any], examples: Sequence[Tensor]) -> bool:
    """Whether a module computes something else on a batch of one point than the network does.

    Args:
        model: the module.
        network: captured from it; called with ``tail=True``, it returns the outputs of the whole model.
        examples: one batch for each input, for the shapes, precisions and devices.
    """
    points = _draw_points(examples, VALUE_TRIALS)
    with torch.no_grad():
        return any(
            differs_in_value(model, functools.partial(network, tail=True), [p[i : i + 1] for p in points])
            for i in range(VALUE_TRIALS)
        )


def differs_when_called(
    model: nn.Module, network: Callable[..., Any], program: ExportedProgram | None, examples: Sequence[Tensor]
) -> bool:
    """Whether a module computes something else when it is called, with gradients, than torch.export has traced.

    The network computes in double precision, so a module that loses much to rounding may differ from it: the traced
    program, which rounds as the module does, decides then, if there is one.
    """
    batch = _draw_points(examples, SEVERAL_POINTS)
    with torch.enable_grad():
        is_different = differs_in_value(model, functools.partial(network, tail=True), batch)
        return is_different and (program is None or differs_in_value(model, program.module(), batch))


def differs_in_value(model: nn.Module, other: Callable[..., Any], batch: Sequence[Tensor]) -> bool:
    """Whether a module computes something else on a batch than another function does.

    A module that fails on the batch has no other function there; another function that fails differs.
    """
    tolerance = SINGLE_POINT_TOLERANCES.get(batch[0].dtype, SINGLE_POINT_TOLERANCES[torch.float32])
    try:
        theirs = list_tensors(model(*[t.clone() for t in batch]))
    except Exception:  # noqa: BLE001
        return False
    try:
        ours = list_tensors(other(*[t.clone() for t in batch]))
    except Exception:  # noqa: BLE001  such as a traced program whose constants have been replaced
        return True
    for mine, value in zip(ours, theirs, strict=False):
        expected = value.detach().to("cpu", torch.float64).flatten()
        if expected.numel() != mine.numel():
            return True
        finite = expected[expected.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
        found = mine.detach().to("cpu", torch.float64).flatten()
        if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return True
    return False


def raise_not_repeatable(difference: str) -> None:
    """Raise CaptureError for a module whose second forward pass differs from its first."""
    raise CaptureError(
        "forward is not one function of its input: it computes something else each time.",
        where=f"forward: {difference}",
        hint="Remove random numbers, counters and other state from forward, or make them inputs of the model.",
    )


def raise_reads_batch_size(difference: str) -> None:
    """Raise CaptureError for a module that treats a batch of one point in its own way."""
    raise CaptureError(
        "forward computes something else for a batch of one point than for a larger batch.",
        where=f"forward: {difference}",
        hint="forward must treat every point alike, whatever the size of the batch: do not branch on x.shape[0].",
    )


def raise_traced_differently() -> None:
    """Raise CaptureError for a module that does something else while torch.export traces it."""
    raise CaptureError(
        "forward computes something else when it is called than when torch.export traces it.",
        where="forward, called with random points",
        hint=(
            "Do not branch on torch.compiler.is_compiling(), on torch.is_grad_enabled() or on the type of a tensor,"
            " nor use what Python computes anew for each call, such as id()."
        ),
    )
