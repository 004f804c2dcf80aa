"""The falsifier: searches for counterexamples to a property along lines that are decided exactly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..options import check_count, select_device
from .flatten import FlatNetwork
from .property import Property
from .replay import Replay, Witness, format_vnncomp, make_replay, replay_point
from .search import Coverage, make_searches, select_search
from .subject import check_seconds, check_seed, read_subject
from .units import UnitChoice

DEFAULT_SECONDS = 60.0  # where neither lines nor seconds are given
MAX_ROUNDS_AFTER_BLURRED = 50  # rounds for a strict counterexample once one within tolerance is known

FalsifierProgress: TypeAlias = Callable[[float, int, float], object]  # share done, lines, smallest margin so far


@dataclass(frozen=True, eq=False)
class FalsifierResult:
    """The answer of `falsify`: ``sat`` with a counterexample, or ``unknown`` with the coverage; never ``unsat``."""

    answer: str  # "sat" or "unknown"
    x: Tensor | None  # (inputs,) the counterexample, flat, float64
    y: Tensor | None  # (outputs,) the network's outputs there, by replay
    disjunct: int | None  # index of the disjunct that holds at x, or was nearest to holding
    strict: bool  # whether the counterexample needs no tolerance, neither for the box nor for the constraints
    replayed_by: str  # the program that evaluates counterexamples
    lines: int  # lines swept
    pieces: int  # pieces on them
    margin: float  # the smallest margin on the lines; at most 0 is a violation
    nearest: Tensor | None  # (inputs,) the point with the smallest margin
    seconds: float
    seed: int
    note: str = ""
    units: str = ""  # of x: "physical" or "normalised" for a .nnet file that normalises its inputs

    def __bool__(self) -> bool:
        """Whether a counterexample was found."""
        return self.answer == "sat"

    def vnncomp(self) -> str:
        """Format the answer as the competition VNN-COMP expects it."""
        return format_vnncomp(self.answer, self.x, self.y)

    def __str__(self) -> str:
        covered = f"{self.lines:,} lines, {self.pieces:,} pieces, {self.seconds:.2f} s"
        if self:
            how = "without tolerance" if self.strict else "within tolerance only"
            text = f"sat: a counterexample after {covered}; {self.replayed_by} confirms it {how}"
        else:
            text = f"unknown after {covered}; smallest margin seen {self.margin:.6g}"
        text += f"; inputs in {self.units} units" if self.units else ""
        return f"{text}. {self.note}" if self.note else text

    def __repr__(self) -> str:
        return f"<FalsifierResult: {self}>"


def falsify(
    network: Any,
    property: Any,
    *,
    lines: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    shape: Sequence[int] | None = None,
    normalize: bool | None = None,
    device: torch.device | str | None = None,
    progress: bool | FalsifierProgress = False,
) -> FalsifierResult:
    """Search for a counterexample to a property along lines that are decided exactly.

    A counterexample counts once the network itself confirms it: onnxruntime for ONNX files if it is installed, the
    module for modules, else our own evaluation in float32. With ``lines`` and without ``seconds``, the search is
    reproducible from the seed.

    Args:
        network: A path, a Network, a module or an exported program.
        property: The path of a VNNLIB file, or a Property.
        lines: Stop after this number of lines.
        seconds: Stop after this time; 60 if neither lines nor seconds are given.
        seed: The seed of all random choices.
        shape: The shape of one input point, for modules and files that do not define it.
        normalize: For a .nnet file, whether the property is in physical units, such as feet, rather than in normalised
            ones. By default the ranges in the file decide, and a property that fits both or neither is refused.
        device: Where to compute; by default where the model's weights are.
        progress: True prints to standard error; a function is called with the share done, the lines and the smallest
            margin so far.

    >>> import exactline as xl
    >>> from exactline.verification.property import Property
    >>> peak = Property.of([-1.0], [1.0], [[-1.0]], [-0.75])  # is relu(x) >= 0.75 somewhere in [-1, 1]?
    >>> found = xl.falsify(torch.nn.ReLU(), peak, lines=10)
    >>> found.answer, float(found.y) >= 0.75
    ('sat', True)

    Raises FileError, ArgumentError, UnsupportedError, and the errors of `load`.
    """
    start_time = time.monotonic()
    max_lines = check_count("lines", lines)
    default = DEFAULT_SECONDS if lines is None else float("inf")
    deadline = start_time + check_seconds(seconds, default)
    check_seed(seed)
    subject = read_subject(network, property, shape=shape, normalize=normalize)
    flat = FlatNetwork(subject.network, select_device(subject.model, device))
    replay = make_replay(subject.model, flat)
    falsifier = Falsifier(subject.prop, flat, replay, max_lines, start_time, deadline, seed, subject.units)
    return falsifier.run(_make_reporter(progress))


@dataclass
class Falsifier:
    """One search of `falsify`: rounds until a counterexample is confirmed or a limit is reached."""

    prop: Property
    flat: FlatNetwork
    replay: Replay
    max_lines: int | None
    start_time: float
    deadline: float
    seed: int
    units: UnitChoice

    def run(self, report: FalsifierProgress | None = None) -> FalsifierResult:
        """Search until a limit is reached; ``report`` is called after every round."""
        coverage = Coverage()
        searches = make_searches(self.flat, self.prop, self.seed)
        blurred: Witness | None = None  # the best counterexample whose constraints hold within tolerance only
        turn = rounds_after_blurred = 0
        note = "" if searches else "No point satisfies the bounds of any disjunct."
        while searches and self._remaining_lines(coverage) > 0 and rounds_after_blurred < MAX_ROUNDS_AFTER_BLURRED:
            search = select_search(searches, turn)
            rest = self.deadline - time.monotonic()
            violations = search.run_round(
                self._remaining_lines(coverage), rest if rest < float("inf") else None, coverage
            )
            for violation in violations:
                index = violation.disjunct
                witness = replay_point(self.replay, index, self.prop.disjuncts[index], search.box, violation.point)
                if witness is not None and witness.is_violation:
                    # if it is not in the box, no number of the program's precision is
                    return self._make_result(coverage, witness)
                if witness is not None and (blurred is None or witness.margin < blurred.margin):
                    blurred = witness
            turn += 1
            rounds_after_blurred += blurred is not None
            if report is not None:
                report(self._share_done(coverage), coverage.lines, coverage.margin)
            if turn == len(searches) and all(s.is_single_line for s in searches):
                note = "Every box is a single line, and all of it was decided."
                break
        return self._make_result(coverage, blurred, note)

    def _remaining_lines(self, coverage: Coverage) -> int:
        if time.monotonic() >= self.deadline:
            return 0
        return 1 << 30 if self.max_lines is None else self.max_lines - coverage.lines

    def _share_done(self, coverage: Coverage) -> float:
        by_time = (time.monotonic() - self.start_time) / max(self.deadline - self.start_time, 1e-9)
        by_lines = 0.0 if self.max_lines is None else coverage.lines / self.max_lines
        return min(max(by_time, by_lines), 1.0)

    def _has_violation(self, coverage: Coverage) -> bool:
        """Whether a line violates the property; equality does not violate a strict constraint."""
        strict = coverage.disjunct is not None and bool(self.prop.disjuncts[coverage.disjunct].strict.any())
        return coverage.margin < 0 if strict else coverage.margin <= 0

    def _make_result(self, coverage: Coverage, witness: Witness | None, note: str = "") -> FalsifierResult:
        if witness is not None and not witness.is_strict:
            if witness.is_violation:
                note = "The box holds within tolerance, not strictly."
            elif witness.is_in_box:
                note = "The constraints hold within tolerance, not strictly."
            else:
                note = "The box and the constraints hold within tolerance, not strictly."
        if witness is None and self._has_violation(coverage):
            note = f"Lines have violations, but {self.replay.name} confirms none of those tried."
        return FalsifierResult(
            answer="unknown" if witness is None else "sat",
            x=None if witness is None else witness.x,
            y=None if witness is None else witness.y,
            disjunct=coverage.disjunct if witness is None else witness.disjunct,
            strict=witness is not None and witness.is_strict,
            replayed_by=self.replay.name,
            lines=coverage.lines,
            pieces=coverage.pieces,
            margin=coverage.margin,
            nearest=coverage.nearest,
            seconds=time.monotonic() - self.start_time,
            seed=self.seed,
            note=" ".join(text for text in (note, self.units.note) if text),
            units=self.units.name,
        )


def _make_reporter(progress: Any) -> FalsifierProgress | None:
    if progress is False or progress is None:
        return None
    if progress is True:

        def report(share: float, lines: int, margin: float) -> None:
            sys.stderr.write(f"\r{share:4.0%}, {lines:,} lines, smallest margin {margin:.4g}   ")
            sys.stderr.write("\n" if share >= 1 else "")

        return report
    if callable(progress):
        return progress
    raise ArgumentError(
        f"progress must be True, False or a function, not {progress!r}.",
        where="argument progress",
        hint="A function is called with the share done, the lines and the smallest margin so far.",
    )
