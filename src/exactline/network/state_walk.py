"""Walk over everything that is reachable from a module: summarize it by content, and record it to be restored."""

from __future__ import annotations

import decimal
import enum
import functools
import logging
import random
import re
import types
import weakref
import zlib
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef

from ..errors import CaptureError
from .code_walk import CodeWalk
from .python_objects import has_python_layout, list_slots, read_generator_state, stored_items

PLAIN_TYPES = frozenset((bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)))
DICT_TYPES = frozenset((dict, OrderedDict))  # most attributes of a module are dicts of hooks, and empty
COLLECTION_TYPES = frozenset((dict, OrderedDict, list, tuple, set, frozenset))
TENSOR_TYPES = frozenset((Tensor, nn.Parameter, nn.Buffer))
NUMPY_DTYPES = frozenset((torch.float32, torch.float64))  # that NumPy has too
IMMUTABLE_TYPES = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo),
    *(range, slice, re.Pattern, np.dtype, np.generic, types.CodeType, decimal.Decimal),
)
MAX_OBJECTS = 200_000  # objects visited; a module that refers to more is not compared
LOGGER_ATTRIBUTES = frozenset(vars(logging.Logger("")))  # that every logger has
CHECKSUM_CHUNK_WORDS = 1 << 24  # 8-byte words of a weight that are summed at a time on a device


class ForwardRecord:
    """Base class of what a forward pass records for its caller: a capture neither compares nor restores it."""


