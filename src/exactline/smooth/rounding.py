"""How far rounding moves the values of a model: measured by adding random rounding errors to every operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..network.traced_node import operator_name
from ..tolerances import FLOAT64_EPS

# Operators that add up many terms: their terms are perturbed too, because terms may cancel in the sum.
SUMS = (
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "linear", "matmul", "einsum"),
    *("sum", "mean", "cumsum", "var", "var_mean", "std", "std_mean", "logsumexp", "_softmax", "_log_softmax"),
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"),
    *("linalg_vector_norm", "avg_pool2d", "_adaptive_avg_pool2d", "add", "sub", "rsub"),
)
# Operators whose results are constants, not rounded.
CONSTANTS = ("ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "scalar_tensor", "fill")
# Operators that are defined on an interval: noise must not leave it.
DOMAINS = {
    **dict.fromkeys(("binary_cross_entropy", "logit"), (0.0, 1.0)),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), (-1.0, 1.0)),
}


class RoundingNoise(TorchDispatchMode):
    """Perturbs the result of every operator by up to one ulp, at random, and the terms of sums likewise.

    The change of the model's output is then a sample of its rounding error, at about twice its size.

    Args:
        seed: of the random numbers; torch's own generator is left alone.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_inplace, name = func._schema.is_mutable, operator_name(func).removesuffix("_")
        if name in SUMS and not is_inplace:
            args = tuple(self._perturb(a) for a in args)
        if name in DOMAINS:
            args = (args[0].clamp(*DOMAINS[name]), *args[1:])
        out = func(*args, **kwargs)
        if name in CONSTANTS:
            return out
        if name == "gelu" and not is_inplace:  # x (1 + erf) / 2: the sum cancels
            out = out + args[0] * (self._factors(args[0]) - 1)
        if is_inplace:
            if isinstance(out, Tensor) and out.is_floating_point() and not out.requires_grad:
                out.mul_(self._factors(out))
            return out
        if any(r.alias_info is not None for r in func._schema.returns):  # a view: nothing is rounded
            return out
        return tuple(map(self._perturb, out)) if isinstance(out, tuple) else self._perturb(out)

    def _perturb(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float64:
            return value
        return value * self._factors(value)

    def _factors(self, x: Tensor) -> Tensor:
        if x.device not in self.generators:
            self.generators[x.device] = torch.Generator(x.device).manual_seed(self.seed)
        noise = torch.rand(x.shape, generator=self.generators[x.device], dtype=torch.float64, device=x.device)
        return 1 + FLOAT64_EPS * (2 * noise - 1)
