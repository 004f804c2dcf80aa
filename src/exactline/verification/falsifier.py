"""Counterexamples to a property: lines through its boxes, decided exactly, until one of them breaks it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import ArgumentError
from ..formats import load
from ..fp_context import full_precision
from ..network import Network, as_network
from ..options import check_count, select_device
from .flatten import Flat, fitted
from .property import Property
from .replay import Replay, Witness, replay_of, witness
from .search import Covered, hunts, next_hunt
from .vnnlib import read_vnnlib

SECONDS = 60.0  # where neither lines nor seconds are given
FURTHER = 50  # rounds in which a violation that rounding blurs may still become a clear one

Progress = Callable[[float, int, float], object]  # share done, lines so far, smallest margin so far


@dataclass(frozen=True, eq=False)
class Falsified:
    """The answer: ``sat`` with a counterexample, or ``unknown`` with what was covered; never ``unsat``."""

    answer: str  # sat or unknown
    x: Tensor | None  # (inputs,) the counterexample, flat, float64
    y: Tensor | None  # (outputs,) what the network says there, by replay
    case: int | None  # which case of the property holds there, or was nearest to
    strict: bool  # the counterexample needs no tolerance: neither for the box nor for the constraints
    replayed: str  # which program evaluated the counterexample
    lines: int  # swept
    pieces: int  # on them
    margin: float  # the smallest seen on lines; at most 0 is a violation
    nearest: Tensor | None  # (inputs,) where it was seen
    seconds: float
    seed: int
    note: str = ""

    def __bool__(self) -> bool:
        """Whether a counterexample was found."""
        return self.answer == "sat"

    def vnncomp(self) -> str:
        """The answer as the competition VNN-COMP wants it."""
        if self.x is None or self.y is None:
            return self.answer
        rows = [f"(X_{i} {v!r})" for i, v in enumerate(self.x.tolist())]
        rows += [f"(Y_{i} {v!r})" for i, v in enumerate(self.y.tolist())]
        return "\n ".join([f"{self.answer}\n({rows[0]}", *rows[1:]]) + ")"

    def __str__(self) -> str:
        covered = f"{self.lines:,} lines, {self.pieces:,} pieces, {self.seconds:.2f} s"
        if self:
            how = "without tolerance" if self.strict else "within tolerance only"
            said = f"sat: a counterexample after {covered}; {self.replayed} confirms it {how}"
        else:
            said = f"unknown after {covered}; smallest margin seen {self.margin:.6g}"
        return f"{said}. {self.note}" if self.note else said

    def __repr__(self) -> str:
        return f"<Falsified: {self}>"


def falsify(
    network: Any,
    property: Any,
    *,
    lines: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    shape: Sequence[int] | None = None,
    normalize: bool = True,
    device: torch.device | str | None = None,
    progress: bool | Progress = False,
) -> Falsified:
    """Search for a counterexample to a property along lines that are decided exactly.

    ``network`` is a path, a Network, a module or an exported program (``shape`` is that of one of its input points),
    ``property`` the path of a VNNLIB file or a Property. ``normalize=False`` leaves out what a .nnet says of its
    inputs and outputs, as properties of normalised inputs want it. The search ends after so many ``lines`` or
    ``seconds``, 60 seconds where neither is given; with ``lines`` alone it repeats with the seed. A counterexample
    counts once the network itself confirms it: onnxruntime for ONNX files where it is installed, the module for
    modules, else our evaluation in float32.

    >>> import exactline as xl
    >>> from exactline.verification.property import Property
    >>> peak = Property.of([-1.0], [1.0], [[-1.0]], [-0.75])  # relu(x) >= 0.75 somewhere?
    >>> found = xl.falsify(torch.nn.ReLU(), peak, lines=10)
    >>> found.answer, float(found.y) >= 0.75
    ('sat', True)

    Raises FileError, ArgumentError, UnsupportedError and what loading raises.
    """
    began = time.monotonic()
    limit = check_count("lines", lines)
    until = began + _seconds(seconds, limit)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ArgumentError(f"seed must be a whole number from 0, not {seed!r}.", where="argument seed", hint="Try 0.")
    asked = property if isinstance(property, Property) else read_vnnlib(_path(property, "property"))
    model = network if isinstance(network, (Network, nn.Module, ExportedProgram)) else _path(network, "network")
    captured = _captured(model, asked, shape, normalize)
    fitted(captured, asked)
    flat = Flat(captured, select_device(model, device))
    search = _Search(asked, flat, replay_of(model, flat), limit, began, until, seed)
    return search.run(_reporter(progress))


@dataclass
class _Search:
    """One call: rounds until a counterexample is confirmed or the limits are reached."""

    asked: Property
    flat: Flat
    replay: Replay
    limit: int | None
    began: float
    until: float
    seed: int

    def run(self, report: Progress | None) -> Falsified:
        covered = Covered()
        boxes = hunts(self.flat, self.asked, self.seed)
        blurred: Witness | None = None  # holds within the tolerance only
        turn = later = 0
        note = "" if boxes else "No point fulfils the bounds of any case."
        while boxes and self._left(covered) > 0 and later < FURTHER:
            hunt = next_hunt(boxes, turn)
            rest = self.until - time.monotonic()
            found = hunt.round(self._left(covered), rest if rest < float("inf") else None, covered)
            for one in found:
                case = self.asked.cases[one.case]
                seen = witness(self.replay, one.case, case, hunt.box, one.point)
                if seen is not None and seen.holds:  # where it is not in the box, no number of its precision is
                    return self._answer(covered, seen)
                if seen is not None and (blurred is None or seen.margin < blurred.margin):
                    blurred = seen
            turn += 1
            later += blurred is not None
            if report is not None:
                report(self._share(covered), covered.lines, covered.margin)
            if turn == len(boxes) and all(h.whole for h in boxes):
                note = "Every box is a single line, and all of it was decided."
                break
        return self._answer(covered, blurred, note)

    def _left(self, covered: Covered) -> int:
        """Lines that may still be swept."""
        if time.monotonic() >= self.until:
            return 0
        return 1 << 30 if self.limit is None else self.limit - covered.lines

    def _share(self, covered: Covered) -> float:
        timed = (time.monotonic() - self.began) / max(self.until - self.began, 1e-9)
        return min(max(timed, 0.0 if self.limit is None else covered.lines / self.limit), 1.0)

    def _violated(self, covered: Covered) -> bool:
        """Whether a line broke the property; where a constraint is strict, touching it does not."""
        strict = covered.case is not None and bool(self.asked.cases[covered.case].strict.any())
        return covered.margin < 0 if strict else covered.margin <= 0

    def _answer(self, covered: Covered, seen: Witness | None, note: str = "") -> Falsified:
        if seen is not None and not seen.strict:
            what = "box" if seen.holds else "constraints" if seen.inside else "box and the constraints"
            note = f"The {what} hold{'s' if what == 'box' else ''} within tolerance, not strictly."
        if seen is None and self._violated(covered):
            note = f"Lines have violations, but {self.replay.by} confirms none of those tried."
        return Falsified(
            "unknown" if seen is None else "sat",
            None if seen is None else seen.x,
            None if seen is None else seen.y,
            covered.case if seen is None else seen.case,
            seen is not None and seen.strict,
            self.replay.by,
            covered.lines,
            covered.pieces,
            covered.margin,
            covered.nearest,
            time.monotonic() - self.began,
            self.seed,
            note,
        )


def _captured(model: Any, asked: Property, shape: Sequence[int] | None, normalize: bool) -> Network:
    if isinstance(model, Network):
        return model
    if isinstance(model, Path):
        return load(model, shape=shape, normalize=normalize)
    point = torch.zeros(tuple(shape) if shape is not None else (asked.inputs,))
    with full_precision(kernels=False):
        return as_network(model, [point])


def _path(value: Any, name: str) -> Path:
    if isinstance(value, (str, os.PathLike)):
        return Path(value)
    raise ArgumentError(
        f"The {name} cannot be {type(value).__name__}.",
        where=f"argument {name}",
        hint="Give a path, a Network or a module." if name == "network" else "Give a path or a Property.",
    )


def _seconds(value: Any, lines: int | None) -> float:
    if value is None:
        return SECONDS if lines is None else float("inf")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ArgumentError(
            f"seconds must be a number of at least 0, not {value!r}.", where="argument seconds", hint="Try 60."
        )
    return float(value)


def _reporter(progress: Any) -> Progress | None:
    if progress is False or progress is None:
        return None
    if progress is True:
        import sys

        def told(share: float, lines: int, margin: float) -> None:
            sys.stderr.write(f"\r{share:4.0%}, {lines:,} lines, smallest margin {margin:.4g}   ")
            sys.stderr.write("\n" if share >= 1 else "")

        return told
    if callable(progress):
        return progress
    raise ArgumentError(
        f"progress must be True, False or a function, not {progress!r}.",
        where="argument progress",
        hint="A function is called with the share done, the lines and the smallest margin so far.",
    )