class StateWalk(CodeWalk):
    """One walk over the state that is reachable from a module.

    Summaries are made of plain values, code objects and checksums, so that equal summaries mean equal behaviour and no
    summary keeps a user's object alive. An object that was seen before is summarized by its number.
    """

    def __init__(self, recorder: Any = None) -> None:
        super().__init__(recorder)
        self.alive: list[Any] = []  # temporary objects, whose ids must not be used again during the walk
        self.pending: dict[torch.device, list[Tensor]] = {}  # checksums, fetched once per device at the end

    def summarize_tree(self, module: nn.Module) -> tuple[Any, ...]:
        """Summarize a module and all its submodules."""
        parts = list(module.named_modules())
        for _, part in parts:
            self._register(part)
        return tuple((name, self._summarize_class(type(part)), self._summarize_vars(part)) for name, part in parts)

    def fetch_checksums(self) -> tuple[Any, ...]:
        """The checksums of the tensors on each device."""
        return tuple((device, *torch.stack(sums).tolist()) for device, sums in self.pending.items())

    def summarize(self, value: Any) -> Any:
        """Summarize any object by its content."""
        try:
            return self._summarize_value(value)
        except (CaptureError, RecursionError):
            raise
        except Exception:  # noqa: BLE001  an object of the user that fails when it is looked at
            return self._give_up(value)

    def _summarize_value(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN_TYPES:
            return kind, value
        if kind in DICT_TYPES:
            return self._summarize_dict(value)
        number = self.numbers.get(id(value))
        if number is not None:
            return "seen", number
        self._register(value)
        if kind in TENSOR_TYPES:
            return self._summarize_tensor(value)
        if kind in COLLECTION_TYPES:
            return self._summarize_sequence(value)
        if len(self.numbers) > MAX_OBJECTS:
            return self._give_up(value)
        if isinstance(value, ForwardRecord):
            return kind
        if isinstance(value, IMMUTABLE_TYPES):
            return kind, value
        if isinstance(value, nn.Module):
            # a module outside of the tree, such as one in a plain list
            return self._summarize_class(kind), self._summarize_vars(value)
        if isinstance(value, types.FunctionType):
            return self._summarize_function(value)
        for types_, summarize in _SUMMARIZERS:
            if isinstance(value, types_):
                return summarize(self, value)
        return self._summarize_object(value)

    def _register(self, value: Any) -> None:
        self.numbers[id(value)] = len(self.numbers)
        self.alive.append(value)

    def _summarize_dict(self, value: dict[Any, Any]) -> tuple[Any, ...]:
        number = self.numbers.get(id(value))
        if number is not None:
            return "seen", number
        self._register(value)
        if self.recorder is not None:
            self.recorder.record_dict(value)
        return self._summarize_items(value)

    def _summarize_items(self, value: dict[Any, Any]) -> tuple[Any, ...]:
        entries: list[Any] = []
        is_recording = self.recorder is not None
        for key, item in stored_items(value):  # hundreds before each sweep: plain values and empty dicts need no call
            name = key if type(key) is str else self.summarize(key)
            kind = type(item)
            if kind in PLAIN_TYPES:
                entries += (name, kind, item)
            elif not is_recording and kind in COLLECTION_TYPES and not item:
                entries += (name, kind)
            else:
                entries += (name, self.summarize(item))
        return tuple(entries)

    def _summarize_vars(self, module: nn.Module) -> tuple[Any, ...]:
        attributes = vars(module)
        if self.recorder is not None:
            self.recorder.record_module(module)
        if isinstance(module, torch.fx.GraphModule):  # its forward is compiled: the graph is not read any more
            attributes = {k: v for k, v in attributes.items() if k not in ("_graph", "meta", "_lineno_map")}
        return self._summarize_items(attributes)

    def _summarize_sequence(self, value: Any) -> Any:
        if self.recorder is not None and isinstance(value, (list, set, deque)):
            self.recorder.record_collection(value)
        kind = type(value)
        if kind not in COLLECTION_TYPES:  # a subclass, such as a named tuple
            own = self._summarize_class(kind), self._summarize_own_vars(value)
            return own, tuple(self.summarize(item) for item in value)
        return kind, *[(type(v), v) if type(v) in PLAIN_TYPES else self.summarize(v) for v in value]

    def _summarize_mapping(self, value: dict[Any, Any]) -> Any:
        if self.recorder is not None:
            self.recorder.record_dict(value)
        own = self._summarize_class(type(value)), self._summarize_own_vars(value)
        factory = self.summarize(value.default_factory) if isinstance(value, defaultdict) else None
        return own, factory, self._summarize_items(value)

    def _summarize_own_vars(self, value: Any) -> Any:
        attributes = getattr(value, "__dict__", None)
        return self._summarize_dict(attributes) if attributes else None

    def _summarize_tensor(self, tensor: Tensor) -> tuple[Any, ...]:
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise CaptureError(
                "A lazy module has no weights yet.",
                where=type(tensor).__name__,
                hint="Call the module once on a batch to initialize its weights.",
            )
        if self.recorder is not None:
            self.recorder.record_tensor(tensor)
            return ("tensor",)
        own = self._summarize_own_vars(tensor)
        kind = (tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad, own)
        if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
            return self._give_up(tensor)
        if tensor.device.type == "cpu" and tensor.dtype in NUMPY_DTYPES and tensor.is_contiguous():
            return (*kind, zlib.crc32(tensor.detach().numpy().data))
        flat = tensor.detach().contiguous().view(-1)
        if flat.device.type == "cpu":
            return (*kind, zlib.crc32(flat.view(torch.uint8).numpy().data))
        self.pending.setdefault(flat.device, []).append(checksum_words(flat.view(torch.uint8)))
        return kind

    def _summarize_other_tensor(self, tensor: Tensor) -> Any:
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            return self._summarize_tensor(tensor)
        return self._give_up(tensor)  # a subclass may compute anything

    def _summarize_array(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype.hasobject or type(array) is not np.ndarray:
            return self._give_up(array)
        if self.recorder is not None:
            self.recorder.record_array(array)
        return array.shape, str(array.dtype), zlib.crc32(np.ascontiguousarray(array).tobytes())

    def _summarize_object(self, value: Any) -> Any:
        """Summarize an object of a Python class by its attributes."""
        kind = type(value)
        if not has_python_layout(kind):
            return self._give_up(value)
        summary: list[Any] = [self._summarize_class(kind)]
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            summary.append(self._summarize_dict(attributes))
        slots = list_slots(kind)
        if self.recorder is not None and slots:
            self.recorder.record_slots(value, slots)
        for name in slots:
            if hasattr(value, name):
                summary.append((name, self.summarize(getattr(value, name))))
        return tuple(summary)

    def _summarize_weak_reference(self, value: weakref.ref[Any]) -> Any:
        return "weak", self.summarize(value())

    def _summarize_enum(self, value: enum.Enum) -> Any:
        attributes = {k: v for k, v in vars(value).items() if k != "__objclass__"}
        return self._summarize_class(type(value)), self._summarize_items(attributes)

    def _summarize_logger(self, value: logging.Logger) -> Any:
        own = {k: v for k, v in vars(value).items() if k not in LOGGER_ATTRIBUTES}
        return value, value.getEffectiveLevel(), value.disabled, value.manager.disable, self._summarize_items(own)

    def _summarize_loose_cell(self, value: types.CellType) -> Any:
        if self.recorder is not None:
            self.recorder.record_cell(value)
        try:
            return "cell", self.summarize(value.cell_contents)
        except ValueError:
            return "empty"

    def _summarize_by_identity(self, value: Any) -> Any:
        return "same", value

    def _summarize_generator(self, value: Any) -> Any:
        """A random generator, by its state."""
        if isinstance(value, random.SystemRandom):  # draws from the operating system, and has no state to compare
            return self._give_up(value)
        if self.recorder is not None:
            self.recorder.record_generator(value)
        return repr(read_generator_state(value))


# how an object is summarized, by its type; the first match counts
# pyright: reportPrivateUsage=false
_SUMMARIZERS: tuple[tuple[Any, Any], ...] = (
    (enum.Enum, StateWalk._summarize_enum),
    (types.BuiltinFunctionType, StateWalk._summarize_builtin),
    (types.MethodWrapperType, StateWalk._summarize_builtin),
    ((list, tuple, set, frozenset, deque), StateWalk._summarize_sequence),
    (dict, StateWalk._summarize_mapping),
    (types.MethodType, StateWalk._summarize_method),
    (functools.partial, StateWalk._summarize_partial),
    (type, StateWalk._summarize_named_class),
    (types.ModuleType, StateWalk._summarize_loose_module),
    (Tensor, StateWalk._summarize_other_tensor),
    (np.ndarray, StateWalk._summarize_array),
    ((property, staticmethod, classmethod, functools.cached_property), StateWalk._summarize_descriptor),
    (weakref.ref, StateWalk._summarize_weak_reference),
    (types.CellType, StateWalk._summarize_loose_cell),
    (logging.Logger, StateWalk._summarize_logger),
    ((np.random.Generator, np.random.RandomState, random.Random, torch.Generator), StateWalk._summarize_generator),
    (
        (
            *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
            *(types.GetSetDescriptorType, types.MemberDescriptorType, np.ufunc, CustomOpDef),
            *(torch._ops.OpOverload, torch._ops.OpOverloadPacket),  # pyright: ignore[reportPrivateUsage]
        ),
        StateWalk._summarize_by_identity,
    ),
)


def checksum_words(data: Tensor) -> Tensor:
    """The sum of all 8-byte words times distinct odd numbers, so that swapped words are noticed; ``data`` is uint8."""
    if data.storage_offset() % 8:  # a view into a larger tensor that is not aligned to words
        data = data.clone()
    whole = len(data) // 8 * 8
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for words in (data[:whole].view(torch.int64), data[whole:].to(torch.int64)):
        for first in range(0, len(words), CHECKSUM_CHUNK_WORDS):
            chunk = words[first : first + CHECKSUM_CHUNK_WORDS]
            odd = torch.arange(2 * first + 1, 2 * (first + len(chunk)), 2, device=words.device)
            total = torch.add((chunk * odd).sum(), total, alpha=31)
    return total
