"""A model opened at one or several of its layers, so that their tensors become outputs or inputs of the model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

from torch import Tensor, nn

from ..network import ForwardRecord, unwrap_model
from .argument_errors import AttributionArgumentError
from .inputs import ModelLike, Tensors

Layers: TypeAlias = nn.Module | Sequence[nn.Module]
LayerTensors: TypeAlias = Any  # Tensors of one layer, or a list with those of each: callers know which they gave


@dataclass(eq=False)
class LayerTrace(ForwardRecord):
    """Facts about the layers, recorded while the model is traced."""

    calls: int = 0  # of the layer that is called most often; 0 if one of them is not called
    counts: list[int] = field(default_factory=list[int])  # the number of tensors of each layer
    output_count: int = 1  # number of tensors that the model returns


class HookedModel(nn.Module):
    """A model that returns its output followed by the tensors of its layers.

    With ``substitutes`` it is the rest of the model: its first inputs replace the layers' tensors, in every call.

    Args:
        model: The model.
        layer: The layer, a submodule of the model, or several of them.
        at_input: Whether the layers' inputs are meant rather than their outputs.
        substitutes: For each layer, how many of the first inputs replace its tensors.
    """

    def __init__(self, model: ModelLike, layer: Layers, at_input: bool, substitutes: Sequence[int] = ()) -> None:
        super().__init__()
        self.model = unwrap_model(model)
        # in a tuple, so that they are not registered a second time as submodules
        self.layers = (layer,) if isinstance(layer, nn.Module) else tuple(layer)
        self.at_input, self.substitutes = at_input, tuple(substitutes)
        self.trace = LayerTrace()

    def forward(self, *xs: Tensor) -> Any:
        out, values = self._run(xs)
        self.trace.output_count = len(out) if isinstance(out, (tuple, list)) else 1
        return out if self.substitutes or self.trace.output_count > 1 else (out, *values)

    def layer_values(self, *xs: Tensor) -> list[Tensor]:
        """Return only the tensors of the layers; empty if one of them is not called."""
        values = self._run(xs)[1]
        return values if self.trace.calls else []

    def _run(self, xs: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        """Run the model; returns its output and the tensors of the layers in their last calls."""
        first = sum(self.substitutes)
        shares: list[Sequence[Tensor]] = [()] * len(self.layers)
        if self.substitutes:
            shares = split_by_counts(xs[:first], self.substitutes)
        records = [_LayerRecord(self.at_input, share) for share in shares]
        with ExitStack() as stack:
            for layer, record in zip(self.layers, records, strict=True):
                stack.enter_context(record.hook(layer))
            out = self.model(*xs[first:])
        calls = [record.calls for record in records]
        self.trace.calls = max(calls) if all(calls) else 0
        self.trace.counts = [len(record.values) for record in records]
        return out, [value for record in records for value in record.values]


class _LayerRecord:
    """The tensors of one layer in its last call during one forward pass."""

    def __init__(self, at_input: bool, substitutes: Sequence[Tensor]) -> None:
        self.at_input, self.substitutes, self.calls = at_input, substitutes, 0
        self.values: list[Tensor] = []

    def pass_on(self, value: Any) -> Any:
        """Record the tensors of one call; return what the model continues with, None for no change."""
        self.calls += 1
        items: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
        tensors = [item for item in items if isinstance(item, Tensor)]
        if not tensors:
            side = "input" if self.at_input else "output"
            raise layer_error(f"The {side} of the layer is not a tensor or a tuple with tensors")
        if not self.substitutes and self.at_input:
            self.values = [t.clone() for t in tensors]  # in-place operators may overwrite them later
            return None
        # multiplying by one makes a node of its own, even for a layer that changes nothing
        passed = [t * 1.0 for t in (self.substitutes or tensors)]
        self.values = [t.clone() for t in passed]
        return replace_tensors(value, passed)

    @contextmanager
    def hook(self, layer: nn.Module) -> Generator[None]:
        """Watch the layer, or replace its tensors."""

        def before(_: nn.Module, inputs: Any) -> Any:
            changed = self.pass_on(inputs[0] if len(inputs) == 1 else inputs)
            return None if changed is None else changed if isinstance(changed, tuple) else (changed,)

        def after(_: nn.Module, inputs: Any, output: Any) -> Any:
            return self.pass_on(output)

        handle = layer.register_forward_pre_hook(before) if self.at_input else layer.register_forward_hook(after)
        try:
            yield
        finally:
            handle.remove()


def replace_tensors(value: Any, tensors: Sequence[Tensor]) -> Any:
    """A layer's value with other tensors, in order; whatever else a tuple holds, such as None, stays."""
    if not isinstance(value, (tuple, list)):
        return tensors[0]
    rest = iter(tensors)
    items: list[Any] = [next(rest) if isinstance(item, Tensor) else item for item in value]
    make: Callable[[list[Any]], Any] = getattr(value, "_make", type(value))  # for named tuples
    return make(items)


def split_by_counts(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]]:
    """Split tensors into one group for each layer."""
    lasts = list(accumulate(counts))
    return [tensors[last - count : last] for last, count in zip(lasts, counts, strict=True)]


def arrange_by_layers(tensors: Sequence[Tensor], counts: Sequence[int], is_list: bool) -> LayerTensors:
    """Return tensors in captum's form: a tuple for a layer with several, and a list if several layers were given."""
    parts: list[Tensors] = [tuple(g) if len(g) > 1 else g[0] for g in split_by_counts(tensors, counts)]
    return parts if is_list else parts[0]


def layer_error(problem: str) -> AttributionArgumentError:
    """Make the error for a layer that cannot be attributed to."""
    return AttributionArgumentError(
        f"{problem}.", where="argument layer", hint="Give a submodule that the model calls, such as model.conv1."
    )
