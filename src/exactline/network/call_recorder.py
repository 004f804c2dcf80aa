"""Record the torch functions that a forward pass calls, with their arguments, results and modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .aten.registry import iterate_leaves

END_OF_FORWARD = "return"
NOT_RECORDED = -1  # the source of a tensor that no recorded call has made, such as a weight
FIRST_INPUT = -2  # the source of the first input; later inputs count down
# Attributes of a tensor that are the same for every batch and cannot change it.
PLAIN_ATTRIBUTES = ("dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_meta", "is_sparse", "shape")


class RecordedCall(NamedTuple):
    """One call of a torch function, or the end of the forward pass."""

    name: str
    arguments: Any
    sources: list[int]  # for each tensor among the arguments: the call that made it, NOT_RECORDED or an input
    function: Any = None
    positions: Sequence[int] = ()  # for each tensor among the arguments: its position in the results of its source
    module: nn.Module | None = None  # the innermost one whose forward pass makes the call
    result: Any = None  # what the call returned; at the end of the forward pass, what that returned
    is_current: bool = True  # whether only recorded calls have changed the arguments


class _MadeTensor(NamedTuple):
    """A tensor that a recorded call has made."""

    source: int  # the call, or an input
    position: int  # among the tensors of its result
    version: int | None  # how often the tensor had been changed in place by then
    tensor: Tensor  # kept alive, so that no other tensor gets its id


class CallRecorder(TorchFunctionMode):
    """Records the torch functions that a forward pass calls, with their arguments.

    The batch size that forward reads from the shape of a tensor is a `RecordedSize`.

    Args:
        inputs: of the forward pass.
    """

    plain_attributes = PLAIN_ATTRIBUTES

    def __init__(self, inputs: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.calls: list[RecordedCall] = []
        self.made: dict[int, _MadeTensor] = {}  # by id
        self.reads = _Reads()
        self.inputs, self.input_versions = list(inputs), [_read_version(t) for t in inputs]
        for number, tensor in enumerate(inputs):
            self.made[id(tensor)] = _MadeTensor(FIRST_INPUT - number, 0, _read_version(tensor), tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            return self._read_attribute(func, args)
        call = self._describe(name, func, (args, keywords))
        try:
            result = self.compute(func, args, keywords)
        except Exception:  # forward may catch it, and another batch may not raise it
            self.reads.note()
            raise
        if func is Tensor.size:
            result = self._mark_batch_size(args[0], result, *args[1:], **keywords)
        for position, tensor in enumerate(list_tensors(result)):
            self.made[id(tensor)] = _MadeTensor(len(self.calls), position, _read_version(tensor), tensor)
        self.calls.append(call._replace(result=result))
        return result

    def compute(self, func: Any, args: Any, keywords: Any) -> Any:
        """The result of a call."""
        result = _normalize_without_data(func, args, keywords)
        return func(*args, **keywords) if result is None else result

    def record_end(self, outputs: Any) -> None:
        """Note the end of the forward pass, and what it returns."""
        self.calls.append(self._describe(END_OF_FORWARD, None, outputs)._replace(result=outputs))
        self.reads.is_recording = False

    def changed_inputs(self) -> bool:
        """Whether forward has changed an input in place."""
        versions = [(_read_version(t), self.input_versions[i]) for i, t in enumerate(self.inputs)]
        return any(now is None or now != before for now, before in versions)

    def _describe(self, name: str, func: Any, arguments: Any) -> RecordedCall:
        """Note a call, and which earlier calls its arguments come from."""
        tensors = list_tensors(arguments)
        made = [self.made.get(id(t)) for t in tensors]
        return RecordedCall(
            name,
            _copy_arguments(arguments),
            [NOT_RECORDED if m is None else m.source for m in made],
            func,
            [0 if m is None else m.position for m in made],
            _find_calling_module(),
            is_current=all(m is None or m.version == _read_version(m.tensor) is not None for m in made),
        )

    def _read_attribute(self, func: Any, args: Any) -> Any:
        """An attribute of a tensor, such as its shape."""
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name not in self.plain_attributes:
            self.reads.note()
        value = func(*args)
        return self._mark_batch_size(args[0], value) if name == "shape" else value

    def _mark_batch_size(self, tensor: Tensor, sizes: Any, dim: int | None = None) -> Any:
        """The sizes of a tensor, or that of one dimension, where the batch size becomes a `RecordedSize`."""
        if id(tensor) not in self.made or not tensor.dim():
            return sizes
        if dim is None:
            marked = torch.Size((RecordedSize(sizes[0], self.reads), *sizes[1:]))
            if not isinstance(marked[0], RecordedSize):  # then what depends on it goes unnoticed
                self.reads.note()
            return marked
        return RecordedSize(sizes, self.reads) if dim % tensor.dim() == 0 else sizes


class _Reads:
    """Whether forward has read something of a tensor that may make it compute in another way for another batch."""

    def __init__(self) -> None:
        self.is_recording, self.are_plain = True, True

    def note(self) -> None:
        self.are_plain = self.are_plain and not self.is_recording


class RecordedSize(int):
    """The batch size in a forward pass that is recorded: arithmetic, comparisons and conversions of it are noted.

    What Python's own code reads without a method goes unnoticed, as in ``range(n)``, ``items[:n]`` and ``math.log(n)``.
    """

    reads: _Reads

    def __new__(cls, value: int, reads: _Reads) -> RecordedSize:
        size = super().__new__(cls, value)
        size.reads = reads
        return size


def _make_noted(name: str) -> Callable[..., Any]:
    original = getattr(int, name)

    def compute(self: RecordedSize, *args: Any, **keywords: Any) -> Any:
        self.reads.note()
        return original(self, *args, **keywords)

    return compute


def _make_noted_attribute(name: str) -> Callable[[RecordedSize], int]:
    original = getattr(int, name)

    def read(self: RecordedSize) -> int:
        self.reads.note()
        return original.__get__(self)

    return read


NOTED_METHODS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "int", "float", "index", "repr", "str", "format"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "truediv", "rtruediv", "mod", "rmod"),
    *("divmod", "rdivmod", "pow", "rpow", "neg", "pos", "abs", "invert", "lshift", "rlshift", "rshift", "rrshift"),
    *("and", "rand", "or", "ror", "xor", "rxor", "round", "trunc", "floor", "ceil"),
)
PUBLIC_METHODS = ("as_integer_ratio", "bit_count", "bit_length", "conjugate", "is_integer", "to_bytes")
PUBLIC_ATTRIBUTES = ("real", "imag", "numerator", "denominator")
for _name in (*(f"__{name}__" for name in NOTED_METHODS), *PUBLIC_METHODS):
    if hasattr(int, _name):  # Python 3.12 has added is_integer
        setattr(RecordedSize, _name, _make_noted(_name))
for _name in PUBLIC_ATTRIBUTES:
    setattr(RecordedSize, _name, property(_make_noted_attribute(_name)))


def record_calls(model: Callable[..., Any], recorder: CallRecorder) -> CallRecorder:
    """Record the torch calls of one forward pass on the inputs of a recorder."""
    with recorder:
        outputs = model(*recorder.inputs)
    recorder.record_end(outputs)
    return recorder


def list_tensors(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    return [leaf for leaf in iterate_leaves(value) if isinstance(leaf, Tensor)]


def _normalize_without_data(func: Any, args: Any, keywords: Any) -> Tensor | None:
    """The result of BatchNorm with fixed statistics on a tensor without data; None for other calls.

    It has the shape and type of its input. Torch's own way there decomposes the call and takes 20 times as long.
    """
    if func is not functional.batch_norm or not args or not isinstance(args[0], FakeTensor):
        return None
    is_training = args[5] if len(args) > 5 else keywords.get("training", False)
    return None if is_training else torch.empty_like(args[0])


def _copy_arguments(value: Any) -> Any:
    """Arguments as they were at the time of the call: lists and arrays may be changed later."""
    if isinstance(value, (tuple, list)):
        return [_copy_arguments(v) for v in value]
    if isinstance(value, dict):
        return [(k, _copy_arguments(v)) for k, v in value.items()]
    return value.copy() if isinstance(value, np.ndarray) else value


def _read_version(tensor: Tensor) -> int | None:
    """How often a tensor, or another that shares its memory, was changed in place; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version


def _find_calling_module() -> nn.Module | None:
    """The innermost module whose forward pass is running; None where no frame of the call stack belongs to one."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "_call_impl":
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module):
                return module
        frame = frame.f_back
    return None
