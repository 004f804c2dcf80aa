"""How often a device would be waited for, counted on a processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNIQUE = {"_unique2", "unique_dim", "unique_consecutive"}
COUNTED = UNIQUE | {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal", "repeat_interleave"}


class Reads(TorchDispatchMode):
    """How often a device would be waited for: sizes and numbers that are asked, and copies to the host."""

    def __init__(self, numbers: bool) -> None:
        super().__init__()
        self.count, self.numbers = 0, numbers

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        masked = name in ("index", "index_put_", "index_put") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        sent = self.numbers and name == "where" and any(isinstance(a, Tensor) and a.dim() == 0 for a in args)
        self.count += masked or sent or name in COUNTED
        return func(*args, **(kwargs or {}))


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, numbers: bool = True) -> Iterator[Reads]:
    """Count what is asked from here on; with ``numbers`` also those that may have to be sent there."""
    reads = Reads(numbers)
    with monkeypatch.context() as patch:
        for name in ("numpy", "cpu", "tolist"):  # on a processor these go past the dispatcher
            function = getattr(Tensor, name)

            def counted(*args, function=function):
                reads.count += 1
                return function(*args)

            patch.setattr(Tensor, name, counted)
        with reads:
            yield reads
