"""Reads properties from VNNLIB files (version 1): declarations, and assertions of linear constraints.

A file asserts what a counterexample satisfies. The parser uses no recursion and runs nothing from the file.
"""

from __future__ import annotations

import gc
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..formats import limits
from ..formats.open_file import read_file
from ..humanize import count_noun
from .bound_table import BOUND_PATTERN, CONJUNCTION, read_bound_table
from .disjuncts import build_property
from .property import Property
from .terms import (
    Atom,
    Formula,
    Term,
    TermError,
    add,
    conjoin,
    disjoin,
    divide,
    equate,
    make_comparison,
    multiply,
    negate,
    subtract,
)

MAX_FILE_BYTES = 256 << 20
MAX_NESTING = 500  # brackets inside brackets
MAX_VARIABLES = 1 << 22  # inputs, and outputs
MAX_QUOTED_CHARACTERS = 40  # of a word in an error message
TOKEN_PATTERN = re.compile(r";[^\n]*|[()]|\"[^\"]*\"?|\|[^|]*\|?|[^\s();\"|]+|\S")
# bounds such as (<= X_0 1.5), and conjunctions of them, are read at once: most of a large file consists of them
CONJUNCTION_PATTERN = re.compile(CONJUNCTION, re.ASCII)
NUMBER_PATTERN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
VARIABLE_PATTERN = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)
IGNORED_COMMANDS = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")  # for SMT solvers
ARITHMETIC: dict[str, Callable[..., Term]] = {"+": add, "-": subtract, "*": multiply, "/": divide}
COMPARISONS: dict[str, Callable[..., Formula]] = {
    "<=": make_comparison(strict=False, swap=False),
    ">=": make_comparison(strict=False, swap=True),
    "<": make_comparison(strict=True, swap=False),
    ">": make_comparison(strict=True, swap=True),
    "=": equate,
}
CONNECTIVES: dict[str, Callable[..., Formula]] = {
    "and": conjoin,
    "or": disjoin,
    "not": lambda formulas: negate(formulas[0]),
}
OPERATORS = (*COMPARISONS, *CONNECTIVES, *ARITHMETIC)
COMMANDS = ("declare-const", "declare-fun", "assert", *IGNORED_COMMANDS)


def read_vnnlib(path: str | os.PathLike[str]) -> Property:
    """Read the property from a VNNLIB file, .vnnlib or .vnnlib.gz.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".vnnlib") as file:
    ...     _ = file.write("(declare-const X_0 Real) (declare-const Y_0 Real)")
    ...     _ = file.write("(assert (and (>= X_0 0) (<= X_0 1) (<= Y_0 2)))")
    ...     file.flush()
    ...     read_vnnlib(file.name)
    <Property: 1 inputs, 1 outputs, disjuncts: 1, boxes: 1, constraints: 1>

    Raises FileError with line and column if the file is damaged, not linear, or leaves an input without bounds.
    """
    file = Path(path)
    data = read_file(file)
    limits.check_limit(len(data), MAX_FILE_BYTES, "bytes", str(file))
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as problem:
        at = data[: problem.start].count(b"\n") + 1
        raise FileError("The file is not text.", where=f"{file}, line {at}", hint="Give a VNNLIB file.") from problem
    return parse_vnnlib(text, str(file))


def parse_vnnlib(text: str, where: str = "the property") -> Property:
    """Parse the text of a VNNLIB file; ``where`` names it in error messages.

    >>> found = parse_vnnlib('''(declare-const X_0 Real) (declare-const Y_0 Real)
    ...     (assert (and (>= X_0 0) (<= X_0 1.5) (<= (* 2 Y_0) X_0)))''')
    >>> disjunct = found.disjuncts[0]
    >>> found.boxes[0].upper.tolist(), disjunct.output_weights.tolist(), disjunct.input_weights.tolist()
    ([1.5], [[2.0]], [[-1.0]])

    Raises FileError as `read_vnnlib` does.
    """
    with _pause_garbage_collection():
        found = read_bound_table(text, where)
        return _build_property(_Parser(text, where)) if found is None else found


def _build_property(parser: _Parser) -> Property:
    """Parse a text and build its property; all terms are gone when it returns."""
    asserted = parser.parse()
    try:
        return build_property(conjoin(asserted), parser.count_variables("X"), parser.count_variables("Y"), parser.where)
    except TermError as problem:
        raise FileError(problem.problem, where=parser.where, hint=problem.hint) from None


