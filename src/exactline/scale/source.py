"""Where lines come from: any iterable of pairs, taken once and lazily, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from ..arrays import Floats
from ..errors import ArgumentError, ExactlineError, LineError
from ..lines import as_lines, check_shapes
from .batch import Block, digest, row_digests
from .failure import Note

PEEKED = 64  # lines looked at to learn the shape of points
Shapes = Sequence[tuple[int, ...]]
Ends = tuple[tuple[Floats, ...], tuple[Floats, ...]]  # one line's start and end, an array for each input


def pairs_of(lines: Any) -> Iterator[Any]:
    """An iterator over what should be pairs.

    Raises ArgumentError where there is nothing to iterate over.
    """
    try:
        if isinstance(lines, bytes):
            raise TypeError
        return iter(lines)
    except TypeError as problem:
        raise ArgumentError(
            f"lines is {type(lines).__name__}: not pairs (Q, R) one after another.",
            where="argument lines",
            hint="Give zip(starts, ends), a list of pairs, or the path of a .npz, .npy or .safetensors file.",
        ) from problem


def peeked(pairs: Iterator[Any]) -> tuple[list[Any], Iterator[Any]]:
    """The first few pairs, and all of them again."""
    first = list(islice(pairs, PEEKED))
    return first, chain(first, pairs)


def usual_points(first: Sequence[Any]) -> list[torch.Tensor]:
    """A point of the shape that most of the lines have, from the first line that has it.

    Raises LineError where no line can be used.
    """
    found: dict[tuple[tuple[int, ...], ...], list[torch.Tensor]] = {}
    votes: dict[tuple[tuple[int, ...], ...], int] = {}
    problem: ExactlineError = LineError("There are no lines.", where="argument lines", hint="Give at least one line.")
    for pair in first:
        try:
            lines = _checked(pair, None)
        except ExactlineError as error:
            problem = error
            continue
        shapes = tuple(s.shape for s in lines[0])
        votes[shapes] = votes.get(shapes, 0) + 1
        found.setdefault(shapes, [torch.from_numpy(s) for s in lines[0]])
    if not votes:
        raise problem
    return found[max(votes, key=votes.__getitem__)]


def blocks_of(pairs: Iterator[Any], shapes: Shapes, size: int) -> Iterator[Block]:
    """Blocks of so many lines; those that cannot be used are noted in their block."""
    first = 0
    while taken := list(islice(pairs, size)):
        yield _block(first, taken, shapes)
        first += len(taken)


def block_of(first: int, starts: tuple[Floats, ...], ends: tuple[Floats, ...]) -> Block:
    """A block of lines whose shape is known to be right; NaN and infinite ends are noted."""
    count = len(starts[0])
    sides = [side.reshape(count, -1) for side in (*starts, *ends)]
    rows = np.ascontiguousarray(np.concatenate(sides, 1))
    digests = row_digests(rows)
    numbers = np.arange(first, first + count)
    fine = np.isfinite(rows).all(1)
    if fine.all():
        return Block(numbers, digests, starts, ends)
    bad = {int(numbers[i]): _nan_note(starts, int(i)) for i in np.flatnonzero(~fine)}
    return Block(numbers, digests, tuple(s[fine] for s in starts), tuple(e[fine] for e in ends), bad)


def _nan_note(starts: tuple[Floats, ...], row: int) -> Note:
    """As `xl.restrict` says it."""
    name = "R" if all(np.isfinite(s[row]).all() for s in starts) else "Q"
    return Note.of(
        LineError(f"{name} holds NaN or infinite numbers.", where=f"argument {name}", hint="Give finite points.")
    )


def _block(first: int, taken: Sequence[Any], shapes: Shapes) -> Block:
    sides = _alike(taken, shapes[0]) if len(shapes) == 1 else None
    if sides is not None:
        return block_of(first, (sides[0],), (sides[1],))
    numbers = np.arange(first, first + len(taken))
    digests = np.zeros(len(taken), dtype=np.uint32)
    good: list[Ends] = []
    bad: dict[int, Note] = {}
    for row, pair in enumerate(taken):
        try:
            ends = _checked(pair, shapes)
        except ExactlineError as error:
            bad[first + row] = Note.of(error)
            digests[row] = digest(_told(pair))
            continue
        good.append(ends)
        flat = np.concatenate([array.reshape(-1) for side in ends for array in side])
        digests[row] = row_digests(flat[None])[0]
    kept = range(len(shapes))
    starts, stops = (
        tuple(np.stack([g[side][k] for g in good]) if good else np.zeros((0, *shapes[k])) for k in kept)
        for side in (0, 1)
    )
    return Block(numbers, digests, starts, stops, bad)


def _alike(taken: Sequence[Any], shape: tuple[int, ...]) -> tuple[Floats, Floats] | None:
    """The usual case at once: pairs of arrays or tensors of floats, all of the right shape; None for anything else."""
    firsts, seconds = list[Any](), list[Any]()
    for pair in taken:
        if not isinstance(pair, (tuple, list, np.ndarray, torch.Tensor)) or len(pair) != 2:
            return None
        firsts.append(pair[0])
        seconds.append(pair[1])
    found = [_stacked(side, tuple(shape)) for side in (firsts, seconds)]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _stacked(points: list[Any], shape: tuple[int, ...]) -> Floats | None:  # (n, *shape)
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


def _checked(pair: Any, shapes: Shapes | None) -> Ends:
    """Any pair, refused with the same words as `xl.restrict` uses."""
    try:
        start, end = pair
    except (TypeError, ValueError) as problem:
        raise LineError(
            "A line is a pair (Q, R).", where="argument lines", hint="Give pairs of points, as zip(starts, ends) does."
        ) from problem
    lines = as_lines(start, end, ("Q", "R"), many=False)
    if shapes is not None:
        check_shapes(lines, shapes)
    return tuple(t[0].numpy() for t in lines.starts), tuple(t[0].numpy() for t in lines.ends)


def _told(pair: Any) -> bytes:
    """Something to know an unusable line again by."""
    try:
        return b"".join(np.asarray(side, dtype=np.float64).tobytes() for side in pair)
    except (TypeError, ValueError, RuntimeError):
        return type(pair).__name__.encode()
