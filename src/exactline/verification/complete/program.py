"""A network as a program of two kinds of steps: exact affine maps, and ramps max(t, 0) of affine forms t."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .digits import DigitMatrix, Digits, Integers, find_exponent, split_floats, split_integers

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = Floats | Integers  # exact floats, or an array of fractions


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A sparse rational matrix; no position occurs twice."""

    shape: tuple[int, int]
    rows: NDArray[np.int64]  # (n,)
    columns: NDArray[np.int64]  # (n,)
    values: Numbers  # (n,)

    @staticmethod
    def from_dense(matrix: Floats) -> Coefficients:  # (rows, columns)
        """Make a sparse matrix from a dense one."""
        rows, columns = np.nonzero(matrix)
        return Coefficients((matrix.shape[0], matrix.shape[1]), rows, columns, matrix[rows, columns])


@dataclass(frozen=True, eq=False)
class AffineStep:
    """Numerators of the output: the sum of matrices times numerators of earlier steps, plus a bias."""

    sources: tuple[int, ...]  # indices of steps
    matrices: tuple[DigitMatrix, ...]
    bias: Integers | None  # (size,) numerators, for inputs that are integers
    size: int
    denominator: int  # of all numerators, for inputs that are integers

    def bias_digits(self, input_denominator: int) -> Digits | None:  # (size, digits, 1)
        """Return the bias for inputs that have a denominator."""
        return None if self.bias is None else split_integers(self.bias[:, None] * input_denominator)


@dataclass(frozen=True, eq=False)
class RampStep:
    """The numerators of max(t, 0), for every element t of an earlier step."""

    source: int
    size: int
    denominator: int


class Program:
    """The steps of a network; step 0 is the input, all inputs in one row."""

    def __init__(self, input_size: int, ramp_scale: int = 1) -> None:
        self.ramp_scale = ramp_scale  # factor of the denominator of a ramp, so that shares of forms are integers
        self.steps: list[AffineStep | RampStep | None] = [None]
        self.sizes = [input_size]
        self.denominators = [1]
        self.output = 0

    @property
    def ramps(self) -> list[int]:
        """The steps that are ramps."""
        return [i for i, step in enumerate(self.steps) if isinstance(step, RampStep)]

    @property
    def ramp_count(self) -> int:
        """The number of elements of all ramps."""
        return sum(self.sizes[i] for i in self.ramps)

    def with_rows(self, outputs: Floats, inputs: Floats) -> Program:  # (rows, outputs), (rows, inputs)
        """Copy the program with linear combinations of its outputs and inputs as its output."""
        copy = Program(self.sizes[0], self.ramp_scale)
        copy.steps, copy.sizes, copy.denominators = [*self.steps], [*self.sizes], [*self.denominators]
        terms = [(self.output, Coefficients.from_dense(outputs)), (0, Coefficients.from_dense(inputs))]
        copy.output = copy.add_affine(terms if inputs.any() else terms[:1])
        return copy

    def find_last_use(self) -> dict[int, int]:
        """Find the last step that reads each step; the output is needed to the end."""
        last = dict.fromkeys(range(len(self.steps)), 0)
        for i, step in enumerate(self.steps):
            for source in step.sources if isinstance(step, AffineStep) else (step.source,) if step else ():
                last[source] = i
        last[self.output] = len(self.steps)
        return last

    def add_ramp(self, source: int) -> int:
        """Append the ramp of a step."""
        return self._append(RampStep(source, self.sizes[source], self.denominators[source] * self.ramp_scale))

    def add_affine(self, terms: Sequence[tuple[int, Coefficients]], bias: Numbers | None = None) -> int:
        """Append the sum of matrices times earlier steps, plus a bias, (size,)."""
        needed = [self.denominators[source] * _find_denominator(matrix.values) for source, matrix in terms]
        denominator = lcm(*needed, 1 if bias is None else _find_denominator(bias))
        matrices = tuple(_make_matrix(matrix, denominator // self.denominators[source]) for source, matrix in terms)
        numerators = None if bias is None else to_integers(bias, denominator)
        size = terms[0][1].shape[0]
        return self._append(AffineStep(tuple(s for s, _ in terms), matrices, numerators, size, denominator))

    def _append(self, step: AffineStep | RampStep) -> int:
        self.steps.append(step)
        self.sizes.append(step.size)
        self.denominators.append(step.denominator)
        return len(self.steps) - 1


def to_integers(values: Numbers, scale: int) -> Integers:  # (n,)
    """Return the integers ``values * scale``."""
    fractions = [Fraction(v) * scale for v in values.tolist()]
    out = np.empty(len(fractions), dtype=object)
    out[:] = [f.numerator for f in fractions]
    return out


def _find_denominator(values: Numbers) -> int:
    if values.dtype == np.float64:
        return 1 << find_exponent(values)
    return lcm(*{v.denominator for v in values.tolist()})


def _make_matrix(matrix: Coefficients, scale: int) -> DigitMatrix:
    """Make the integer matrix of the coefficients times a scale."""
    if matrix.values.dtype == np.float64 and scale & (scale - 1) == 0:
        digits = split_floats(matrix.values[:, None], scale.bit_length() - 1)
    else:
        digits = split_integers(to_integers(matrix.values, scale)[:, None])
    order = np.lexsort((matrix.columns, matrix.rows))
    return DigitMatrix(matrix.shape, matrix.rows[order], matrix.columns[order], digits[order, :, 0])
