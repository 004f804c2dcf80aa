"""The checked arguments of an attribution call: lines, targets, and the model with its additional arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypedDict

import torch
from torch import Tensor, nn

from ..errors import CaptureError, LineError
from ..fp_context import full_precision
from ..lines import Lines, as_points, check_shapes
from ..network import Network, unwrap_model
from ..network.outputs import describe_outputs
from ..options import check_count, check_seconds, select_device
from ..progress import ProgressCallback
from .argument_errors import AttributionArgumentError, AttributionLineError
from .refusals import explain_refusals

Tensors: TypeAlias = Tensor | tuple[Tensor, ...]
ModelLike: TypeAlias = Any  # a module, any callable of batches, or a Network
CaptureFunction: TypeAlias = Callable[[ModelLike, Sequence[Tensor], torch.device], Network]
BATCHED = object()  # stands for a batched tensor among the additional arguments
MAX_EVALUATED_EXAMPLES = 256  # in one batch


class AttributionKeywords(TypedDict, total=False):
    """Keyword arguments of ``attribute`` that captum does not have."""

    device: torch.device | str | None  # where to compute; default: where the inputs are
    memory: int | None  # bytes of the working set; default: a share of the free memory
    progress: bool | ProgressCallback  # True shows a bar; a function is called with the share done and the pieces
    max_gradients: int | None  # with tol: stop after so many gradients of an example
    seconds: float | None  # with tol: stop after so many seconds
    output: str | int | None  # which output to attribute, by name or index, if the model returns several


@dataclass(frozen=True)
class AttributionOptions:
    """The `AttributionKeywords` of one call, checked."""

    device: torch.device | str | None = None
    memory: int | None = None
    progress: bool | ProgressCallback = False
    max_gradients: int | None = None
    seconds: float | None = None
    output: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", check_count("memory", self.memory))
        object.__setattr__(self, "max_gradients", check_count("max_gradients", self.max_gradients))
        object.__setattr__(self, "seconds", check_seconds(self.seconds))


class PartialModel(nn.Module):
    """A model with its additional arguments filled in; its inputs are the remaining arguments, in order."""

    def __init__(self, model: ModelLike, inputs: int, extra: Sequence[Any], rows: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.model, self.inputs, self.extra = unwrap_model(model), inputs, list(extra)
        self.rows = list(rows)  # (*shape) each: the value of each batched argument, equal for all examples

    def forward(self, *xs: Tensor) -> Any:
        inputs, batched = xs[: self.inputs], iter(xs[self.inputs :])
        if self.rows:
            batched = iter([row[None].expand(xs[0].shape[0], *row.shape) for row in self.rows])
        return self.model(*inputs, *(next(batched) if value is BATCHED else value for value in self.extra))


@dataclass(frozen=True)
class ExampleGroup:
    """Examples that share one captured network."""

    rows: Tensor  # (rows,) indices of the examples
    model: ModelLike
    network: Network
    lines: Lines  # from the baselines to the inputs, followed by the additional arguments, which stay fixed


@dataclass(frozen=True)
class AttributionCall:
    """The examples of one call."""

    single_input: bool  # whether the inputs were one tensor rather than a tuple
    inputs: tuple[Tensor, ...]  # (n, *in) each, as given
    lines: Lines  # from the baselines to the inputs, in float64
    extra_args: tuple[Any, ...]  # additional arguments, with BATCHED in place of the batched ones
    batched_args: tuple[Tensor, ...]  # (n, *shape) each
    device: torch.device
    model: ModelLike = None  # with one output only, if it returns a dict or a tuple of which one is meant
    output: str | int | None = None  # which output is meant, if the model returns several and has names for them

    @property
    def change(self) -> tuple[Tensor, ...]:
        """Inputs minus baselines, (n, *in) each."""
        return tuple(b - a for a, b in zip(self.lines.starts, self.lines.ends, strict=True))

    def groups(self, model: ModelLike, capture: CaptureFunction) -> Iterator[ExampleGroup]:
        """Yield all examples with one network, or one group for each value of the batched arguments.

        Groups are needed where the model is not piecewise linear in a batched argument, such as a mask.
        """
        only_batched = all(value is BATCHED for value in self.extra_args)
        whole = model if only_batched else PartialModel(model, len(self.inputs), self.extra_args)
        try:
            fixed = as_points(self.batched_args, "additional_forward_args")
            lines = Lines((*self.lines.starts, *fixed), (*self.lines.ends, *fixed))
            group = self._group(torch.arange(len(lines)), whole, lines, capture)
        except (CaptureError, LineError):
            if not self.batched_args or isinstance(model, Network) or not len(self.lines):
                raise
        else:
            yield group
            return
        for rows in group_equal_rows(self.batched_args):
            values = [value[rows[0]] for value in self.batched_args]
            partial = PartialModel(model, len(self.inputs), self.extra_args, values)
            starts, ends = (tuple(t[rows] for t in side) for side in (self.lines.starts, self.lines.ends))
            yield self._group(rows, partial, Lines(starts, ends), capture)

    def _group(self, rows: Tensor, model: ModelLike, lines: Lines, capture: CaptureFunction) -> ExampleGroup:
        with full_precision(kernels=False), explain_refusals():
            network = capture(model, example_points(lines), self.device)
        check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
        return ExampleGroup(rows, model, network, lines.to(self.device, torch.float64))

    def cast_like_input(self, result: Tensor, index: int = 0) -> Tensor:
        """Convert a result to the precision and the device of an input."""
        x = self.inputs[index]
        return result.to(x.device, x.dtype if x.is_floating_point() else torch.get_default_dtype())

    def shape_like_inputs(self, results: Sequence[Tensor]) -> Tensors:
        """Return results in the form of the inputs: one tensor or a tuple, in their precision and on their device."""
        cast = tuple(self.cast_like_input(result, i) for i, result in enumerate(results))
        return cast[0] if self.single_input else cast


def example_points(lines: Lines) -> list[Tensor]:
    """Return one point for each input, from which a capture learns the shapes."""
    return [t[0] if len(t) else t.new_zeros(t.shape[1:]) for t in lines.starts]


def parse_call(inputs: Any, baselines: Any, extra: Any, device: torch.device | str | None) -> AttributionCall:
    """Check the arguments of a call.

    Args:
        inputs: A tensor (n, *in), or a tuple of tensors.
        baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; None for zero.
        extra: The additional arguments of the model, a tuple if there are several; None for none.
        device: Where to compute; None for the device of the inputs.

    Raises LineError for inputs or baselines that do not fit, ArgumentError for a device that cannot be used.
    """
    single_input = not isinstance(inputs, tuple)
    given: tuple[Any, ...] = (inputs,) if single_input else inputs
    with _line_errors():
        tensors = tuple(x if isinstance(x, Tensor) else as_points((x,), "inputs")[0] for x in given)
    if not tensors or any(x.dim() == 0 for x in tensors) or len({len(x) for x in tensors}) > 1:
        raise AttributionLineError(
            "The number of examples is missing or differs between inputs.",
            where="argument inputs",
            hint="Give tensors of shape (n, *in), a tuple of them for several inputs.",
        )
    ends = as_points(tensors, "inputs")
    several: tuple[Any, ...] = baselines if isinstance(baselines, tuple) else (baselines,)
    several = several * len(ends) if baselines is None else several
    if len(several) != len(ends):
        raise AttributionLineError(
            f"There are {len(ends)} inputs and {len(several)} baselines.",
            where="argument baselines",
            hint="Give a tuple with one baseline for each input, or leave them out for zero.",
        )
    starts = tuple(_parse_baseline(b, x) for b, x in zip(several, ends, strict=True))
    values: tuple[Any, ...] = () if extra is None else extra if isinstance(extra, tuple) else (extra,)
    is_batched = [isinstance(v, Tensor) and v.dim() > 0 and len(v) == len(ends[0]) for v in values]
    return AttributionCall(
        single_input=single_input,
        inputs=tensors,
        lines=Lines(starts, ends),
        extra_args=tuple(BATCHED if b else v for v, b in zip(values, is_batched, strict=True)),
        batched_args=tuple(v.detach() for v, b in zip(values, is_batched, strict=True) if b),
        device=select_device(None, tensors[0].device if device is None else device),
    )


@contextmanager
def _line_errors() -> Generator[None]:
    """Raise LineErrors of points as AssertionErrors too."""
    try:
        yield
    except LineError as error:
        raise AttributionLineError(error.problem, where=error.where, hint=error.hint) from None


def _parse_baseline(baseline: Any, x: Tensor) -> Tensor:  # (n, *in)
    with _line_errors():
        (point,) = as_points((0.0 if baseline is None else baseline,), "baselines")
    if point.dim() and tuple(point.shape) not in (tuple(x.shape), (1, *x.shape[1:])):
        raise AttributionLineError(
            f"A baseline has shape {tuple(point.shape)}, its input {tuple(x.shape)}.",
            where="argument baselines",
            hint=f"Give a number, or a tensor of shape {tuple(x.shape)} or {(1, *x.shape[1:])}.",
        )
    return point.expand(x.shape).contiguous()


def group_equal_rows(values: Sequence[Tensor]) -> list[Tensor]:  # (n, *shape) each -> (rows,) each
    """Group the examples with equal values."""
    flat = torch.cat([v.reshape(len(v), -1).cpu().to(torch.float64) for v in values], 1)
    _, number = torch.unique(flat, dim=0, return_inverse=True)
    return [torch.nonzero(number == k)[:, 0] for k in range(int(number.max()) + 1)]


def select_first_output(network: Network) -> Network:
    """Return the network with its first output only, and with all nodes: layers keep their indices."""
    return replace(
        network,
        outputs=network.outputs[:1],
        tails=network.tails[:1],
        several_outputs=False,
        output_names=(),
        device_copies={},
    )


def single_output_shape(network: Network) -> tuple[int, ...]:
    """Return the shape of the output for one example.

    Raises ArgumentError if the model returns several tensors.
    """
    if network.several_outputs:
        raise AttributionArgumentError(
            f"The model has {describe_outputs(network.list_output_names())}.",
            where="the model",
            hint="Give attribute output=, a name or an index, or put it first in the target: target=(0, 3).",
        )
    return network.nodes[network.outputs[0]].shape


def flatten_targets(target: Any, shape: tuple[int, ...], count: int) -> Tensor:  # (count,)
    """Return the flat position of each example's target in its output.

    Args:
        target: An int, a tuple of ints for outputs with several dims, None for outputs with one element, or a list or
            tensor with one target for each example.
        shape: The shape of the output for one example.
        count: The number of examples.

    Raises ArgumentError.
    """
    if isinstance(target, Tensor):
        if target.numel() != 1 and tuple(target.shape) != (count,):
            raise _target_error(f"target has shape {tuple(target.shape)}, for {count} examples", shape)
        target = target.item() if target.numel() == 1 else target.tolist()
    if isinstance(target, list):
        if len(target) != count:
            raise _target_error(f"There are {len(target)} targets for {count} examples", shape)
        return torch.tensor([_flat_position(t, shape) for t in target], dtype=torch.int64)
    return torch.full((count,), _flat_position(target, shape), dtype=torch.int64)


def _flat_position(target: Any, shape: tuple[int, ...]) -> int:
    index: tuple[Any, ...] = () if target is None else target if isinstance(target, tuple) else (target,)
    try:
        if any(isinstance(i, bool) for i in index):
            raise TypeError
        positions = [operator.index(i) for i in index]
    except TypeError:
        raise _target_error(f"target {target!r} is not a whole number or a tuple of them", shape) from None
    rest = torch.Size(shape[len(positions) :]).numel()
    if rest != 1 or len(positions) > len(shape):
        problem = "A target is missing" if target is None else f"target {target!r} does not name one element"
        raise _target_error(problem, shape)
    flat = 0
    for position, size in zip(positions, shape, strict=False):
        if not -size <= position < size:
            raise _target_error(f"target {target!r} is out of range", shape)
        flat = flat * size + position % size
    return flat


def _target_error(problem: str, shape: tuple[int, ...]) -> AttributionArgumentError:
    return AttributionArgumentError(
        f"{problem}; the output for one example has shape {shape}.",
        where="argument target",
        hint="Give an int, a tuple of ints if the output has more dims, or a list or tensor with one for each example.",
    )


def evaluate_nodes(network: Network, xs: Sequence[Tensor], nodes: Sequence[int]) -> list[Tensor]:
    """Evaluate some nodes for many examples, in batches; (n, *in) each -> (n, *shape) each."""
    with full_precision():
        parts = [
            network.evaluate([x[first : first + MAX_EVALUATED_EXAMPLES] for x in xs], nodes)
            for first in range(0, max(1, len(xs[0])), MAX_EVALUATED_EXAMPLES)
        ]
    return [torch.cat([part[i] for part in parts]) for i in nodes]


def evaluate_targets(network: Network, xs: Sequence[Tensor], targets: Tensor) -> Tensor:  # (n,)
    """Evaluate the target of each example in the first output, behind its smooth tail if it has one."""
    (values,) = evaluate_nodes(network, xs, network.outputs[:1])
    tail = network.tails[0]
    values = values if tail is None else tail.apply(values)
    return values.reshape(len(values), -1).gather(1, targets.to(values.device)[:, None])[:, 0]
