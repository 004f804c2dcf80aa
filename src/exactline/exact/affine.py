"""Affine operators in rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NumberError, UnsupportedError
from ..network.graph import Node, Shape
from ..ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from .coefficients import compute_coefficients
from .forms import AffineForms
from .integers import Rationals, make_zeros, read_rationals


@dataclass(frozen=True, eq=False)
class AffineInput:
    """One input of an affine node on a line."""

    forms: AffineForms
    shape: Shape  # of one point


def evaluate_affine(node: Node, xs: Sequence[AffineInput]) -> AffineForms:
    """Evaluate an affine node exactly; raises UnsupportedError for an operator without a rule."""
    op, where = node.op, repr(node)
    match op:
        case Reshape():
            return xs[0].forms
        case Rearrange():
            return _rearrange(op, xs, where)
        case Combine():
            return _combine(op, xs, node.shape)
        case Scale():
            return _scale(op, xs[0], node.shape, where)
        case Product():
            offset = None if op.offset is None else expand_constant(op.offset, node.shape, where)
            return _add_constant(_product(op, xs[0], where), offset)
        case Average():
            return _product(op, xs[0], where)
        case _:
            raise UnsupportedError(
                f"There is no rule in rational arithmetic for {op.title}.",
                nodes=(node.name,),
                where=where,
                hint="Add one in exact/.",
            )


def _product(op: Product | Average, x: AffineInput, where: str) -> AffineForms:
    matrix = compute_coefficients(op, x.shape, where)
    return AffineForms(matrix @ x.forms.numerators, x.forms.denominator * matrix.denominator)


def _scale(op: Scale, x: AffineInput, shape: Shape, where: str) -> AffineForms:
    forms = AffineForms(x.forms.numerators[_broadcast_indices(x.shape, shape)], x.forms.denominator)
    if op.weight is not None:
        forms = _multiply(forms, expand_constant(op.weight, shape, where))
    if op.divisor is not None:
        forms = _multiply(forms, _invert(expand_constant(op.divisor, shape, where), where))
    return _add_constant(forms, None if op.offset is None else expand_constant(op.offset, shape, where))


def _combine(op: Combine, xs: Sequence[AffineInput], shape: Shape) -> AffineForms:
    factors = [Fraction(factor) for factor in op.factors]
    denominator = lcm(*(x.forms.denominator * f.denominator for x, f in zip(xs, factors, strict=True)))
    total = None
    for x, f in zip(xs, factors, strict=True):
        multiplier = f.numerator * (denominator // (x.forms.denominator * f.denominator))
        term = x.forms.numerators[_broadcast_indices(x.shape, shape)] * multiplier
        total = term if total is None else total + term
    return AffineForms(xs[0].forms.numerators if total is None else total, denominator)


def _rearrange(op: Rearrange, xs: Sequence[AffineInput], where: str) -> AffineForms:
    index = op.index.cpu().numpy()
    is_constant = index < 0
    no_constant = torch.zeros(int(is_constant.sum()))
    constant = no_constant if op.constant is None else op.constant.cpu()[torch.from_numpy(is_constant)]
    constants = read_rationals(constant, where)
    denominator = lcm(constants.denominator, *(x.forms.denominator for x in xs))
    numerators = np.concatenate([x.forms.with_denominator(denominator).numerators for x in xs])
    out = make_zeros(len(index), *numerators.shape[1:])
    out[~is_constant] = numerators[index[~is_constant]]
    out[is_constant, 0] = (constants.numerators * (denominator // constants.denominator))[:, None]
    return AffineForms(out, denominator)


def _multiply(forms: AffineForms, numbers: Rationals) -> AffineForms:  # numbers: (elements,)
    return AffineForms(forms.numerators * numbers.numerators[:, None, None], forms.denominator * numbers.denominator)


def _add_constant(forms: AffineForms, numbers: Rationals | None) -> AffineForms:  # numbers: (elements,)
    if numbers is None:
        return forms
    denominator = lcm(forms.denominator, numbers.denominator)
    numerators = forms.numerators * (denominator // forms.denominator)  # a new array, even where the factor is 1
    numerators[:, 0] += (numbers.numerators * (denominator // numbers.denominator))[:, None]
    return AffineForms(numerators, denominator)


def _invert(numbers: Rationals, where: str) -> Rationals:
    if not all(numbers.numerators.tolist()):
        raise NumberError("The network divides by zero.", where=where, hint="Give a divisor that is not zero.")
    denominator = lcm(*set(numbers.numerators.tolist()))
    return Rationals(numbers.denominator * (denominator // numbers.numerators), denominator)


def expand_constant(constant: Tensor, shape: Shape, where: str) -> Rationals:
    """Broadcast a constant to one rational for every element of a shape."""
    numbers = read_rationals(constant, where)
    index = torch.arange(constant.numel()).view(constant.shape)
    return numbers[torch.broadcast_to(index, (1, *shape)).reshape(-1).numpy()]


def _broadcast_indices(shape: Shape, larger: Shape) -> NDArray[np.int64]:
    """The flat index in a shape that each element of a larger shape reads after broadcasting."""
    index = torch.arange(torch.Size(shape).numel()).view(1, *shape)
    return torch.broadcast_to(index, (1, *larger)).reshape(-1).numpy()
