"""The questions: restrict one line, many, a polyline, or stream the parts of one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .engines.assemble import Collected, Collector, linked
from .engines.dense.sweep import Limits, Part
from .engines.dense.workspace import free_on
from .engines.select import Choice
from .errors import ArgumentError, LineError
from .fp_context import precise
from .lines import Lines, Point, lines_of, points_of, shape_checked
from .network import Network, as_network
from .numerics.plan import plan
from .progress import Report, reporter
from .results.restriction import Restriction
from .results.restrictions import Restrictions

CPU_SHARE, GPU_SHARE = 4, 2  # one part in so many of the free memory
CPU_MOST = 256 << 20  # more does not make a sweep faster
EARLY, SOON = 256, 64  # points in a part when a limit may stop the sweep: the first parts must come soon


@dataclass(frozen=True)
class _Options:
    """What the caller asked for, checked."""

    dtype: torch.dtype
    device: torch.device
    memory: int | None
    values: bool
    progress: bool | Report
    rewrite: bool
    until: str | None
    max_breaks: int | None
    seconds: float | None
    engine: str = "auto"


def restrict(
    model: Any,
    Q: Point,
    R: Point,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    progress: bool | Report = False,
    rewrite: bool = True,
    until: str | None = None,
    max_breaks: int | None = None,
    seconds: float | None = None,
    engine: str = "auto",
) -> Restriction:
    """Every break of a piecewise-linear network on the line from Q to R, and its values there.

    ``model`` is a module in eval mode, an exported program or a Network; Q and R are points without a batch
    dimension, tuples of them where the model takes several inputs. ``memory`` bounds the working set in bytes,
    ``values=False`` keeps only alphas and births, ``until`` names a submodule whose output is wanted,
    ``max_breaks`` and ``seconds`` end the sweep early, ``rewrite=False`` keeps ReLU and maximum apart. ``engine`` is
    "dense" (values at every break), "local" (breaks touch only their receptive field) or "auto"; ``line.engine`` says
    which ran and why. "ray" cuts the line over the processors of a Ray cluster, ``memory`` is then that of each.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [3.0, 2.0])
    >>> line.alphas.tolist()
    [0.0, 0.25, 1.0]

    Raises LineError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    if engine == "ray":
        from .scale.split_line import restrict_cut

        given: dict[str, Any] = {"dtype": dtype, "device": device, "memory": memory, "values": values}
        given |= {"progress": progress, "rewrite": rewrite, "until": until}
        return restrict_cut(model, Q, R, max_breaks=max_breaks, seconds=seconds, **given)
    lines = lines_of(Q, R, ("Q", "R"), many=False)
    options = _options(model, dtype, device, memory, values, progress, rewrite, until, max_breaks, seconds, engine)
    return _restricted(model, lines, options)[0]


def restrict_many(
    model: Any,
    starts: Point,
    ends: Point,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    progress: bool | Report = False,
    rewrite: bool = True,
    until: str | None = None,
    max_breaks: int | None = None,
    seconds: float | None = None,
    engine: str = "auto",
) -> Restrictions:
    """Many lines swept together; starts and ends are (lines, *in), or tuples of such.

    >>> import exactline as xl
    >>> [len(line) for line in xl.restrict_many(torch.nn.ReLU(), [[-1.0], [1.0]], [[1.0], [2.0]])]
    [2, 1]
    """
    lines = lines_of(starts, ends, ("starts", "ends"), many=True)
    options = _options(model, dtype, device, memory, values, progress, rewrite, until, max_breaks, seconds, engine)
    return _restricted(model, lines, options)


def restrict_parts(
    model: Any,
    starts: Point,
    ends: Point,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    rewrite: bool = True,
    until: str | None = None,
    max_breaks: int | None = None,
    seconds: float | None = None,
    engine: str = "auto",
) -> tuple[Choice, Iterator[Part]]:
    """The answer of ``restrict_many`` in parts, each as soon as it is final and in bounded memory.

    Joined, the parts are that answer; the choice of an engine tells at the end which it was, and its limits why the
    sweep was stopped early, if it was.

    >>> choice, parts = restrict_parts(torch.nn.ReLU(), [[-1.0], [1.0]], [[1.0], [2.0]], memory=1)
    >>> [(part.line.tolist(), part.alphas.tolist()) for part in parts], choice.limits.stopped
    ([([0, 0], [0.0, 0.5]), ([0], [1.0]), ([1, 1], [0.0, 1.0])], '')
    """
    lines = lines_of(starts, ends, ("starts", "ends"), many=True)
    options = _options(model, dtype, device, memory, values, False, rewrite, until, max_breaks, seconds, engine)
    network, moved = _networks(model, lines, options)
    choice = _choice(moved, options)
    shapes = [network.nodes[i].shape for i in network.outputs] if values else None
    collector = Collector(len(lines), shapes, options.max_breaks, choice.limits)
    return choice, _precisely(collector.settled(_swept(choice, lines, options)))


