"""One output of a model that returns several: an entry of a dict or an element of a tuple, chosen by the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..network import Network, unwrap_model
from .argument_errors import AttributionArgumentError
from .inputs import BATCHED, AttributionCall, ModelLike

OutputKey = str | int | None


class OneOutput(nn.Module):
    """A model that returns one entry of its dict, or one element of its tuple."""

    def __init__(self, model: ModelLike, key: str | int) -> None:
        super().__init__()
        self.model, self.key = unwrap_model(model), key

    def forward(self, *xs: Tensor) -> Any:
        out: Any = self.model(*xs)
        if isinstance(out, Mapping) and self.key not in out:
            out = list(out.values())
        return out[self.key]


def split_target(target: Any) -> tuple[OutputKey, Any]:
    """Split targets such as ("logits", 3) into an output and the target in it; the output is None without one.

    Raises ArgumentError for a list of targets in different outputs.
    """
    targets = target if isinstance(target, list) else [target]
    keys = [t[0] if isinstance(t, tuple) and t else None for t in targets]
    if not keys or any(isinstance(k, bool) or not isinstance(k, (str, int)) for k in keys):
        return None, target
    if len(set(keys)) > 1:
        if not any(isinstance(k, str) for k in keys):
            return None, target
        raise AttributionArgumentError(
            f"The targets are in different outputs: {', '.join(repr(k) for k in dict.fromkeys(keys))}.",
            where="argument target",
            hint="Attribute each output in a call of its own.",
        )
    rests = [t[1:] or None for t in targets]
    return keys[0], rests if isinstance(target, list) else rests[0]


def choose_output(model: ModelLike, call: AttributionCall, output: OutputKey, target: Any) -> tuple[OutputKey, Any]:
    """Find the output that is meant: the given one, or the first entry of the target if the model returns several."""
    if output is not None:
        return output, target
    key, rest = split_target(target)
    if key is None:
        return None, target
    several = model.several_outputs if isinstance(model, Network) else _returns_several(model, call)
    return (key, rest) if isinstance(key, str) or several else (None, target)


def select_output(model: ModelLike, call: AttributionCall, output: OutputKey) -> ModelLike | None:
    """The model with only one output; None if it does not return a dict or a tuple with this entry.

    Raises ArgumentError if there is no such entry in a dict.
    """
    if output is None or isinstance(model, Network):
        return None
    out = _first_outputs(model, call)
    if isinstance(out, Mapping):
        names = list(out)
        if output not in names and not (isinstance(output, int) and 0 <= output < len(names)):
            raise AttributionArgumentError(
                f"There is no output {output!r}: the model returns {', '.join(map(repr, names))}.",
                where="argument output",
                hint="Give one of these names.",
            )
        return OneOutput(model, output)
    is_element = isinstance(out, (tuple, list)) and isinstance(output, int) and 0 <= output < len(out)
    return OneOutput(model, output) if is_element else None


def _returns_several(model: ModelLike, call: AttributionCall) -> bool:
    return isinstance(_first_outputs(model, call), (Mapping, tuple, list))


def _first_outputs(model: ModelLike, call: AttributionCall) -> Any:
    """What the model returns for the first example; None if it fails."""
    if not len(call.lines):
        return None
    batched = iter(call.batched_args)
    extra = [next(batched)[:1] if value is BATCHED else value for value in call.extra_args]
    try:
        with torch.no_grad():
            return model(*(x[:1] for x in call.inputs), *extra)
    except Exception:  # noqa: BLE001 whatever a model raises here, the capture explains it better
        return None
