"""Models that take integers, such as token ids: evaluated as they are, and attributed from a layer's tensors on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..fp_context import full_precision
from ..network import Network, unwrap_model
from .inputs import BATCHED, MAX_EVALUATED_EXAMPLES, AttributionCall, ModelLike, flatten_targets
from .layer_hook import HookedModel, layer_error

MODEL_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError)  # of a forward pass


def has_integers(call: AttributionCall) -> bool:
    """Whether some inputs are integers, which may be token ids."""
    return not isinstance(call.model, Network) and any(
        not x.is_floating_point() and x.dtype != torch.bool for x in call.inputs
    )


@dataclass(frozen=True)
class LayerEnds:
    """The tensors of the layers at the baselines and at the inputs."""

    starts: tuple[Tensor, ...]  # (n, *shape) each, in float64
    ends: tuple[Tensor, ...]
    counts: tuple[int, ...]  # the number of tensors of each layer
    dtype: torch.dtype  # of the model


def evaluate_layer_ends(hooked: HookedModel, call: AttributionCall) -> LayerEnds | None:
    """Evaluate the layers for integer inputs and baselines; None if the model does not take integers.

    Raises ArgumentError for layers that are not called, and for tensors of integers, such as the input of an embedding.
    """
    found = _evaluate_ends(hooked, call)
    if found is None:
        return None
    if not hooked.trace.calls:
        raise layer_error("Layer takes no part in the forward pass")
    if not all(t.is_floating_point() for t in found[1][1:]):
        raise layer_error("The layer's tensors are integers, which have no gradient")
    starts, ends = (tuple(t.to(torch.float64) for t in side[1:]) for side in found)
    dtypes = [p.dtype for p in hooked.parameters() if p.is_floating_point()]
    return LayerEnds(starts, ends, tuple(hooked.trace.counts), (dtypes or [torch.get_default_dtype()])[0])


def output_change(call: AttributionCall, target: Any) -> Tensor | None:  # (n,)
    """The target at the inputs minus the target at the baselines; None if the model does not take integers."""
    found = _evaluate_ends(unwrap_model(call.model), call)
    if found is None or len(found[0]) != 1:
        return None
    start, end = (side[0].to(torch.float64) for side in found)
    targets = flatten_targets(target, tuple(end.shape[1:]), len(end)).to(end.device)
    return (end - start).reshape(len(end), -1).gather(1, targets[:, None])[:, 0].cpu()


class CastArguments(nn.Module):
    """The rest of a model behind its layers, whose integer arguments are passed in as float64.

    Where the model does not use them, because a layer that read them has been replaced, one graph serves all examples.
    """

    def __init__(self, rest: ModelLike, inputs: int, dtypes: Sequence[torch.dtype | None]) -> None:
        super().__init__()
        self.rest, self.inputs, self.dtypes = unwrap_model(rest), inputs, list(dtypes)

    def forward(self, *xs: Any) -> Any:
        arguments = zip(xs[self.inputs :], self.dtypes, strict=True)
        return self.rest(*xs[: self.inputs], *(x if dtype is None else x.to(dtype) for x, dtype in arguments))


def integer_arguments(call: AttributionCall) -> list[Any]:
    """The arguments of the model as they were given."""
    batched = iter(call.batched_args)
    return [*call.inputs, *(next(batched) if value is BATCHED else value for value in call.extra_args)]


def float_arguments(call: AttributionCall) -> tuple[list[Any], list[torch.dtype | None]]:
    """The arguments of the model with batched integers as float64, and the types to cast them back to."""
    values = integer_arguments(call)
    is_batched = [True] * len(call.inputs) + [value is BATCHED for value in call.extra_args]
    dtypes = [v.dtype if b and not v.is_floating_point() else None for v, b in zip(values, is_batched, strict=True)]
    return [v if d is None else v.double() for v, d in zip(values, dtypes, strict=True)], dtypes


def _evaluate_ends(model: nn.Module, call: AttributionCall) -> tuple[list[Tensor], list[Tensor]] | None:
    baselines = [a.to(x.device, x.dtype) for a, x in zip(call.lines.starts, call.inputs, strict=True)]
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    doubled = {name: w.detach().double() for name, w in weights.items() if w.is_floating_point()}
    for state in (doubled, {}):  # a model that casts its values itself may fail in float64
        try:
            with torch.no_grad(), full_precision():
                return _evaluate(model, state, baselines, call), _evaluate(model, state, call.inputs, call)
        except MODEL_ERRORS:
            continue
    return None


def _evaluate(
    model: nn.Module, state: dict[str, Tensor], inputs: Sequence[Tensor], call: AttributionCall
) -> list[Tensor]:  # (n, *shape) each
    parts: list[tuple[Tensor, ...]] = []
    for first in range(0, max(1, len(inputs[0])), MAX_EVALUATED_EXAMPLES):
        rows = slice(first, first + MAX_EVALUATED_EXAMPLES)
        batched = iter(call.batched_args)
        extra = [next(batched)[rows] if value is BATCHED else value for value in call.extra_args]
        out = functional_call(model, state, (*(x[rows] for x in inputs), *extra))
        parts.append(tuple(out) if isinstance(out, (tuple, list)) else (out,))
    return [torch.cat(column) for column in zip(*parts, strict=True)]
