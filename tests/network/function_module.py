"""A module whose forward pass is a given function."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class FunctionModule(nn.Module):
    """Calls a function of one tensor."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)
