"""Which unit of a layer is meant: an index, a tuple with slices, or a function of the layer's tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .argument_errors import AttributionArgumentError
from .inputs import Tensors

NeuronSelector: TypeAlias = int | slice | tuple[int | slice, ...] | Callable[[Any], Tensor]
LINEARITY_TOLERANCE = 1e-9  # relative; far above rounding in float64, far below any function that is not linear
PROBE_SEED = 0


def select_neuron(selector: NeuronSelector, tensors: Sequence[Tensor]) -> Tensor:  # (n, *shape) each -> (n,)
    """Apply a selector to the tensors of a layer; units of slices are summed up.

    A function may return one number for the whole batch, as a sum over all of it does: it is then called with one
    example at a time.

    Raises ArgumentError for a selector that does not fit the layer.
    """
    if not callable(selector):
        index = parse_index(selector, [tuple(t.shape[1:]) for t in tensors])
        chosen = tensors[0][(slice(None), *index)]
        return chosen if chosen.dim() == 1 else chosen.flatten(1).sum(1)
    found: Any = selector(_single_or_tuple(tensors))
    count = tensors[0].shape[0]  # not len(): that would fix the batch size of a traced model
    if isinstance(found, Tensor) and found.dim() == 0:

        def select_row(*rows: Tensor) -> Tensor:
            return selector(_single_or_tuple([row[None] for row in rows]))

        found = torch.vmap(select_row)(*tensors)
    if not isinstance(found, Tensor) or found.shape[0] != count or found.shape[1:].numel() != 1:
        shape = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise _selector_error(f"The function returns {shape} for {count} examples, not one number for each")
    return found if found.dim() == 1 else found.flatten(1)[:, 0]


def unit_weights(selector: NeuronSelector, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:  # (*shape) each
    """The weights of all units in a selector: ones for the units that it names, or the coefficients of a function.

    Raises ArgumentError for functions that are not linear.
    """
    if not callable(selector):
        index = parse_index(selector, shapes)
        weights = torch.zeros(shapes[0], dtype=torch.float64)
        weights[index] = 1.0
        return [weights]
    zeros = [torch.zeros(1, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    with torch.enable_grad():
        total = select_neuron(selector, zeros).sum()
        grads = torch.autograd.grad(total, zeros, allow_unused=True) if total.requires_grad else [None] * len(zeros)
    weights = [torch.zeros(s, dtype=torch.float64) if g is None else g[0] for g, s in zip(grads, shapes, strict=True)]
    generator = torch.Generator().manual_seed(PROBE_SEED)
    points = [torch.randn(16, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    expected = torch.stack([(p * w).reshape(16, -1).sum(1) for p, w in zip(points, weights, strict=True)]).sum(0)
    size = sum(float((p * w).abs().sum()) for p, w in zip(points, weights, strict=True)) + float(total.detach().abs())
    if bool(((select_neuron(selector, points) - expected).abs() > LINEARITY_TOLERANCE * size).any()):
        raise _selector_error("The function does not select a unit: it is not linear")
    return weights


def parse_index(selector: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[int | slice, ...]:
    """Check an index into the only tensor of a layer.

    Raises ArgumentError for layers with several tensors and for an index that does not fit.
    """
    if len(shapes) > 1:
        raise _selector_error("The layer has several tensors, but an index names one element of one tensor")
    shape = shapes[0]
    index: tuple[Any, ...] = selector if isinstance(selector, tuple) else (selector,)
    try:
        units = tuple(i if isinstance(i, slice) else operator.index(i) for i in index)
    except TypeError:
        units = ()
    if not units or len(units) != len(shape) or not all(map(_fits, units, shape)):
        raise _selector_error(f"{selector!r} does not name one unit of a layer of shape {shape}")
    return units


def _fits(index: int | slice, size: int) -> bool:
    return len(range(*index.indices(size))) > 0 if isinstance(index, slice) else -size <= index < size


def _single_or_tuple(tensors: Sequence[Tensor]) -> Tensors:
    return tuple(tensors) if len(tensors) > 1 else tensors[0]


def _selector_error(problem: str) -> AttributionArgumentError:
    return AttributionArgumentError(
        f"{problem}.",
        where="argument neuron_selector",
        hint="Give an int, a tuple with an int or a slice for each dim of the layer, or a function of its tensors.",
    )
