"""Affine operators on forms: one rule of a few lines for each."""

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
from .coefficients import coefficients
from .forms import Forms
from .integers import Rationals, read, zeros


@dataclass(frozen=True, eq=False)
class Given:
    """What an affine node reads."""

    forms: Forms
    shape: Shape


def affine(node: Node, xs: Sequence[Given]) -> Forms:
    """The forms that leave an affine node, exactly."""
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
            offset = None if op.offset is None else spread(op.offset, node.shape, where)
            return _plus(_product(op, xs[0], where), offset)
        case Average():
            return _product(op, xs[0], where)
        case _:
            raise UnsupportedError(
                f"The oracle has no rule for {op.title}.", nodes=(node.name,), where=where, hint="Add one in exact/."
            )


def _product(op: Product | Average, x: Given, where: str) -> Forms:
    matrix = coefficients(op, x.shape, where)
    return Forms(matrix @ x.forms.top, x.forms.bottom * matrix.bottom)


def _scale(op: Scale, x: Given, shape: Shape, where: str) -> Forms:
    forms = Forms(x.forms.top[_broadcast(x.shape, shape)], x.forms.bottom)
    if op.weight is not None:
        forms = _times(forms, spread(op.weight, shape, where))
    if op.divisor is not None:
        forms = _times(forms, _inverse(spread(op.divisor, shape, where), where))
    return _plus(forms, None if op.offset is None else spread(op.offset, shape, where))


def _combine(op: Combine, xs: Sequence[Given], shape: Shape) -> Forms:
    factors = [Fraction(factor) for factor in op.factors]
    bottom = lcm(*(x.forms.bottom * f.denominator for x, f in zip(xs, factors, strict=True)))
    total = None
    for x, f in zip(xs, factors, strict=True):
        share = f.numerator * (bottom // (x.forms.bottom * f.denominator))
        term = x.forms.top[_broadcast(x.shape, shape)] * share
        total = term if total is None else total + term
    return Forms(xs[0].forms.top if total is None else total, bottom)


def _rearrange(op: Rearrange, xs: Sequence[Given], where: str) -> Forms:
    index = op.index.cpu().numpy()
    fixed = index < 0
    constant = torch.zeros(int(fixed.sum())) if op.constant is None else op.constant.cpu()[torch.from_numpy(fixed)]
    constants = read(constant, where)
    bottom = lcm(constants.bottom, *(x.forms.bottom for x in xs))
    top = np.concatenate([x.forms.over(bottom).top for x in xs])
    out = zeros(len(index), *top.shape[1:])
    out[~fixed] = top[index[~fixed]]
    out[fixed, 0] = (constants.top * (bottom // constants.bottom))[:, None]
    return Forms(out, bottom)


def _times(forms: Forms, numbers: Rationals) -> Forms:  # numbers: (elements,)
    return Forms(forms.top * numbers.top[:, None, None], forms.bottom * numbers.bottom)


def _plus(forms: Forms, numbers: Rationals | None) -> Forms:  # numbers: (elements,)
    if numbers is None:
        return forms
    bottom = lcm(forms.bottom, numbers.bottom)
    top = forms.top * (bottom // forms.bottom)  # a new array, even where the factor is 1
    top[:, 0] += (numbers.top * (bottom // numbers.bottom))[:, None]
    return Forms(top, bottom)


def _inverse(numbers: Rationals, where: str) -> Rationals:
    if not all(numbers.top.tolist()):
        raise NumberError("The network divides by zero.", where=where, hint="Give a divisor that is not zero.")
    bottom = lcm(*set(numbers.top.tolist()))
    return Rationals(numbers.bottom * (bottom // numbers.top), bottom)


def spread(constant: Tensor, shape: Shape, where: str) -> Rationals:
    """A constant with one number for every element of the output."""
    distinct = read(constant, where)
    place = torch.arange(constant.numel()).view(constant.shape)
    return distinct[torch.broadcast_to(place, (1, *shape)).reshape(-1).numpy()]


def _broadcast(shape: Shape, wider: Shape) -> NDArray[np.int64]:
    """For every element of the wider shape, the flat place it reads."""
    place = torch.arange(torch.Size(shape).numel()).view(1, *shape)
    return torch.broadcast_to(place, (1, *wider)).reshape(-1).numpy()
