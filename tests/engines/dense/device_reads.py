"""A counter of device synchronizations that also works on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNIQUE = {"_unique2", "unique_dim", "unique_consecutive"}
SYNCHRONIZING = UNIQUE | {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal", "repeat_interleave"}


class DeviceReads(TorchDispatchMode):
    """Counts operations that would wait for a device: data-dependent sizes, scalar reads, and copies to the host."""

    def __init__(self, scalars: bool) -> None:
        super().__init__()
        self.count, self.scalars = 0, scalars

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        masked = name in ("index", "index_put_", "index_put") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        sent = self.scalars and name == "where" and any(isinstance(a, Tensor) and a.dim() == 0 for a in args)
        self.count += masked or sent or name in SYNCHRONIZING
        return func(*args, **(kwargs or {}))


@contextmanager
def count_reads(monkeypatch: pytest.MonkeyPatch, scalars: bool = True) -> Iterator[DeviceReads]:
    """Count the reads inside a `with` block; ``scalars`` also counts numbers that are sent to the device."""
    reads = DeviceReads(scalars)
    with monkeypatch.context() as patch:
        for name in ("numpy", "cpu", "tolist"):  # on a CPU they bypass the dispatcher
            function = getattr(Tensor, name)

            def counting_function(*args, function=function):
                reads.count += 1
                return function(*args)

            patch.setattr(Tensor, name, counting_function)
        for owner, name in ((torch, "tensor"), (torch, "as_tensor"), (Tensor, "new_tensor")) if scalars else ():
            function = getattr(owner, name)

            def counting_copy(*args, function=function, **options):
                reads.count += not isinstance(args[-1], Tensor)  # numbers are copied to the device
                return function(*args, **options)

            patch.setattr(owner, name, counting_copy)
        with reads:
            yield reads
