"""What a call for attributions asks, checked: lines, targets, and the model with what is held fixed."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, CaptureError, LineError
from ..fp_context import full_precision
from ..lines import Lines, as_points, check_shapes
from ..network import Network, unwrapped
from ..options import select_device

Model: TypeAlias = Any  # a module, any callable, or a Network
Capture: TypeAlias = Callable[[Model, Sequence[Tensor], torch.device], Network]
SLOT = object()  # stands for a batched tensor among the additional arguments
CHUNK = 256  # examples evaluated at once
_told: set[str] = set()


class ExactWarning(UserWarning):
    """An option of a sampling method was given, and exact attributions have no use for it.

    >>> from exactline.attr import IntegratedGradients
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ExactWarning)  # a script made for captum may go on to say n_steps
    ...     IntegratedGradients(torch.nn.ReLU()).attribute(torch.tensor([[3.0]]), target=0, n_steps=50)
    tensor([[3.]])
    """


def needless(**options: Any) -> None:
    """Say once per process that an option makes no difference."""
    for name, value in options.items():
        if value is not None and name not in _told:
            _told.add(name)
            warnings.warn(f"{name} makes no difference: the attributions are exact.", ExactWarning, stacklevel=3)


class Closed(nn.Module):
    """A model with some of its arguments filled in; the rest are its inputs, in order."""

    def __init__(self, model: Model, inputs: int, extra: Sequence[Any], rows: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.model, self.inputs, self.extra = unwrapped(model), inputs, list(extra)
        self.rows = list(rows)  # (*shape) each: what all examples have in place of a batched argument

    def forward(self, *xs: Tensor) -> Any:
        first, given = xs[: self.inputs], iter(xs[self.inputs :])
        if self.rows:
            given = iter([row[None].expand(xs[0].shape[0], *row.shape) for row in self.rows])
        return self.model(*first, *(next(given) if value is SLOT else value for value in self.extra))


@dataclass(frozen=True)
class Group:
    """Examples that one network answers for."""

    rows: Tensor  # which examples
    model: Model
    network: Network
    lines: Lines  # from the baselines to the inputs; what is held fixed comes last


@dataclass(frozen=True)
class Asked:
    """The examples of one call."""

    single: bool  # whether the inputs were one tensor rather than a tuple
    inputs: tuple[Tensor, ...]  # (n, *in) each, as given
    lines: Lines  # from the baselines to the inputs, in double precision
    extra: tuple[Any, ...]  # additional arguments, SLOT for the batched ones
    batched: tuple[Tensor, ...]  # (n, *shape) each
    device: torch.device

    @property
    def change(self) -> tuple[Tensor, ...]:
        """Inputs less baselines, (n, *in) each."""
        return tuple(b - a for a, b in zip(self.lines.starts, self.lines.ends, strict=True))

    def groups(self, model: Model, capture: Capture) -> Iterator[Group]:
        """All examples with one network or, where batched arguments would bend it, one for each of their values."""
        plain = all(value is SLOT for value in self.extra)
        whole = model if plain else Closed(model, len(self.inputs), self.extra)
        try:
            fixed = as_points(self.batched, "additional_forward_args")
            lines = Lines((*self.lines.starts, *fixed), (*self.lines.ends, *fixed))
            found = self._group(torch.arange(len(lines)), whole, lines, capture)
        except (CaptureError, LineError):
            if not self.batched or isinstance(model, Network) or not len(self.lines):
                raise
        else:
            yield found
            return
        for rows in _alike(self.batched):
            held = [value[rows[0]] for value in self.batched]
            closed = Closed(model, len(self.inputs), self.extra, held)
            starts, ends = (tuple(t[rows] for t in side) for side in (self.lines.starts, self.lines.ends))
            yield self._group(rows, closed, Lines(starts, ends), capture)

    def _group(self, rows: Tensor, model: Model, lines: Lines, capture: Capture) -> Group:
        with full_precision(kernels=False):
            network = capture(model, points(lines), self.device)
        check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
        return Group(rows, model, network, lines.to(self.device, torch.float64))

    def given_back(self, found: Tensor, like: int = 0) -> Tensor:
        """A result in the precision and on the device of an input."""
        x = self.inputs[like]
        return found.to(x.device, x.dtype if x.is_floating_point() else torch.get_default_dtype())


def points(lines: Lines) -> list[Tensor]:
    """One point for each input: what a capture learns the shapes from."""
    return [t[0] if len(t) else t.new_zeros(t.shape[1:]) for t in lines.starts]


def asked(inputs: Any, baselines: Any, extra: Any, device: torch.device | str | None) -> Asked:
    """Check the arguments of a call.

    Raises LineError where inputs or baselines cannot be used, ArgumentError where the device cannot.
    """
    single = not isinstance(inputs, tuple)
    given: tuple[Any, ...] = (inputs,) if single else inputs
    tensors = tuple(x if isinstance(x, Tensor) else as_points((x,), "inputs")[0] for x in given)
    if not tensors or any(x.dim() == 0 for x in tensors) or len({len(x) for x in tensors}) > 1:
        raise LineError(
            "The number of examples is missing or differs between inputs.",
            where="argument inputs",
            hint="Give tensors of shape (n, *in), a tuple of them for several inputs.",
        )
    ends = as_points(tensors, "inputs")
    several: tuple[Any, ...] = baselines if isinstance(baselines, tuple) else (baselines,)
    several = several * len(ends) if baselines is None else several
    if len(several) != len(ends):
        raise LineError(
            f"There are {len(ends)} inputs and {len(several)} baselines.",
            where="argument baselines",
            hint="Give a tuple with one baseline for each input, or leave them out for zero.",
        )
    starts = tuple(_baseline(b, x) for b, x in zip(several, ends, strict=True))
    values: tuple[Any, ...] = () if extra is None else extra if isinstance(extra, tuple) else (extra,)
    moving = [isinstance(v, Tensor) and v.dim() > 0 and len(v) == len(ends[0]) for v in values]
    slots = tuple(SLOT if m else v for v, m in zip(values, moving, strict=True))
    batched = tuple(v.detach() for v, m in zip(values, moving, strict=True) if m)
    place = select_device(None, tensors[0].device if device is None else device)
    return Asked(single, tensors, Lines(starts, ends), slots, batched, place)


def _baseline(baseline: Any, x: Tensor) -> Tensor:
    (found,) = as_points((0.0 if baseline is None else baseline,), "baselines")
    if found.dim() and tuple(found.shape) not in (tuple(x.shape), (1, *x.shape[1:])):
        raise LineError(
            f"A baseline has shape {tuple(found.shape)}, its input {tuple(x.shape)}.",
            where="argument baselines",
            hint=f"Give a number, or a tensor of shape {tuple(x.shape)} or {(1, *x.shape[1:])}.",
        )
    return found.expand(x.shape).contiguous()


def _alike(values: Sequence[Tensor]) -> list[Tensor]:
    """Examples that have the same of every value, together."""
    flat = torch.cat([v.reshape(len(v), -1).cpu().to(torch.float64) for v in values], 1)
    _, number = torch.unique(flat, dim=0, return_inverse=True)
    return [torch.nonzero(number == k)[:, 0] for k in range(int(number.max()) + 1)]


def one_output(network: Network) -> tuple[int, ...]:
    """The shape of the output for one example; a model that returns several tensors is refused."""
    if network.several_outputs:
        raise ArgumentError(
            f"The model returns {len(network.outputs)} tensors in a tuple.",
            where="the model",
            hint="Attributions are of one tensor: wrap the model in a function that returns it.",
        )
    return network.nodes[network.outputs[0]].shape


def flat_targets(target: Any, shape: tuple[int, ...], count: int) -> Tensor:
    """Which element of its output every example asks for, (n,): a flat position in an output of this shape."""
    if isinstance(target, Tensor):
        if target.numel() != 1 and tuple(target.shape) != (count,):
            raise _wrong(f"target has shape {tuple(target.shape)}, for {count} examples", shape)
        target = target.item() if target.numel() == 1 else target.tolist()
    if isinstance(target, list):
        if len(target) != count:
            raise _wrong(f"There are {len(target)} targets for {count} examples", shape)
        return torch.tensor([_position(t, shape) for t in target], dtype=torch.int64)
    return torch.full((count,), _position(target, shape), dtype=torch.int64)


def _position(target: Any, shape: tuple[int, ...]) -> int:
    index: tuple[Any, ...] = () if target is None else target if isinstance(target, tuple) else (target,)
    try:
        if any(isinstance(i, bool) for i in index):
            raise TypeError
        places = [operator.index(i) for i in index]
    except TypeError:
        raise _wrong(f"target {target!r} is not a whole number or a tuple of them", shape) from None
    rest = torch.Size(shape[len(places) :]).numel()
    if rest != 1 or len(places) > len(shape):
        problem = "A target is missing" if target is None else f"target {target!r} does not name one element"
        raise _wrong(problem, shape)
    flat = 0
    for place, size in zip(places, shape, strict=False):
        if not -size <= place < size:
            raise _wrong(f"target {target!r} is out of range", shape)
        flat = flat * size + place % size
    return flat


def _wrong(problem: str, shape: tuple[int, ...]) -> ArgumentError:
    return ArgumentError(
        f"{problem}; the output for one example has shape {shape}.",
        where="argument target",
        hint="Give an int, or a tuple of ints where an output has more dims; a list or tensor of them, one an example.",
    )


def values_at(network: Network, xs: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    """Values of some nodes for many examples, (n, *shape) each."""
    with full_precision():
        parts = [
            network.evaluate([x[first : first + CHUNK] for x in xs], places)
            for first in range(0, max(1, len(xs[0])), CHUNK)
        ]
    return [torch.cat([part[i] for part in parts]) for i in places]


def outputs_at(network: Network, xs: Sequence[Tensor], targets: Tensor) -> Tensor:
    """The output that every example asks for, after the smooth tail if there is one; (n,)."""
    (values,) = values_at(network, xs, network.outputs[:1])
    tail = network.tails[0]
    values = values if tail is None else tail.apply(values)
    return values.reshape(len(values), -1).gather(1, targets.to(values.device)[:, None])[:, 0]
