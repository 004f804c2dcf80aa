"""The rest of a model after the last of several calls of one layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..network import unwrap_model
from .inputs import ModelLike
from .layer_hook import replace_tensors


class RestAfterLastCall(nn.Module):
    """A model whose first inputs replace the tensors of a layer in its last call; earlier calls stay as they are.

    Args:
        model: The model.
        layer: The layer, a submodule of the model.
        at_input: Whether the layer's inputs are replaced rather than its outputs.
        calls: How often the model calls the layer.
        count: The number of tensors of the layer.
    """

    def __init__(self, model: ModelLike, layer: nn.Module, at_input: bool, calls: int, count: int) -> None:
        super().__init__()
        self.model = unwrap_model(model)
        self.layer = (layer,)  # in a tuple, so that it is not registered as a second submodule
        self.at_input, self.calls, self.count = at_input, calls, count

    def forward(self, *xs: Tensor) -> Any:
        substitutes, inputs = xs[: self.count], xs[self.count :]
        (layer,), calls = self.layer, 0

        def is_last() -> bool:
            nonlocal calls
            calls += 1
            return calls == self.calls

        def before(_: nn.Module, given: Any) -> Any:
            return replace_tensors(given, substitutes) if is_last() else None

        def after(_: nn.Module, given: Any, output: Any) -> Any:
            return replace_tensors(output, substitutes) if is_last() else None

        hook = layer.register_forward_pre_hook(before) if self.at_input else layer.register_forward_hook(after)
        try:
            return self.model(*inputs)
        finally:
            hook.remove()
