"""Leave a module as it was: record everything that its forward pass can change, and restore it afterwards."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from .fingerprint import GLOBAL_HOOKS
from .python_objects import read_generator_state, stored_items
from .state_walk import StateWalk

MAX_COPIED_ELEMENTS = 1 << 22  # of a tensor that is copied, to be restored if it is changed
# the objects behind the functions of the modules random and numpy.random
GLOBAL_GENERATORS: tuple[Any, ...] = tuple(f.__self__ for f in (random.getstate, np.random.get_state))
_MISSING = object()


@contextlib.contextmanager
def preserve_state(module: nn.Module) -> Generator[StateRecorder]:
    """Restore at the end of the block whatever a forward pass inside it has changed.

    That is: attributes of the module and of the objects that it refers to, the contents of lists and dicts, tensors
    and arrays that are not very large, closures, global variables, class attributes, the default precision, and random
    generators.

    >>> model = nn.ReLU()
    >>> model.calls = 0
    >>> with preserve_state(model):
    ...     model.calls += 1
    >>> model.calls
    0
    """
    recorder = StateRecorder()
    walk = StateWalk(recorder)
    walk.summarize_tree(module)
    for hooks in GLOBAL_HOOKS:
        walk.summarize(hooks)
    walk.summarize_reachable()
    for generator in (*GLOBAL_GENERATORS, torch.default_generator):
        recorder.record_generator(generator)
    try:
        yield recorder
    finally:
        recorder.restore()


@dataclass(frozen=True)
class _TensorState:
    """What a forward pass can change of a leaf tensor, besides its numbers."""

    tensor: Tensor
    data: Tensor  # in the same memory
    requires_grad: bool
    grad: Tensor | None
    hooks: dict[int, Any] | None

    @staticmethod
    def read(tensor: Tensor) -> _TensorState:
        hooks = tensor._backward_hooks
        return _TensorState(
            tensor, tensor.detach(), tensor.requires_grad, tensor.grad, None if hooks is None else dict(hooks)
        )

    def restore(self) -> None:
        tensor, data = self.tensor, self.data
        if tensor.is_meta or isinstance(tensor.data, FakeTensor) or tensor.data_ptr() != data.data_ptr():
            tensor.data = data
        if tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if tensor.grad is not self.grad:
            tensor.grad = self.grad
        if (tensor._backward_hooks or {}) != (self.hooks or {}):
            tensor._backward_hooks = None if self.hooks is None else OrderedDict(self.hooks)


class StateRecorder:
    """Shallow copies of mutable objects, and how to restore them."""

    def __init__(self) -> None:
        self.dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self.collections: list[tuple[Any, list[Any]]] = []
        self.tensors: list[tuple[Tensor, Tensor]] = []
        self.storages: list[_TensorState] = []
        self.arrays: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.cells: list[tuple[types.CellType, Any]] = []
        self.globals: list[tuple[dict[str, Any], str, Any]] = []
        self.classes: list[tuple[type, dict[str, Any]]] = []
        self.slots: list[tuple[Any, str, Any]] = []
        self.generators: list[tuple[Any, Any]] = []
        self.precision = torch.get_default_dtype()

    def restore(self) -> None:
        """Undo every change since the objects were recorded."""
        for value, saved in self.dicts:
            if not _same_items(value, saved):
                value.clear()
                value.update(saved)
        for value, saved in self.collections:
            if len(value) != len(saved) or any(a is not b for a, b in zip(value, saved, strict=True)):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(saved)
        for storage in self.storages:
            storage.restore()
        for tensor, copy in self.tensors:
            if not torch.equal(tensor, copy):
                with torch.no_grad():
                    tensor.copy_(copy)
        for array, copy in self.arrays:
            if not np.array_equal(array, copy, equal_nan=array.dtype.kind in "fc"):
                array[...] = copy
        for cell, contents in self.cells:
            cell.cell_contents = contents
        for namespace, name, value in self.globals:
            if value is not _MISSING:
                namespace[name] = value
            elif not isinstance(namespace.get(name), types.ModuleType):  # imports stay
                namespace.pop(name, None)
        for kind, saved in self.classes:
            _restore_class(kind, saved)
        for owner, name, value in self.slots:
            if getattr(owner, name, _MISSING) is not value:
                object.__setattr__(owner, name, value)
        for generator, state in self.generators:
            _set_generator_state(generator, state)
        torch.set_default_dtype(self.precision)

    def has_drawn_random_numbers(self) -> bool:
        """Whether a random generator has been used since it was recorded."""
        pairs = ((read_generator_state(generator), state) for generator, state in self.generators)
        return any(pickle.dumps(now) != pickle.dumps(state) for now, state in pairs)

    def record_dict(self, value: dict[Any, Any]) -> None:
        if value is not sys.modules:  # a module that tracing has imported cannot be imported again
            self.dicts.append((value, dict(stored_items(value))))

    def record_module(self, module: nn.Module) -> None:
        self.record_dict(vars(module))

    def record_collection(self, value: list[Any] | set[Any] | deque[Any]) -> None:
        self.collections.append((value, list(value)))

    def record_tensor(self, tensor: Tensor) -> None:
        if tensor.is_meta or tensor.is_quantized or tensor.is_inference() or tensor.layout != torch.strided:
            return
        if tensor.is_leaf:
            self.storages.append(_TensorState.read(tensor))
        if tensor.numel() <= MAX_COPIED_ELEMENTS:
            self.tensors.append((tensor, tensor.detach().clone()))

    def record_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.flags.writeable:
            self.arrays.append((array, array.copy()))

    def record_cell(self, cell: types.CellType) -> None:
        with contextlib.suppress(ValueError):  # an empty cell
            self.cells.append((cell, cell.cell_contents))

    def record_globals(self, namespace: dict[str, Any], names: Sequence[str]) -> None:
        self.globals.extend((namespace, name, namespace.get(name, _MISSING)) for name in names)

    def record_class(self, kind: type) -> None:
        self.classes.append((kind, dict(vars(kind))))

    def record_slots(self, owner: Any, names: Sequence[str]) -> None:
        own = [n for n in names if not isinstance(getattr(type(owner), n, None), property)]  # overridden in a subclass
        self.slots.extend((owner, name, getattr(owner, name)) for name in own if hasattr(owner, name))

    def record_generator(self, generator: Any) -> None:
        self.generators.append((generator, read_generator_state(generator)))


def _same_items(value: dict[Any, Any], saved: dict[Any, Any]) -> bool:
    """Whether a dict holds the same objects, in the same order."""
    pairs = zip(stored_items(value), saved.items(), strict=False)
    return dict.__len__(value) == len(saved) and all(k is j and v is w for (k, v), (j, w) in pairs)


def _restore_class(kind: type, saved: dict[str, Any]) -> None:
    for name in set(vars(kind)) - set(saved):
        if not (name.startswith("__") and name.endswith("__")):
            type.__delattr__(kind, name)
    for name, value in saved.items():
        if vars(kind).get(name, _MISSING) is not value and not (name.startswith("__") and name.endswith("__")):
            type.__setattr__(kind, name, value)


def _set_generator_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.tensor(state, dtype=torch.uint8))
    else:
        generator.setstate(state)
