"""Lines from any iterable of pairs (start, end), read once and lazily, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from ..arrays import Floats
from ..errors import ArgumentError, ExactlineError, LineError
from ..lines import as_lines, check_shapes
from .batch import LineBatch
from .checksums import digest_rows, extend_digest
from .failure import Failure

PEEKED_LINES = 64  # from which the shape of the points is taken
Shapes = Sequence[tuple[int, ...]]
EndPoints = tuple[tuple[Floats, ...], tuple[Floats, ...]]  # one line's start and end, an array for each input


def iterate_pairs(lines: Any) -> Iterator[Any]:
    """An iterator over what should be pairs.

    Raises ArgumentError where the argument is not iterable.
    """
    try:
        if isinstance(lines, bytes):
            raise TypeError
        return iter(lines)
    except TypeError as problem:
        raise ArgumentError(
            f"lines is {type(lines).__name__}: not pairs (start, end) one after another.",
            where="argument lines",
            hint="Give zip(starts, ends), a list of pairs, or the path of a .npz, .npy or .safetensors file.",
        ) from problem


def peek(pairs: Iterator[Any]) -> tuple[list[Any], Iterator[Any]]:
    """The first few pairs, and an iterator over all of them."""
    first = list(islice(pairs, PEEKED_LINES))
    return first, chain(first, pairs)


def choose_example(first: Sequence[Any]) -> list[torch.Tensor]:
    """A point of the shape that most of the given lines have, from the first line of that shape.

    Raises LineError where no line can be used.
    """
    examples: dict[tuple[tuple[int, ...], ...], list[torch.Tensor]] = {}
    votes: dict[tuple[tuple[int, ...], ...], int] = {}
    problem: ExactlineError = LineError("There are no lines.", where="argument lines", hint="Give at least one line.")
    for pair in first:
        try:
            starts, _ = _check_pair(pair, None)
        except ExactlineError as error:
            problem = error
            continue
        shapes = tuple(s.shape for s in starts)
        votes[shapes] = votes.get(shapes, 0) + 1
        examples.setdefault(shapes, [torch.from_numpy(s) for s in starts])
    if not votes:
        raise problem
    return examples[max(votes, key=votes.__getitem__)]


def batch_pairs(pairs: Iterator[Any], shapes: Shapes, size: int) -> Iterator[LineBatch]:
    """Batches of ``size`` lines; lines that cannot be used become failures of their batch."""
    first = 0
    while taken := list(islice(pairs, size)):
        yield _make_checked_batch(first, taken, shapes)
        first += len(taken)


def make_batch(first: int, starts: tuple[Floats, ...], ends: tuple[Floats, ...]) -> LineBatch:
    """A batch of lines whose shape is right; lines with NaN or infinite end points become failures."""
    count = len(starts[0])
    sides = [side.reshape(count, -1) for side in (*starts, *ends)]
    rows = np.ascontiguousarray(np.concatenate(sides, 1))
    digests = digest_rows(rows)
    numbers = np.arange(first, first + count)
    finite = np.isfinite(rows).all(1)
    if finite.all():
        return LineBatch(numbers, digests, starts, ends)
    failures = {int(numbers[i]): _nonfinite_failure(starts, int(i)) for i in np.flatnonzero(~finite)}
    return LineBatch(numbers, digests, tuple(s[finite] for s in starts), tuple(e[finite] for e in ends), failures)


def _nonfinite_failure(starts: tuple[Floats, ...], row: int) -> Failure:
    """The error that `xl.restrict` raises for the line."""
    name = "end" if all(np.isfinite(s[row]).all() for s in starts) else "start"
    return Failure.from_error(
        LineError(f"{name} holds NaN or infinite numbers.", where=f"argument {name}", hint="Give finite points.")
    )


def _make_checked_batch(first: int, taken: Sequence[Any], shapes: Shapes) -> LineBatch:
    sides = _stack_uniform(taken, shapes[0]) if len(shapes) == 1 else None
    if sides is not None:
        return make_batch(first, (sides[0],), (sides[1],))
    numbers = np.arange(first, first + len(taken))
    digests = np.zeros(len(taken), dtype=np.uint32)
    usable: list[EndPoints] = []
    failures: dict[int, Failure] = {}
    for row, pair in enumerate(taken):
        try:
            points = _check_pair(pair, shapes)
        except ExactlineError as error:
            failures[first + row] = Failure.from_error(error)
            digests[row] = extend_digest(_as_bytes(pair))
            continue
        usable.append(points)
        flat = np.concatenate([array.reshape(-1) for side in points for array in side])
        digests[row] = digest_rows(flat[None])[0]
    starts, ends = (
        tuple(
            np.stack([points[side][k] for points in usable]) if usable else np.zeros((0, *shape))
            for k, shape in enumerate(shapes)
        )
        for side in (0, 1)
    )
    return LineBatch(numbers, digests, starts, ends, failures)


def _stack_uniform(taken: Sequence[Any], shape: tuple[int, ...]) -> tuple[Floats, Floats] | None:
    """The fast path for pairs of float arrays or tensors, all of the right shape; None for anything else."""
    starts, ends = list[Any](), list[Any]()
    for pair in taken:
        if not isinstance(pair, (tuple, list, np.ndarray, torch.Tensor)) or len(pair) != 2:
            return None
        starts.append(pair[0])
        ends.append(pair[1])
    first, second = (_stack(side, tuple(shape)) for side in (starts, ends))
    return None if first is None or second is None else (first, second)


def _stack(points: list[Any], shape: tuple[int, ...]) -> Floats | None:  # (n, *shape)
    kind = type(points[0])
    if kind not in (torch.Tensor, np.ndarray):
        return None
    if any(type(p) is not kind or p.shape != shape or p.dtype != points[0].dtype for p in points):
        return None
    if kind is torch.Tensor and points[0].is_floating_point():
        if any(p.layout != torch.strided or p.device.type != "cpu" or p.is_quantized for p in points):
            return None
        return torch.stack(points).detach().double().numpy()
    if kind is np.ndarray and points[0].dtype.kind == "f":
        return np.stack(points).astype(np.float64, copy=False)
    return None


def _check_pair(pair: Any, shapes: Shapes | None) -> EndPoints:
    """The end points of any pair; raises the errors that `xl.restrict` raises."""
    try:
        start, end = pair
    except (TypeError, ValueError) as problem:
        raise LineError(
            "A line is a pair (start, end).",
            where="argument lines",
            hint="Give pairs of points, as zip(starts, ends) does.",
        ) from problem
    lines = as_lines(start, end, ("start", "end"), many=False)
    if shapes is not None:
        check_shapes(lines, shapes)
    return tuple(t[0].numpy() for t in lines.starts), tuple(t[0].numpy() for t in lines.ends)


def _as_bytes(pair: Any) -> bytes:
    """Bytes that tell an unusable line from others."""
    try:
        return b"".join(np.asarray(side, dtype=np.float64).tobytes() for side in pair)
    except (TypeError, ValueError, RuntimeError):
        return type(pair).__name__.encode()
