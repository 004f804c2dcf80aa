"""Errors through products with large constant weights: in single precision, since errors need few digits.

A float32 convolution takes a CPU a fifth to a half of the time of a float64 one. Inputs are divided by their largest
absolute value and weights by theirs, so that nothing overflows; what underflows is replaced by a bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..budget import check_deadline
from .base import flatten_units

MIN_WEIGHTS = 1 << 12  # weights from which on the conversion of inputs and outputs costs less than it saves
MAX_KEPT_WEIGHTS = 1 << 23  # weights of all layers that are kept in single precision, with their squares: 64 MiB
WEIGHTS_PER_BLOCK = 1 << 17  # weights of a linear layer that are converted at a time where they are not kept
MAX_ROW_RATIO = 2.0**20  # of the largest weights of two rows: a bound on what underflows stays below 1e-12 of a row
MAX_SCALE = 2.0**90  # of the largest weight, and one over it: conversion neither overflows nor underflows
FLOAT32_TINY = float(torch.finfo(torch.float32).tiny)


class Scaled(NamedTuple):
    """A tensor in single precision, divided by its largest absolute value."""

    numbers: Tensor  # (n, *in) float32, up to 1 in absolute value
    size: Tensor  # (n,) float64

    @staticmethod
    def of(x: Tensor) -> Scaled:
        """Scale every row of (n, *in)."""
        size = flatten_units(x).abs().amax(1) if x.shape[1:].numel() else x.new_ones(len(x))
        size = size.clamp_(min=torch.finfo(x.dtype).tiny)
        return Scaled((x / size.view(-1, *[1] * (x.dim() - 1))).to(torch.float32), size)


class SingleWeights(NamedTuple):
    """Weights in single precision, divided by the largest, and their squares."""

    weight: Tensor
    squares: Tensor

    @staticmethod
    def of(weight: Tensor, largest: float) -> SingleWeights:
        """Convert weights whose largest absolute value is given."""
        relative = weight.to(torch.float32).mul_(1 / largest)
        return SingleWeights(relative, relative.square())


class ProductOp(Protocol):
    """What a product has to offer: its weight, and the map that is linear in input and weight."""

    @property
    def call(self) -> Callable[[Tensor, Tensor], Tensor]: ...

    @property
    def weight(self) -> Tensor: ...


_kept: weakref.WeakKeyDictionary[ProductOp, SingleWeights] = weakref.WeakKeyDictionary()


def is_suited(weight: Tensor, largest: float) -> bool:
    """Whether single precision is enough, and worth its conversions, for errors through a product with a weight."""
    if weight.device.type != "cpu" or weight.dtype != torch.float64 or weight.numel() < MIN_WEIGHTS or weight.dim() < 2:
        return False
    rows = torch.maximum(*(t.abs() for t in torch.aminmax(weight.flatten(1), dim=1)))
    rows = rows[rows > 0]
    return len(rows) > 0 and 1 / MAX_SCALE < largest < MAX_SCALE and largest <= float(rows.amin()) * MAX_ROW_RATIO


def propagate(
    op: ProductOp,
    largest: float,  # weight
    deviations: Tensor,  # (n, *in)
    samples: Tensor,  # (m, *in)
    in_blocks: bool,  # whether the op is a linear layer, which may be multiplied a few outputs at a time
) -> tuple[Tensor, Tensor]:
    """The roots of sums of squares (n, *out) of independent deviations, and the images (m, *out) of samples."""
    deviation, sample = Scaled.of(deviations), Scaled.of(samples)
    squared = deviation.numbers.square_()
    weights = _kept.get(op)
    kept = sum(w.weight.numel() for w in _kept.values()) if weights is None else 0
    if weights is None and op.weight.numel() + kept <= MAX_KEPT_WEIGHTS:
        weights = _kept[op] = SingleWeights.of(op.weight, largest)
    if weights is None and in_blocks:
        sums, images = _multiply_in_blocks(op.weight, largest, squared, sample.numbers)
    else:
        weights = weights or SingleWeights.of(op.weight, largest)
        sums, images = op.call(squared, weights.squares), op.call(sample.numbers, weights.weight)
    terms = op.weight.numel() / min(op.weight.shape[:2])  # of one output at most, whichever dim is that of the outputs
    roots = sums.to(torch.float64).add_(terms * FLOAT32_TINY).sqrt_()  # each term may underflow by so much
    return _rescale(roots, deviation.size * largest), _rescale(images.to(torch.float64), sample.size * largest)


def _multiply_in_blocks(weight: Tensor, largest: float, squared: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Both products of a linear layer, reading its weight (out, in) once."""
    step = max(1, WEIGHTS_PER_BLOCK // weight.shape[1])
    converted = torch.empty(step, weight.shape[1], dtype=torch.float32)
    flat = [x.reshape(-1, x.shape[-1]) for x in (squared, samples)]
    sums, images = (x.new_empty(len(weight), len(x)) for x in flat)
    for sum_rows, image_rows, rows in zip(sums.split(step), images.split(step), weight.split(step), strict=True):
        check_deadline()
        block = converted[: len(rows)].copy_(rows).mul_(1 / largest)
        torch.mm(block, flat[1].T, out=image_rows)
        torch.mm(block.square_(), flat[0].T, out=sum_rows)
    return sums.T.reshape(*squared.shape[:-1], len(weight)), images.T.reshape(*samples.shape[:-1], len(weight))


def _rescale(x: Tensor, size: Tensor) -> Tensor:
    """Multiply rows (n, ...) by sizes (n,)."""
    return x.mul_(size.view(-1, *[1] * (x.dim() - 1)))
