"""A model opened at one of its layers: what the layer gives or takes comes out as well, or comes from outside."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..network import unwrapped
from .inputs import Model


@dataclass(eq=False)
class Trace:
    """What was seen of the layer while its model was traced."""

    calls: int = 0
    several: bool = False  # whether it gives or takes a tuple
    outputs: int = 1  # how many tensors the model returns
    values: list[Tensor] = field(default_factory=list[Tensor])  # of its last call


class Probe(nn.Module):
    """The model that returns its output and then the layer's tensors.

    With ``given`` it is the rest of the model instead: the first inputs stand in for the layer's tensors.
    """

    def __init__(self, model: Model, layer: nn.Module, at_input: bool, given: int = 0) -> None:
        super().__init__()
        self.model = unwrapped(model)
        self.layer = (layer,)  # in a tuple, so that it does not count as a second submodule
        self.at_input, self.given = at_input, given
        self.trace = Trace()

    def forward(self, *xs: Tensor) -> Any:
        self.trace.calls, self.trace.values = 0, []
        with self._hooked(list(xs[: self.given])):
            out = self.model(*xs[self.given :])
        found, self.trace.values = self.trace.values, []  # no tensor of a trace may outlive it
        self.trace.outputs = len(out) if isinstance(out, (tuple, list)) else 1
        return out if self.given or self.trace.outputs > 1 else (out, *found)

    @contextmanager
    def _hooked(self, given: list[Tensor]) -> Generator[None]:
        def look(value: Any) -> Any:
            self.trace.calls += 1
            self.trace.several = isinstance(value, (tuple, list))
            tensors: list[Any] = list(value) if self.trace.several else [value]
            if not given and self.at_input:
                self.trace.values = [t.clone() for t in tensors]  # what follows may write into them
                return None
            # times one: a node of its own, also for a layer that changes nothing
            passed = [t * 1.0 for t in (given or tensors)]
            self.trace.values = [t.clone() for t in passed]
            return type(value)(passed) if self.trace.several else passed[0]

        def before(_: nn.Module, inputs: Any) -> Any:
            changed = look(inputs if len(inputs) > 1 else inputs[0])
            return None if changed is None else changed if isinstance(changed, tuple) else (changed,)

        def after(_: nn.Module, inputs: Any, output: Any) -> Any:
            return look(output)

        (layer,) = self.layer
        hook = layer.register_forward_pre_hook(before) if self.at_input else layer.register_forward_hook(after)
        try:
            yield
        finally:
            hook.remove()
