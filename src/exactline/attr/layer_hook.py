"""A model opened at one of its layers, so that the layer's tensors become outputs or inputs of the model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..network import ForwardRecord, unwrap_model
from .inputs import ModelLike


@dataclass(eq=False)
class LayerTrace(ForwardRecord):
    """Facts about the layer, recorded while the model is traced."""

    calls: int = 0
    is_tuple: bool = False  # whether the layer returns or takes a tuple
    output_count: int = 1  # number of tensors that the model returns
    values: list[Tensor] = field(default_factory=list[Tensor])  # the layer's tensors in its last call


class HookedModel(nn.Module):
    """A model that returns its output followed by the tensors of a layer.

    With ``substitutes`` it is the rest of the model instead: its first inputs replace the layer's tensors.

    Args:
        model: The model.
        layer: The layer, a submodule of the model.
        at_input: Whether the layer's inputs are meant rather than its outputs.
        substitutes: The number of first inputs that replace the layer's tensors.
    """

    def __init__(self, model: ModelLike, layer: nn.Module, at_input: bool, substitutes: int = 0) -> None:
        super().__init__()
        self.model = unwrap_model(model)
        self.layer = (layer,)  # in a tuple, so that it is not registered as a second submodule
        self.at_input, self.substitutes = at_input, substitutes
        self.trace = LayerTrace()

    def forward(self, *xs: Tensor) -> Any:
        self.trace.calls, self.trace.values = 0, []
        with self._install_hook(list(xs[: self.substitutes])):
            out = self.model(*xs[self.substitutes :])
        values, self.trace.values = self.trace.values, []  # tensors of a trace must not outlive it
        self.trace.output_count = len(out) if isinstance(out, (tuple, list)) else 1
        return out if self.substitutes or self.trace.output_count > 1 else (out, *values)

    @contextmanager
    def _install_hook(self, substitutes: list[Tensor]) -> Generator[None]:
        def record(value: Any) -> Any:
            self.trace.calls += 1
            self.trace.is_tuple = isinstance(value, (tuple, list))
            tensors: list[Any] = list(value) if self.trace.is_tuple else [value]
            if not substitutes and self.at_input:
                self.trace.values = [t.clone() for t in tensors]  # in-place operators may overwrite them later
                return None
            # multiplying by one makes a node of its own, even for a layer that changes nothing
            passed = [t * 1.0 for t in (substitutes or tensors)]
            self.trace.values = [t.clone() for t in passed]
            return type(value)(passed) if self.trace.is_tuple else passed[0]

        def before(_: nn.Module, inputs: Any) -> Any:
            changed = record(inputs if len(inputs) > 1 else inputs[0])
            return None if changed is None else changed if isinstance(changed, tuple) else (changed,)

        def after(_: nn.Module, inputs: Any, output: Any) -> Any:
            return record(output)

        (layer,) = self.layer
        hook = layer.register_forward_pre_hook(before) if self.at_input else layer.register_forward_hook(after)
        try:
            yield
        finally:
            hook.remove()
