"""Linear terms, and formulas of linear constraints in disjunctive normal form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, pairwise
from math import isfinite
from typing import NamedTuple, TypeAlias

MAX_CLAUSES = 500_000  # clauses of a formula
MAX_ATOMS = 4_000_000  # constraints of all its clauses together


class TermError(Exception):
    """An expression that cannot be read: the problem and a hint. The parser adds where it stands."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


@dataclass(slots=True)  # not frozen, because a large property has hundreds of thousands
class Term:
    """A linear term. The key of input X_i is i, that of output Y_i is ~i."""

    constant: float
    coefficients: dict[int, float] = field(default_factory=dict[int, float])
    rounded: bool = False  # whether one of its numbers is the rounded result of arithmetic


class Atom(NamedTuple):
    """One constraint: the term is at most 0, or below 0 if it is strict."""

    term: Term
    strict: bool


Clause: TypeAlias = tuple[Atom, ...]  # a conjunction
Formula: TypeAlias = tuple[Clause, ...]  # a disjunction of clauses


def combine(terms: Sequence[Term], factors: Sequence[float]) -> Term:
    """Return the sum of the terms, each multiplied by its factor."""
    coefficients: dict[int, float] = {}
    constant, rounded = 0.0, any(term.rounded for term in terms)
    for term, factor in zip(terms, factors, strict=True):
        for variable, coefficient in term.coefficients.items():
            before = coefficients.get(variable, 0.0)
            coefficients[variable] = before + factor * coefficient
            rounded = rounded or _is_rounded(coefficients[variable], before, factor, coefficient)
        before, constant = constant, constant + factor * term.constant
        rounded = rounded or _is_rounded(constant, before, factor, term.constant)
    return _check_finite(Term(constant, {k: v for k, v in coefficients.items() if v}, rounded))


def _is_rounded(total: float, before: float, factor: float, number: float) -> bool:
    """Whether ``total`` is not exactly ``before + factor * number``."""
    if not number or (not before and factor in (1.0, -1.0)) or not isfinite(total):
        return False
    return Fraction(total) != Fraction(before) + Fraction(factor) * Fraction(number)


def add(terms: Sequence[Term]) -> Term:
    """Return the sum of the terms."""
    return combine(terms, [1.0] * len(terms))


def subtract(terms: Sequence[Term]) -> Term:
    """Return the first term less the others; a single term is negated."""
    return combine(terms, [-1.0]) if len(terms) == 1 else combine(terms, [1.0, *[-1.0] * (len(terms) - 1)])


def multiply(terms: Sequence[Term]) -> Term:
    """Return the product of the terms, at most one of which has variables."""
    if sum(bool(t.coefficients) for t in terms) > 1:
        raise TermError("A product of variables is not linear.", "Multiply variables by numbers only.")
    product, variable_term = Term(1.0), Term(1.0)
    for term in terms:
        if term.coefficients:
            variable_term = term
        else:
            product = combine([product], [term.constant])
            product.rounded = product.rounded or term.rounded
    variable_term = Term(variable_term.constant, variable_term.coefficients, variable_term.rounded or product.rounded)
    return combine([variable_term], [product.constant])


def divide(terms: Sequence[Term]) -> Term:
    """Return the first term divided by the others, which are numbers."""
    quotient = terms[0]
    for divisor in terms[1:]:
        if divisor.coefficients or not divisor.constant:
            raise TermError("A division by a variable or by zero is not linear.", "Divide by numbers other than 0.")
        coefficients = {k: v / divisor.constant for k, v in quotient.coefficients.items()}
        divided = _check_finite(Term(quotient.constant / divisor.constant, coefficients, True))
        before = (quotient.constant, *quotient.coefficients.values())
        after = (divided.constant, *divided.coefficients.values())
        exact = all(Fraction(a) * Fraction(divisor.constant) == b for a, b in zip(after, before, strict=True))
        quotient = Term(divided.constant, divided.coefficients, quotient.rounded or divisor.rounded or not exact)
    return quotient


def _check_finite(term: Term) -> Term:
    if not isfinite(term.constant) or not all(map(isfinite, term.coefficients.values())):
        raise TermError("A number is larger than any double.", "Scale the constraint.")
    return term


def make_comparison(strict: bool, swap: bool) -> Callable[[Sequence[Term]], Formula]:
    """Make a function that compares a chain of terms: each at most (or below) the next, reversed by ``swap``."""

    def compare(terms: Sequence[Term]) -> Formula:
        pairs = list(pairwise(terms))
        return (tuple(Atom(subtract((b, a) if swap else (a, b)), strict) for a, b in pairs),)

    return compare


def equate(terms: Sequence[Term]) -> Formula:
    """Return the formula that all terms are equal: each pair compared both ways."""
    return (make_comparison(False, False)(terms)[0] + make_comparison(False, True)(terms)[0],)


def conjoin(formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction, distributed over the clauses.

    Formulas of a single clause are collected first, so that they do not multiply the number of clauses.
    """
    if len(formulas) == 1:
        return formulas[0]
    common = tuple(chain.from_iterable(f[0] for f in formulas if len(f) == 1))
    clauses: Formula = (common,)
    for formula in sorted((f for f in formulas if len(f) != 1), key=len):
        atoms = sum(map(len, clauses)) * len(formula) + sum(map(len, formula)) * len(clauses)
        _check_size(len(clauses) * len(formula), atoms)
        clauses = tuple(left + right for left in clauses for right in formula)
    return clauses


def disjoin(formulas: Sequence[Formula]) -> Formula:
    """Return the disjunction: all clauses of all formulas."""
    clauses = tuple(chain.from_iterable(formulas))
    _check_size(len(clauses), sum(map(len, clauses)))
    return clauses


def negate(formula: Formula) -> Formula:
    """Return the negation: of each clause at least one constraint fails."""
    return conjoin([tuple((Atom(combine([a.term], [-1.0]), not a.strict),) for a in clause) for clause in formula])


def _check_size(clauses: int, atoms: int) -> None:
    if clauses > MAX_CLAUSES or atoms > MAX_ATOMS:
        raise TermError(
            f"In disjunctive normal form the property has {clauses:,} disjuncts with {atoms:,} constraints;"
            f" the limits are {MAX_CLAUSES:,} and {MAX_ATOMS:,}.",
            "Split the property into several files.",
        )
