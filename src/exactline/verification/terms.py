"""Linear terms and formulas of them: what a VNNLIB file's expressions come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import isfinite
from typing import TypeAlias

CLAUSES = 20_000  # cases of one property
ATOMS = 4_000_000  # constraints of all its cases


class TermError(Exception):
    """What is wrong with an expression, and what to write; the reader says where."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


@dataclass(frozen=True)
class Term:
    """A constant and so much of each variable: X_i is the key i, Y_i is ~i."""

    constant: float
    parts: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True)
class Atom:
    """One constraint: the term is at most 0, or below 0."""

    term: Term
    strict: bool


Clause: TypeAlias = tuple[Atom, ...]  # all hold
Formula: TypeAlias = tuple[Clause, ...]  # one of these


def total(terms: Sequence[Term], signs: Sequence[float]) -> Term:
    """Terms added with their signs."""
    parts: dict[int, float] = {}
    for term, sign in zip(terms, signs, strict=True):
        for place, part in term.parts.items():
            parts[place] = parts.get(place, 0.0) + sign * part
    constant = sum(sign * term.constant for term, sign in zip(terms, signs, strict=True))
    return _finite(Term(constant, {k: v for k, v in parts.items() if v}))


def plus(terms: Sequence[Term]) -> Term:
    return total(terms, [1.0] * len(terms))


def minus(terms: Sequence[Term]) -> Term:
    return total(terms, [-1.0]) if len(terms) == 1 else total(terms, [1.0, *[-1.0] * (len(terms) - 1)])


def times(terms: Sequence[Term]) -> Term:
    """A product in which at most one factor has variables."""
    if sum(bool(t.parts) for t in terms) > 1:
        raise TermError("A product of variables is not linear.", "Only products with numbers are read.")
    scale, chosen = 1.0, Term(1.0)
    for term in terms:
        if term.parts:
            chosen = term
        else:
            scale *= term.constant
    return total([chosen], [scale])


def over(terms: Sequence[Term]) -> Term:
    """A term divided by numbers."""
    found = terms[0]
    for by in terms[1:]:
        if by.parts or not by.constant:
            raise TermError("A division by a variable or by zero is not linear.", "Divide by numbers other than 0.")
        parts = {k: v / by.constant for k, v in found.parts.items()}
        found = _finite(Term(found.constant / by.constant, parts))
    return found


def _finite(term: Term) -> Term:
    if not isfinite(term.constant) or not all(map(isfinite, term.parts.values())):
        raise TermError("A number is larger than any double.", "Scale the constraint.")
    return term


def compared(strict: bool, swap: bool) -> Callable[[Sequence[Term]], Formula]:
    """A chain of terms, each at most (or below) the next; with ``swap``, the other way."""

    def made(terms: Sequence[Term]) -> Formula:
        pairs = list(pairwise(terms))
        return (tuple(Atom(minus((b, a) if swap else (a, b)), strict) for a, b in pairs),)

    return made


def equal(terms: Sequence[Term]) -> Formula:
    """Terms that are all the same: each pair both ways."""
    return (compared(False, False)(terms)[0] + compared(False, True)(terms)[0],)


def all_of(formulas: Sequence[Formula]) -> Formula:
    """Every formula holds: the clauses multiply, and those of one clause are shared by all."""
    if len(formulas) == 1:
        return formulas[0]
    common = tuple(chain.from_iterable(f[0] for f in formulas if len(f) == 1))
    found: Formula = (common,)
    for formula in sorted((f for f in formulas if len(f) != 1), key=len):
        _counted(len(found) * len(formula), sum(map(len, found)) * len(formula) + sum(map(len, formula)) * len(found))
        found = tuple(left + right for left in found for right in formula)
    return found


def any_of(formulas: Sequence[Formula]) -> Formula:
    """One formula holds."""
    found = tuple(chain.from_iterable(formulas))
    _counted(len(found), sum(map(len, found)))
    return found


def negated(formula: Formula) -> Formula:
    """The formula does not hold: of each clause some constraint fails."""
    return all_of([tuple((Atom(total([a.term], [-1.0]), not a.strict),) for a in clause) for clause in formula])


def _counted(clauses: int, atoms: int) -> None:
    if clauses > CLAUSES or atoms > ATOMS:
        raise TermError(
            f"Taken apart, the property has {clauses:,} cases with {atoms:,} constraints;"
            f" at most {CLAUSES:,} and {ATOMS:,} are read.",
            "Split the property into several files.",
        )