def _precisely(parts: Iterator[Part]) -> Iterator[Part]:
    while True:
        with precise():
            part = next(parts, None)
        if part is None:
            return
        yield part


def restrict_path(model: Any, points: Point, **options: Any) -> Restrictions:
    """A polyline: the lines between neighbouring points (points, *in), swept together.

    >>> import exactline as xl
    >>> [len(line) for line in xl.restrict_path(torch.nn.ReLU(), [[-1.0], [1.0], [2.0]])]
    [2, 1]
    """
    corners = points_of(points, "points")
    if any(c.dim() == 0 or len(c) < 2 for c in corners):
        raise LineError(
            "A path needs at least two points.", where="argument points", hint="Give a tensor of shape (points, *in)."
        )
    starts, ends = tuple(c[:-1] for c in corners), tuple(c[1:] for c in corners)
    return restrict_many(model, starts, ends, **options)


def sweep(
    model: Any,
    Q: Point,
    R: Point,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    rewrite: bool = True,
    until: str | None = None,
    seconds: float | None = None,
    engine: str = "auto",
) -> Iterator[Restriction]:
    """The line in parts, in order of alpha, each as soon as it is known and in bounded memory.

    Each part is a Restriction of a stretch of the line and begins at the alpha where the one before it ended.

    >>> import exactline as xl
    >>> [part.alphas.tolist() for part in xl.sweep(torch.nn.ReLU(), [-1.0], [1.0], memory=1)]
    [[0.0, 0.5], [0.5, 1.0]]
    """
    lines = lines_of(Q, R, ("Q", "R"), many=False)
    options = _options(model, dtype, device, memory, values, False, rewrite, until, None, seconds, engine)
    return _streamed(model, lines, options)


def _streamed(model: Any, lines: Lines, options: _Options) -> Iterator[Restriction]:
    network, moved = _networks(model, lines, options)
    choice = _choice(moved, options)
    limits, parts = choice.limits, linked(_swept(choice, lines, options))
    held: Restriction | None = None
    while True:
        began = time.perf_counter()
        with precise():
            part = next(parts, None)
        if held is not None:
            # with a deadline a part waits for the next, so that the last one can say that it is the last
            yield replace(held, stopped=limits.stopped) if part is None else held
        if part is None:
            return
        found = _collected(part, options.values)
        held = _answer(found, lines, network, time.perf_counter() - began, options, choice)[0]
        if options.seconds is None:
            yield held
            held = None


def _collected(part: Part, values: bool) -> Collected:
    kept = tuple(v.cpu() for v in part.values) if values else None
    ends = torch.tensor([0, len(part.alphas)])
    alphas, born, doubts = (t.cpu().contiguous() for t in (part.alphas, part.born, part.doubts))
    return Collected(ends, alphas, born, doubts, kept, "")


def _restricted(model: Any, lines: Lines, options: _Options) -> Restrictions:
    began = time.perf_counter()
    network, moved = _networks(model, lines, options)
    choice = _choice(moved, options)
    limits = choice.limits
    shapes = [network.nodes[i].shape for i in network.outputs] if options.values else None
    collector = Collector(len(lines), shapes, options.max_breaks, limits)
    with reporter(options.progress) as report, precise():
        found = collector.take(_reported(_swept(choice, lines, options), report, len(lines)))
    return _answer(found, lines, network, time.perf_counter() - began, options, choice)


def _choice(moved: Network, options: _Options) -> Choice:
    """The engine for a network where and as the sweep wants it."""
    memory = options.memory if options.memory is not None else free_memory(options.device)
    return Choice(moved, options.engine, _limits(moved, options), memory, options.values)


def _swept(choice: Choice, lines: Lines, options: _Options) -> Iterator[Part]:
    """The parts of all lines; patches in float32 are summed up in float64."""
    if choice.local and options.dtype == torch.float32:
        light = choice.network
        choice.network = light.to(dtype=torch.float64)
        return choice.sweep(lines.to(options.device, torch.float64), light)
    return choice.sweep(lines.to(options.device, options.dtype), None)


