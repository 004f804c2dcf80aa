"""Leave a module as it was: record everything that its forward pass can change, and restore it afterwards."""

from __future__ import annotations

import contextlib
import random
import types
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .fingerprint import GLOBAL_HOOKS
from .python_objects import read_generator_state, stored_items
from .state_walk import StateWalk

MAX_COPIED_ELEMENTS = 1 << 22  # of a tensor that is copied, to be restored if it is changed
_MISSING = object()


@contextlib.contextmanager
def preserve_state(module: nn.Module) -> Generator[StateRecorder]:
    """Restore at the end of the block whatever a forward pass inside it has changed.

    That is: attributes of the module and of the objects that it refers to, the contents of lists and dicts, tensors
    and arrays that are not very large, closures, global variables, class attributes, and random generators.

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
    walk.summarize_methods()
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield recorder
    finally:
        recorder.restore()
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        torch.set_rng_state(generators[2])


class StateRecorder:
    """Shallow copies of mutable objects, and how to restore them."""

    def __init__(self) -> None:
        self.dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self.collections: list[tuple[Any, list[Any]]] = []
        self.tensors: list[tuple[Tensor, Tensor]] = []
        self.arrays: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.cells: list[tuple[types.CellType, Any]] = []
        self.globals: list[tuple[dict[str, Any], str, Any]] = []
        self.classes: list[tuple[type, dict[str, Any]]] = []
        self.slots: list[tuple[Any, str, Any]] = []
        self.generators: list[tuple[Any, Any]] = []

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
            if value is _MISSING:
                namespace.pop(name, None)
            else:
                namespace[name] = value
        for kind, saved in self.classes:
            _restore_class(kind, saved)
        for owner, name, value in self.slots:
            if getattr(owner, name, _MISSING) is not value:
                object.__setattr__(owner, name, value)
        for generator, state in self.generators:
            _set_generator_state(generator, state)

    def record_dict(self, value: dict[Any, Any]) -> None:
        self.dicts.append((value, dict(stored_items(value))))

    def record_module(self, module: nn.Module) -> None:
        self.record_dict(vars(module))

    def record_collection(self, value: list[Any] | set[Any] | deque[Any]) -> None:
        self.collections.append((value, list(value)))

    def record_tensor(self, tensor: Tensor) -> None:
        if tensor.is_meta or tensor.is_quantized:
            return
        if tensor.layout == torch.strided and tensor.numel() <= MAX_COPIED_ELEMENTS and not tensor.is_inference():
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
        self.slots.extend((owner, name, getattr(owner, name)) for name in names if hasattr(owner, name))

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