@contextmanager
def _pause_garbage_collection() -> Generator[None]:
    """Do not look for cycles of objects: a parser makes hundreds of thousands of objects, and none of them are cycles.

    Each search would go through all objects of torch, and take as long as the parser itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass
class _Bracket:
    """An open bracket and what it contains so far."""

    start: int
    # words, terms and formulas, with their positions in the text
    items: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])


class _Parser:
    """Turns words into terms and formulas; each bracket is evaluated when it closes."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.line_starts: list[int] = []  # positions, computed for the first error message
        self.declared: dict[str, set[int]] = {"X": set(), "Y": set()}
        self.keys: dict[str, int] = {}  # of the declared variables, as in `Term.coefficients`

    def parse(self) -> list[Formula]:
        """Return the asserted formulas."""
        asserted: list[Formula] = []
        brackets: list[_Bracket] = []
        for word, position in self._tokens(brackets):
            if not isinstance(word, str):
                brackets[-1].items.append((word, position))
            elif word == "(":
                if len(brackets) >= MAX_NESTING:
                    raise self.error(
                        f"Brackets are nested more than {MAX_NESTING:,} deep.", position, "Nest them less deeply."
                    )
                brackets.append(_Bracket(position))
            elif word != ")":
                if not brackets:
                    raise self.error(f"{_quote(word)} stands outside of brackets.", position, "Write (assert ...).")
                self._check_operator(word, position, brackets)
                brackets[-1].items.append((word, position))
            elif not brackets:
                raise self.error("A bracket is closed that was not opened.", position, "Remove it.")
            else:
                bracket = brackets.pop()
                if brackets:
                    brackets[-1].items.append((self._evaluate(bracket, brackets), bracket.start))
                else:
                    asserted += self._run_command(bracket)
        if brackets:
            raise self.error(
                "A bracket is never closed.", brackets[-1].start, "The file is incomplete: download it again."
            )
        return asserted

    def _tokens(self, brackets: list[_Bracket]) -> Iterator[tuple[str | Formula, int]]:
        """Yield the words and brackets with their positions, and whole bounds as formulas; comments are skipped.

        Args:
            brackets: Those that are open, which the caller updates: a bound is a formula inside of an assertion only.
        """
        text, position, end = self.text, 0, len(self.text)
        find_word, match_bound = TOKEN_PATTERN.search, BOUND_PATTERN.match
        match_conjunction = CONJUNCTION_PATTERN.match
        while position < end:
            word = find_word(text, position)
            if word is None:
                return
            start, first = word.start(), word[0]
            if first == "(" and brackets and brackets[-1].items and brackets[0].items[0][0] == "assert":
                whole = match_conjunction(text, start) or match_bound(text, start)
                if whole is not None and len(brackets) < MAX_NESTING - 1:
                    yield self._make_bounds(start, whole.end()), start
                    position = whole.end()
                    continue
            position = word.end()
            if first[0] != ";":
                yield first, start

    def _make_bounds(self, start: int, end: int) -> Formula:
        """Make the formula of all bounds on single variables in a part of the text."""
        clause: list[Atom] = []
        keys = self.keys
        for comparison, name, limit in BOUND_PATTERN.findall(self.text, start, end):
            value = float(limit)
            if name not in keys or not isfinite(value):
                raise self._explain_bound(start, end)
            term = Term(0.0 - value, {keys[name]: 1.0}) if comparison == "<=" else Term(value, {keys[name]: -1.0})
            clause.append(Atom(term, False))
        return (tuple(clause),)

    def _explain_bound(self, start: int, end: int) -> FileError:
        """Make the error for the first bound in a part of the text whose variable or number cannot be used."""
        bounds = BOUND_PATTERN.finditer(self.text, start, end)
        bound = next(b for b in bounds if b[2] not in self.keys or not isfinite(float(b[3])))
        if bound[2] not in self.keys:
            hint = f"Write (declare-const {bound[2]} Real) before."
            return self.error(f"{bound[2]} is not declared.", bound.start(2), hint)
        return self.error(f"{_quote(bound[3])} is larger than any double.", bound.start(3), "Give finite numbers.")

    def _run_command(self, bracket: _Bracket) -> list[Formula]:
        """Run a whole statement; return the formula that it asserts, if any."""
        head, *rest = [item for item, _ in bracket.items] or [""]
        if head == "assert":
            if len(rest) != 1:
                raise self.error("assert takes one formula.", bracket.start, "Write (assert (<= X_0 1)).")
            return [self._as_formula(*bracket.items[1])]
        if head in ("declare-const", "declare-fun"):
            self._declare(rest, bracket, head == "declare-fun")
        elif head not in IGNORED_COMMANDS:
            raise self.error(f"{_quote(head)} is not a statement.", bracket.start, f"Use {', '.join(COMMANDS)}.")
        return []

    def _declare(self, rest: list[Any], bracket: _Bracket, is_function: bool) -> None:
        name, *kind = rest or [""]
        match = VARIABLE_PATTERN.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise self.error(
                f"{_quote(name)} is not a variable of a network.",
                bracket.start,
                "Variables are X_0, X_1, ... and Y_0, Y_1, ...",
            )
        if kind != ([_IGNORED, "Real"] if is_function else ["Real"]):
            raise self.error(f"{name} must be Real.", bracket.start, f"Write (declare-const {name} Real).")
        numbers, number = self.declared[match[1]], int(match[2])
        if number in numbers:
            raise self.error(f"{name} is declared twice.", bracket.start, "Declare it once.")
        if len(numbers) >= MAX_VARIABLES:
            raise self.error(
                f"There are more than {MAX_VARIABLES:,} variables.", bracket.start, "Give a smaller network."
            )
        numbers.add(number)
        self.keys[name] = number if match[1] == "X" else ~number

    def _evaluate(self, bracket: _Bracket, outer: list[_Bracket]) -> Any:
        """Return the term or formula inside a bracket."""
        first = outer[0].items[0][0] if outer[0].items else ""
        if first != "assert":
            return _IGNORED  # the () of declare-fun, or an option for a solver
        if not bracket.items:
            raise self.error("There is nothing in these brackets.", bracket.start, "Write (<= X_0 1).")
        (head, position), *arguments = bracket.items
        try:
            if isinstance(head, str) and head in ARITHMETIC:
                self._check_argument_count(head, len(arguments), 2 if head == "/" else 1, bracket)
                return ARITHMETIC[head]([self._as_term(*a) for a in arguments])
            if isinstance(head, str) and head in COMPARISONS:
                self._check_argument_count(head, len(arguments), 2, bracket)
                return COMPARISONS[head]([self._as_term(*a) for a in arguments])
            if isinstance(head, str) and head in CONNECTIVES:
                self._check_argument_count(head, len(arguments), 1, bracket)
                if head == "not" and len(arguments) > 1:
                    raise TermError("not takes one formula.", "Write (not (<= Y_0 1)).")
                return CONNECTIVES[head]([self._as_formula(*a) for a in arguments])
        except TermError as problem:
            raise self.error(problem.problem, bracket.start, problem.hint) from None
        raise self._unknown_operator(head, position)

    def _check_operator(self, word: str, position: int, brackets: list[_Bracket]) -> None:
        """Refuse an unknown operator at once, before its arguments cause another error."""
        outer = brackets[0].items
        is_operator = len(brackets) > 1 and not brackets[-1].items and outer and outer[0][0] == "assert"
        if is_operator and word not in OPERATORS:
            raise self._unknown_operator(word, position)

    def _unknown_operator(self, head: Any, position: int) -> FileError:
        return self.error(f"{_quote(head)} is not a supported operator.", position, f"Use {', '.join(OPERATORS)}.")

    def _check_argument_count(self, head: str, count: int, least: int, bracket: _Bracket) -> None:
        if count < least:
            raise self.error(
                f"{head} takes at least {count_noun(least, 'argument')}, not {count}.", bracket.start, "Add them."
            )

    def _as_term(self, item: Any, position: int) -> Term:
        if isinstance(item, Term):
            return item
        if isinstance(item, tuple):
            raise self.error("Expected a number or a variable, not a formula.", position, "Write (<= X_0 1).")
        if (name := VARIABLE_PATTERN.fullmatch(item)) is not None:
            if int(name[2]) not in self.declared[name[1]]:
                raise self.error(f"{item} is not declared.", position, f"Write (declare-const {item} Real) before.")
            return Term(0.0, {int(name[2]) if name[1] == "X" else ~int(name[2]): 1.0})
        if len(item) > limits.MAX_NAME_CHARACTERS or NUMBER_PATTERN.fullmatch(item) is None:
            raise self.error(f"{_quote(item)} is no number and no variable.", position, "Write 0.25, 1e-3, X_0 or Y_0.")
        number = float(item)
        if not isfinite(number):
            raise self.error(f"{_quote(item)} is larger than any double.", position, "Give finite numbers.")
        return Term(number)

    def _as_formula(self, item: Any, position: int) -> Formula:
        if isinstance(item, tuple):
            return item
        actual = "a term" if isinstance(item, Term) else _quote(item)
        raise self.error(f"Expected a constraint, not {actual}.", position, "Write (<= X_0 1).")

    def count_variables(self, kind: str) -> int:
        """Return the number of inputs ("X") or outputs ("Y"), which must be declared without a gap."""
        numbers = self.declared[kind]
        for number in range(len(numbers) or 1):
            if number not in numbers:
                hint = f"Declare {kind}_0, {kind}_1, ... without a gap."
                raise FileError(f"{kind}_{number} is not declared.", where=self.where, hint=hint)
        return len(numbers)

    def error(self, problem: str, position: int, hint: str) -> FileError:
        """Make the error for a position in the text, with its line and column."""
        if not self.line_starts:
            self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        line = bisect_right(self.line_starts, position)
        where = f"{self.where}, line {line}, column {position - self.line_starts[line - 1] + 1}"
        return FileError(problem, where=where, hint=hint)


class _Ignored:
    """Stands for brackets without a meaning here."""


_IGNORED = _Ignored()


def _quote(word: Any) -> str:
    if not isinstance(word, str):
        return "an expression"
    return ascii(word[:MAX_QUOTED_CHARACTERS]) + ("..." if len(word) > MAX_QUOTED_CHARACTERS else "")