def _answer(
    found: Collected, lines: Lines, network: Network, seconds: float, options: _Options, choice: Choice
) -> Restrictions:
    told = (options.dtype, options.rewrite, options.until, choice.told)
    return Restrictions(found, lines, network, seconds, network.units, *told)


def _reported(parts: Iterator[Part], report: Report | None, lines: int) -> Iterator[Part]:
    breaks = 0
    for part in parts:
        yield part
        if report is not None:
            breaks += len(part.alphas) - int(part.continues)
            report((int(part.line[-1]) + float(part.alphas[-1])) / max(lines, 1), breaks)


def _networks(model: Any, lines: Lines, options: _Options) -> tuple[Network, Network]:
    """The network for later questions, and where and how the sweep wants it."""
    points = [t[0] if len(t) else t.new_zeros(t.shape[1:]) for t in lines.starts]
    with precise(kernels=False):
        return _captured(model, points, lines, options)


def _captured(model: Any, points: list[Tensor], lines: Lines, options: _Options) -> tuple[Network, Network]:
    network = as_network(model, points, rewrite=options.rewrite, until=options.until)
    shape_checked(lines, [network.nodes[i].shape for i in network.inputs])
    if options.device == torch.device("cpu") and options.dtype == torch.float64:
        return network, network
    moved = as_network(
        model, points, rewrite=options.rewrite, until=options.until, device=options.device, dtype=options.dtype
    )
    return network, moved


def _limits(network: Network, options: _Options) -> Limits:
    memory = options.memory if options.memory is not None else free_memory(options.device)
    points = plan(network).points(memory)
    if options.max_breaks is not None:
        points = min(points, EARLY)
    if options.seconds is not None:
        points = min(points, SOON)
    deadline = float("inf") if options.seconds is None else time.monotonic() + options.seconds
    return Limits(points, deadline)


def free_memory(device: torch.device) -> int:
    """The working set we allow ourselves where the caller names none, in bytes."""
    if device.type == "cuda":
        return free_on(device) // GPU_SHARE
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        free = 4 << 30
    return min(free // CPU_SHARE, CPU_MOST)


def _options(
    model: Any,
    dtype: torch.dtype,
    device: torch.device | str | None,
    memory: int | None,
    values: bool,
    progress: bool | Report,
    rewrite: bool,
    until: str | None,
    max_breaks: int | None,
    seconds: float | None,
    engine: str,
) -> _Options:
    if dtype not in (torch.float64, torch.float32):
        raise ArgumentError(
            f"dtype must be torch.float64 or torch.float32, not {dtype}.",
            where="argument dtype",
            hint="float64 is the default; float32 is faster on some GPUs and finds false breaks.",
        )
    memory, max_breaks = whole_number("memory", memory), whole_number("max_breaks", max_breaks)
    if seconds is not None and not (_is_number(seconds) and seconds >= 0):
        raise _bad("seconds", seconds, "a number of at least 0")
    if until is not None and not isinstance(model, nn.Module) and isinstance(model, Network):
        raise ArgumentError(
            "until= needs a module: a Network has no submodules.", where="argument until", hint="Give the module."
        )
    device = chosen_device(model, device)
    return _Options(dtype, device, memory, values, progress, rewrite, until, max_breaks, seconds, engine)


def whole_number(name: str, value: Any) -> int | None:
    """A limit as a whole number of at least 1."""
    if value is None:
        return None
    if not _is_number(value) or value < 1 or value != int(min(value, 2**62)):
        raise _bad(name, value, "a whole number of at least 1")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _bad(name: str, value: Any, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name} must be {wanted}, not {value!r}.", where=f"argument {name}", hint="Leave it out for no limit."
    )


def chosen_device(model: Any, device: torch.device | str | None) -> torch.device:
    """Where to sweep: where the caller says, or where the model's weights are."""
    if device is None:
        weight = next(iter(model.parameters()), None) if isinstance(model, nn.Module) else None
        device = weight.device if weight is not None and not weight.is_meta else "cpu"
    try:
        found = torch.device(device)
        if found.type == "cuda" and found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
        if found.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise ArgumentError(
            f"The device {device} cannot be used: {str(problem).splitlines()[0]}",
            where="argument device",
            hint="Use 'cpu', or 'cuda' where there is a GPU.",
        ) from problem
    return found
