"""The peak of all tensors that are alive at one time, counted as operators allocate them: the same on any machine."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors made inside the block; buffers inside a kernel are not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}  # by address: bytes
        self.total, self.peak = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in known and storage.data_ptr() not in self.live and storage.nbytes():
                    self.live[storage.data_ptr()] = storage.nbytes()
                    self.total += storage.nbytes()
                    self.peak = max(self.peak, self.total)
                    weakref.finalize(storage, self._free, storage.data_ptr())
        return out

    def _free(self, address: int) -> None:
        self.total -= self.live.pop(address, 0)
