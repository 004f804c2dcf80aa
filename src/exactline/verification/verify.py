"""Verifies properties: completely on boxes with at most two free inputs, by a search on larger ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from torch import Tensor

from ..fp_context import full_precision
from ..humanize import count_noun
from ..options import select_device
from .complete.errors import NetworkTooLarge, OutOfTime
from .complete.groups import ConstraintTable, Group, group_disjuncts
from .complete.solve import CompleteSolver
from .falsifier import Falsifier, FalsifierResult
from .flatten import FlatNetwork
from .proof import Proof
from .property import Property
from .replay import Replay, Witness, format_vnncomp
from .subject import Subject, check_seconds, check_seed, read_subject
from .witnesses import WitnessSearch

DEFAULT_SECONDS = 60.0
ROUNDED_NOTE = "Sums or products of numbers in the property were rounded to float64."


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """The answer of `verify`: ``sat`` with a counterexample, ``unsat`` with a proof, or ``unknown`` with the reason."""

    result: str  # "sat", "unsat" or "unknown"
    reason: str  # why the result is unknown; "" otherwise
    x: Tensor | None  # (inputs,) the counterexample, flat, float64
    y: Tensor | None  # (outputs,) the network's outputs there, by replay
    disjunct: int | None  # index of the disjunct that holds at x
    exact_point: tuple[Fraction, ...] | None  # (inputs,) where a disjunct holds in rationals, if no replay confirms it
    replayed_by: str  # the program that evaluated points; "" if there were none to confirm
    decided: int  # disjuncts on boxes with at most two free inputs; if the time was over, those decided before
    searched: int  # disjuncts on larger boxes, which the falsifier searched
    pieces: int  # of lines
    cells: int  # of planes
    seconds: float
    proof: Proof | None = None  # where the result is unsat
    units: str = ""  # of x: "physical" or "normalised" for a .nnet file that normalises its inputs
    note: str = ""

    @property
    def answer(self) -> str:
        """The result, named as in `FalsifierResult`."""
        return self.result

    def vnncomp(self) -> str:
        """Format the result as the competition VNN-COMP expects it."""
        return format_vnncomp(self.result, self.x, self.y)

    def __str__(self) -> str:
        parts = [count_noun(self.pieces, "piece")] if self.pieces else []
        parts += [count_noun(self.cells, "cell")] if self.cells else []
        covered = ", ".join([*parts, f"{self.seconds:.2f} s"])
        if self.result == "sat":
            text = f"sat after {covered}; {self.replayed_by} confirms the counterexample without tolerance"
        elif self.result == "unsat":
            text = f"unsat: proved in rational arithmetic; {covered}"
        else:
            text = f"unknown after {covered}: {self.reason}"
        text += f"; inputs in {self.units} units" if self.units else ""
        return f"{text}. {self.note}" if self.note else text

    def __repr__(self) -> str:
        return f"<VerificationResult: {self}>"


def verify(
    network: Any,
    property: Any,
    *,
    seconds: float | None = None,
    seed: int = 0,
    shape: Sequence[int] | None = None,
    normalize: bool | None = None,
) -> VerificationResult:
    """Verify a property: find a counterexample, or prove that there is none.

    Every disjunct whose box has at most two inputs of non-zero width is decided completely, in exact arithmetic; the
    falsifier searches larger boxes. The weights of the network and the numbers of the property count as the rationals
    that they are as floats. A counterexample is replayed without tolerance by the network itself: by onnxruntime for
    ONNX files if it is installed, the module for modules, else our own evaluation in float32.

    Args:
        network: A path, a Network, a module or an exported program.
        property: The path of a VNNLIB file, or a Property.
        seconds: Stop after this time; 60 by default.
        seed: The seed of the falsifier, for larger boxes.
        shape: The shape of one input point, for modules and files that do not define it.
        normalize: For a .nnet file, whether the property is in physical units, such as feet, rather than in normalised
            ones. By default the ranges in the file decide, and a property that fits both or neither is refused.

    >>> import torch, exactline as xl
    >>> from exactline.verification.property import Property
    >>> peak = Property.of([-1.0], [1.0], [[-1.0]], [-1.0])  # is relu(x) >= 1 somewhere in [-1, 1]?
    >>> xl.verify(torch.nn.ReLU(), peak).x
    tensor([1.], dtype=torch.float64)
    >>> higher = Property.of([-1.0], [1.0], [[-1.0]], [-1.0000001])
    >>> xl.verify(torch.nn.ReLU(), higher).result
    'unsat'

    Raises FileError, ArgumentError, UnsupportedError, NumberError, and the errors of `load`.
    """
    start_time = time.monotonic()
    deadline = start_time + check_seconds(seconds, DEFAULT_SECONDS)
    check_seed(seed)
    subject = read_subject(network, property, shape=shape, normalize=normalize)
    flat = FlatNetwork(subject.network, select_device(subject.model, None))
    with full_precision():
        return _Verification(subject, flat, start_time, deadline, seed).run()


@dataclass(eq=False)
class _Verification:
    """One call of `verify`."""

    subject: Subject
    flat: FlatNetwork
    start_time: float
    deadline: float
    seed: int
    reasons: list[str] = field(default_factory=list[str])
    decided: int = 0  # disjuncts so far

    def run(self) -> VerificationResult:
        prop = self.subject.prop
        table = ConstraintTable.of(prop)
        groups, large = group_disjuncts(table)
        solver = CompleteSolver(self.subject.network, table, self.deadline)
        search = WitnessSearch(self.flat, self.subject.model, prop)
        decided = sum(len(group.disjuncts) for group in groups)
        draft = self._draft(decided, len(large))
        witness = None
        try:
            witness = search.look(groups, solver.holds_at) or self._decide(solver, search, groups)
        except OutOfTime:
            draft = replace(draft, decided=self.decided)
            self.reasons.append("the time is over before every piece is decided")
        except (NetworkTooLarge, MemoryError):
            self.reasons.append("the network is too large for exact arithmetic")
            large = sorted([*large, *(index for group in groups for index in group.disjuncts)])
            draft = replace(draft, decided=0, searched=len(large))
        draft = replace(draft, pieces=solver.piece_count, cells=solver.cell_count, replayed_by=search.replayed_by)
        if witness is not None:
            return self._make_sat(draft, witness)
        if search.exact_point is not None:
            self.reasons.insert(0, search.explain())
            draft = replace(draft, exact_point=search.exact_point, disjunct=search.disjunct)
        if large:
            found = self._search_large(large, search.replay)
            draft = replace(draft, replayed_by=found.replayed_by)
            if found.strict and found.x is not None:
                disjunct = None if found.disjunct is None else large[found.disjunct]
                return replace(draft, result="sat", x=found.x, y=found.y, disjunct=disjunct, seconds=self._seconds())
            self.reasons.append(_explain_search(len(large), found))
        if self.reasons:
            return replace(draft, reason="; ".join(self.reasons), seconds=self._seconds())
        proof = Proof.of(self.subject.network, solver.parts)
        return replace(draft, result="unsat", proof=proof, seconds=self._seconds())

    def _decide(self, solver: CompleteSolver, search: WitnessSearch, groups: Sequence[Group]) -> Witness | None:
        """Decide all groups; returns the first counterexample that the replay confirms."""
        for group in groups:
            for region in solver.run(group):
                witness = search.replay_region(group, region)
                if witness is not None or search.is_exhausted:
                    return witness
            self.decided += len(group.disjuncts)
        return None

    def _draft(self, decided: int, searched: int) -> VerificationResult:
        return VerificationResult(
            result="unknown",
            reason="",
            x=None,
            y=None,
            disjunct=None,
            exact_point=None,
            replayed_by="",
            decided=decided,
            searched=searched,
            pieces=0,
            cells=0,
            seconds=0.0,
            units=self.subject.units.name,
            note=" ".join(
                note for note in (self.subject.units.note, ROUNDED_NOTE * self.subject.prop.table.rounded) if note
            ),
        )

    def _make_sat(self, draft: VerificationResult, witness: Witness) -> VerificationResult:
        return replace(
            draft, result="sat", x=witness.x, y=witness.y, disjunct=witness.disjunct, seconds=self._seconds()
        )

    def _search_large(self, large: list[int], replay: Replay) -> FalsifierResult:
        """Search the boxes with more than two free inputs for a counterexample."""
        prop = self.subject.prop
        part = Property(prop.inputs, prop.outputs, prop.boxes, tuple(prop.disjuncts[i] for i in large), prop.source)
        falsifier = Falsifier(
            part, self.flat, replay, None, time.monotonic(), self.deadline, self.seed, self.subject.units
        )
        return falsifier.run()

    def _seconds(self) -> float:
        return time.monotonic() - self.start_time


def _explain_search(count: int, found: FalsifierResult) -> str:
    searched = f"the falsifier searched {count_noun(count, 'disjunct')}, on boxes with more than two free inputs,"
    if found.x is not None:
        return f"{searched} and its counterexample holds within tolerance only"
    return f"{searched} and found no counterexample"
