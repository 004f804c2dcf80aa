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

from ..budget import block_bytes, check_deadline
from .base import flatten_units
from .masks import is_on_host

MIN_WEIGHTS = 1 << 10  # weights from which on the conversion of inputs and outputs costs less than it saves
MAX_KEPT_WEIGHTS = 1 << 24  # weights of all layers that are kept in single precision, with their squares: 128 MiB
KEPT_DIVISOR = 4  # kept weights may take one part in so many of the memory
BYTES_PER_WEIGHT = 8  # of a weight in single precision and its square
# Outputs per channel of all rows up to which a convolution is one matrix product, which reads the weights once: with
# windows of single pixels, and with larger windows, whose columns are copies.
MAX_PIXEL_COLUMNS, MAX_WINDOW_COLUMNS = 128, 32
WEIGHTS_PER_BLOCK = 1 << 17  # weights of a linear layer that are converted at a time where they are not kept
MAX_ROW_RATIO = 2.0**20  # of the largest weights of two rows: a bound on what underflows stays below 1e-12 of a row
MAX_SCALE = 2.0**90  # of the largest weight, and one over it: conversion neither overflows nor underflows
MAX_UNSCALED = 2.0**10  # of the largest weight, and one over it: scaling would change no product by a digit
FLOAT32_TINY = float(torch.finfo(torch.float32).tiny)


class Scaled(NamedTuple):
    """A tensor in single precision, divided by its largest absolute value."""

    numbers: Tensor  # (n, *in) float32, up to 1 in absolute value
    size: Tensor  # (n,) float64

    @staticmethod
    def of(x: Tensor) -> Scaled:
        """Scale every row of (n, *in)."""
        size = x.new_ones(len(x))
        if x.shape[1:].numel():
            flat = flatten_units(x)
            size = torch.maximum(flat.amax(1), flat.amin(1).neg_())
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
    """What a product has to offer: its weight, the map linear in input and weight, and the windows of a convolution."""

    @property
    def call(self) -> Callable[[Tensor, Tensor], Tensor]: ...

    @property
    def weight(self) -> Tensor: ...

    def unfold_columns(self, x: Tensor, max_columns: int) -> Tensor | None: ...


_kept: weakref.WeakKeyDictionary[ProductOp, SingleWeights] = weakref.WeakKeyDictionary()


def is_suited(weight: Tensor, largest: float, is_grouped: bool = False) -> bool:
    """Whether single precision is enough, and worth its conversions, for errors through a product with a weight.

    Grouped convolutions in double precision are slow on a CPU, however few weights they have.
    """
    if not is_on_host(weight) or weight.dtype != torch.float64 or weight.dim() < 2:
        return False
    if weight.numel() < MIN_WEIGHTS and not is_grouped:
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
    if weights is None and op.weight.numel() + kept <= _max_kept_weights():
        weights = _kept[op] = SingleWeights.of(op.weight, largest)
    unit = largest  # of the products
    if weights is None and in_blocks:
        unit = 1.0 if 1 / MAX_UNSCALED <= largest <= MAX_UNSCALED else largest
        sums, images = _multiply_in_blocks(op.weight, unit, squared, sample.numbers)
    else:
        weights = weights or SingleWeights.of(op.weight, largest)
        sums, images = _multiply(op, squared, weights.squares), _multiply(op, sample.numbers, weights.weight)
    terms = op.weight.numel() / min(op.weight.shape[:2])  # of one output at most, whichever dim is that of the outputs
    roots = sums.add_(terms * FLOAT32_TINY).sqrt_()  # each term may underflow by so much
    return _rescale(roots, deviation.size * unit), _rescale(images, sample.size * unit)


def _max_kept_weights() -> int:
    """How many weights are kept, by memory."""
    return min(MAX_KEPT_WEIGHTS, block_bytes(KEPT_DIVISOR) // BYTES_PER_WEIGHT)


def _multiply(op: ProductOp, x: Tensor, weight: Tensor) -> Tensor:
    """The product of rows (n, *in) with a weight; with few outputs per channel, one matrix product."""
    is_pixelwise = weight.dim() > 2 and weight.shape[2:].numel() == 1
    columns = op.unfold_columns(x, MAX_PIXEL_COLUMNS if is_pixelwise else MAX_WINDOW_COLUMNS)
    if columns is None:
        return op.call(x, weight)
    return torch.mm(weight.flatten(1), columns.flatten(1)).view(len(weight), *columns.shape[1:]).transpose(0, 1)


def _multiply_in_blocks(weight: Tensor, unit: float, squared: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Both products of a linear layer with its weight (out, in) in units of a number, reading it once."""
    step = max(1, WEIGHTS_PER_BLOCK // weight.shape[1])
    converted = torch.empty(step, weight.shape[1], dtype=torch.float32)
    flat = [x.reshape(-1, x.shape[-1]) for x in (squared, samples)]
    sums, images = (x.new_empty(len(weight), len(x)) for x in flat)
    for sum_rows, image_rows, rows in zip(sums.split(step), images.split(step), weight.split(step), strict=True):
        check_deadline()
        block = converted[: len(rows)].copy_(rows)
        if unit != 1:
            block.mul_(1 / unit)
        torch.mm(block, flat[1].T, out=image_rows)
        torch.mm(block.square_(), flat[0].T, out=sum_rows)
    return sums.T.reshape(*squared.shape[:-1], len(weight)), images.T.reshape(*samples.shape[:-1], len(weight))


def _rescale(x: Tensor, size: Tensor) -> Tensor:
    """Multiply rows (n, ...) in single precision by sizes (n,) in double precision."""
    return x.to(torch.float64).mul_(size.view(-1, *[1] * (x.dim() - 1)))
