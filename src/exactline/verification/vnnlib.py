"""Properties from VNNLIB files (version 1): declarations, and assertions of linear constraints joined by and, or, not.

A file asserts what a counterexample fulfils. It is read without recursion and nothing in it is run.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..formats import limits
from ..formats.open_file import opened
from .disjuncts import property_of
from .property import Property
from .terms import Formula, Term, TermError, all_of, any_of, compared, equal, minus, negated, over, plus, times

BYTES = 256 << 20
DEPTH = 500  # brackets within brackets
VARIABLES = 1 << 22
TOKEN = re.compile(r";[^\n]*|[()]|\"[^\"]*\"?|\|[^|]*\|?|[^\s();\"|]+|\S")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)
IDLE = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")  # of solvers, saying nothing here
TERMS: dict[str, Callable[..., Term]] = {"+": plus, "-": minus, "*": times, "/": over}
FORMULAS: dict[str, Callable[..., Formula]] = {
    "<=": compared(strict=False, swap=False),
    ">=": compared(strict=False, swap=True),
    "<": compared(strict=True, swap=False),
    ">": compared(strict=True, swap=True),
    "=": equal,
}
JOINTS: dict[str, Callable[..., Formula]] = {"and": all_of, "or": any_of, "not": lambda some: negated(some[0])}
OPERATORS = (*FORMULAS, *JOINTS, *TERMS)
COMMANDS = ("declare-const", "declare-fun", "assert", *IDLE)


def read_vnnlib(path: str | os.PathLike[str]) -> Property:
    """The property in a VNNLIB file, .vnnlib or .vnnlib.gz.

    Raises FileError with line and column where the file is damaged, not linear, or leaves an input without bounds.
    """
    file = Path(path)
    data = opened(file)
    limits.within(len(data), BYTES, "bytes", str(file))
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as problem:
        at = data[: problem.start].count(b"\n") + 1
        raise FileError("The file is not text.", where=f"{file}, line {at}", hint="Give a VNNLIB file.") from problem
    return parse_vnnlib(text, str(file))


def parse_vnnlib(text: str, where: str = "the property") -> Property:
    """The property that a text says.

    >>> found = parse_vnnlib('''(declare-const X_0 Real) (declare-const Y_0 Real)
    ...     (assert (and (>= X_0 0) (<= X_0 1.5) (<= (* 2 Y_0) X_0)))''')
    >>> found.boxes[0].upper.tolist(), found.cases[0].on_outputs.tolist(), found.cases[0].on_inputs.tolist()
    ([1.5], [[2.0]], [[-1.0]])
    """
    reader = _Reader(text, where)
    asserted = reader.read()
    try:
        return property_of(all_of(asserted), reader.count("X"), reader.count("Y"), where)
    except TermError as problem:
        raise FileError(problem.problem, where=where, hint=problem.hint) from None


@dataclass
class _Form:
    """A bracket that is still open."""

    start: int
    items: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])  # words, terms, formulas; their places


class _Reader:
    """Words to terms to formulas: every closing bracket is worked out at once."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.starts: list[int] = []  # of lines, for messages
        self.declared: dict[str, set[int]] = {"X": set(), "Y": set()}

    def read(self) -> list[Formula]:
        asserted: list[Formula] = []
        open_forms: list[_Form] = []
        for word, place in self._words():
            if word == "(":
                if len(open_forms) >= DEPTH:
                    raise self.error(f"Brackets are nested more than {DEPTH:,} deep.", place, "Write it flatter.")
                open_forms.append(_Form(place))
            elif word != ")":
                if not open_forms:
                    raise self.error(f"{_shown(word)} stands outside of brackets.", place, "Write (assert ...).")
                self._known(word, place, open_forms)
                open_forms[-1].items.append((word, place))
            elif not open_forms:
                raise self.error("A bracket is closed that was not opened.", place, "Take it away.")
            else:
                form = open_forms.pop()
                if open_forms:
                    open_forms[-1].items.append((self._inner(form, open_forms), form.start))
                else:
                    asserted += self._command(form)
        if open_forms:
            raise self.error(
                "A bracket is never closed.", open_forms[-1].start, "The file is incomplete: get it again."
            )
        return asserted

    def _words(self) -> Iterator[tuple[str, int]]:
        for found in TOKEN.finditer(self.text):
            if not found[0].startswith(";"):
                yield found[0], found.start()

    def _command(self, form: _Form) -> list[Formula]:
        """A whole statement: what it asserts, if it does."""
        head, *rest = [item for item, _ in form.items] or [""]
        if head == "assert":
            if len(rest) != 1:
                raise self.error("assert takes one formula.", form.start, "Write (assert (<= X_0 1)).")
            return [self._formula(*form.items[1])]
        if head in ("declare-const", "declare-fun"):
            self._declare(rest, form, head == "declare-fun")
        elif head not in IDLE:
            raise self.error(f"{_shown(head)} is not a statement.", form.start, f"There are {', '.join(COMMANDS)}.")
        return []

    def _declare(self, rest: list[Any], form: _Form, function: bool) -> None:
        name, *kind = rest or [""]
        found = NAME.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            raise self.error(
                f"{_shown(name)} is not a variable of a network.",
                form.start,
                "They are X_0, X_1, ... and Y_0, ...",
            )
        if kind != ([_NOTHING, "Real"] if function else ["Real"]):
            raise self.error(f"{name} must be Real.", form.start, f"Write (declare-const {name} Real).")
        places, place = self.declared[found[1]], int(found[2])
        if place in places:
            raise self.error(f"{name} is declared twice.", form.start, "Declare it once.")
        if len(places) >= VARIABLES:
            raise self.error(f"There are more than {VARIABLES:,} variables.", form.start, "Give a smaller network.")
        places.add(place)

    def _inner(self, form: _Form, outer: list[_Form]) -> Any:
        """The term or formula that a bracket comes to."""
        first = outer[0].items[0][0] if outer[0].items else ""
        if first != "assert":
            return _NOTHING  # the () of declare-fun, or what a solver is told
        if not form.items:
            raise self.error("There is nothing in these brackets.", form.start, "Write (<= X_0 1).")
        (head, place), *given = form.items
        try:
            if isinstance(head, str) and head in TERMS:
                self._enough(head, len(given), 2 if head == "/" else 1, form)
                return TERMS[head]([self._term(*g) for g in given])
            if isinstance(head, str) and head in FORMULAS:
                self._enough(head, len(given), 2, form)
                return FORMULAS[head]([self._term(*g) for g in given])
            if isinstance(head, str) and head in JOINTS:
                self._enough(head, len(given), 1, form)
                if head == "not" and len(given) > 1:
                    raise TermError("not takes one formula.", "Write (not (<= Y_0 1)).")
                return JOINTS[head]([self._formula(*g) for g in given])
        except TermError as problem:
            raise self.error(problem.problem, form.start, problem.hint) from None
        raise self._unknown(head, place)

    def _known(self, word: str, place: int, forms: list[_Form]) -> None:
        """Refuse an operator where it stands, before what is in its brackets makes no sense either."""
        first = len(forms) > 1 and not forms[-1].items and forms[0].items and forms[0].items[0][0] == "assert"
        if first and word not in OPERATORS:
            raise self._unknown(word, place)

    def _unknown(self, head: Any, place: int) -> FileError:
        known = f"There are {', '.join(OPERATORS)}."
        return self.error(f"{_shown(head)} is not an operator that is read.", place, known)

    def _enough(self, head: str, count: int, least: int, form: _Form) -> None:
        if count < least:
            raise self.error(f"{head} takes at least {least} of what it joins, not {count}.", form.start, "Add them.")

    def _term(self, item: Any, place: int) -> Term:
        if isinstance(item, Term):
            return item
        if isinstance(item, tuple):
            raise self.error("A number or a variable should stand here, not a formula.", place, "Write (<= X_0 1).")
        if (name := NAME.fullmatch(item)) is not None:
            if int(name[2]) not in self.declared[name[1]]:
                raise self.error(f"{item} is not declared.", place, f"Write (declare-const {item} Real) before.")
            return Term(0.0, {int(name[2]) if name[1] == "X" else ~int(name[2]): 1.0})
        if len(item) > limits.NAME or NUMBER.fullmatch(item) is None:
            raise self.error(f"{_shown(item)} is no number and no variable.", place, "Write 0.25, 1e-3, X_0 or Y_0.")
        number = float(item)
        if not isfinite(number):
            raise self.error(f"{_shown(item)} is larger than any double.", place, "Give finite numbers.")
        return Term(number)

    def _formula(self, item: Any, place: int) -> Formula:
        if isinstance(item, tuple):
            return item
        shown = "a term" if isinstance(item, Term) else _shown(item)
        raise self.error(f"A constraint should stand here, not {shown}.", place, "Write (<= X_0 1).")

    def count(self, kind: str) -> int:
        """How many variables of a kind there are; none may be left out."""
        places = self.declared[kind]
        for place in range(len(places) or 1):
            if place not in places:
                hint = f"Declare {kind}_0, {kind}_1, ... without a gap."
                raise FileError(f"{kind}_{place} is not declared.", where=self.where, hint=hint)
        return len(places)

    def error(self, problem: str, place: int, hint: str) -> FileError:
        """What is wrong at a place of the text."""
        if not self.starts:
            self.starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self.starts, place)
        where = f"{self.where}, line {line}, column {place - self.starts[line - 1] + 1}"
        return FileError(problem, where=where, hint=hint)


class _Nothing:
    """Brackets that say nothing here."""


_NOTHING = _Nothing()


def _shown(word: Any) -> str:
    if not isinstance(word, str):
        return "an expression"
    return ascii(word[:40]) + ("..." if len(word) > 40 else "")
