"""The options of a restriction: named and typed once, checked once, passed on as one frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import nn

from .budget import DEFAULT_MEMORY
from .errors import ArgumentError
from .progress import ProgressCallback

ENGINES = ("auto", "dense", "patches")
RECORDS = ("layers",)
CPU_MEMORY_DIVISOR, GPU_MEMORY_DIVISOR = 4, 2  # a sweep uses a quarter of the free memory on a CPU, half on a GPU
FALLBACK_FREE_BYTES = 4 << 30  # free memory assumed where the system does not report it


class PlaneKeywords(TypedDict, total=False):
    """Keyword arguments of `restrict_plane` and `grid`."""

    dtype: torch.dtype  # torch.float64 (default) or torch.float32
    device: torch.device | str | None  # where to compute; default: the device of the model's weights
    memory: int | None  # bytes of the working set; default: a share of the free memory
    values: bool  # False keeps only breaks and their origins
    progress: bool | ProgressCallback  # True shows a bar; a function is called with the share done and a count
    rewrite: bool  # False sweeps ReLU and maximum one after the other instead of fused
    until: str | None  # the submodule whose output replaces the model's
    output: str | int | None  # the only output to keep, by name or index, if the model has several
    max_polygons: int | None  # LimitError if there are more polygons
    seconds: float | None  # LimitError if it takes longer


class SweepKeywords(TypedDict, total=False):
    """Keyword arguments of `sweep`."""

    dtype: torch.dtype
    device: torch.device | str | None
    memory: int | None
    values: bool
    rewrite: bool
    until: str | None
    output: str | int | None
    seconds: float | None  # stop the sweep after this many seconds, with a partial answer
    engine: str  # "dense" (values at every break), "patches" (slope jumps in their receptive fields) or "auto"
    record: str | None  # "layers" also counts crossings, dead and always-on units by layer


class RestrictKeywords(SweepKeywords, total=False):
    """Keyword arguments of `restrict`, `restrict_many` and `restrict_path`."""

    progress: bool | ProgressCallback
    max_breaks: int | None  # stop the sweep after this many breaks


@dataclass(frozen=True)
class RestrictOptions:
    """All options of a restriction, after validation."""

    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    memory: int | None = None
    values: bool = True
    progress: bool | ProgressCallback = False
    rewrite: bool = True
    until: str | None = None
    output: str | int | None = None
    max_breaks: int | None = None
    max_polygons: int | None = None
    seconds: float | None = None
    engine: str = "auto"
    record: str | None = None

    @property
    def memory_budget(self) -> int:
        """Bytes of the working set."""
        return free_memory(self.device) if self.memory is None else self.memory

    @staticmethod
    def check(model: Any, keywords: Any, allowed: type) -> RestrictOptions:
        """Validate the keyword arguments of a call.

        Args:
            model: The model of the call, whose weights give the default device.
            keywords: The keyword arguments.
            allowed: The TypedDict that names the options of the called function.

        Raises ArgumentError.
        """
        names = tuple(allowed.__annotations__)
        for name in keywords:
            if name not in names:
                raise ArgumentError(
                    f"There is no option {name!r}.", where=f"argument {name}", hint=f"Options are {', '.join(names)}."
                )
        options = dict(keywords)
        dtype, until, engine = options.get("dtype", torch.float64), options.get("until"), options.get("engine", "auto")
        if dtype not in (torch.float64, torch.float32):
            raise ArgumentError(
                f"dtype must be torch.float64 or torch.float32, not {dtype}.",
                where="argument dtype",
                hint="float64 is the default; float32 is faster on some GPUs and finds false breaks.",
            )
        if engine not in ENGINES:
            raise ArgumentError(
                f"There is no engine {engine!r}.",
                where="argument engine",
                hint=f"Give one of {', '.join(repr(name) for name in ENGINES)}, or leave it out.",
            )
        if (record := options.get("record")) is not None and record not in RECORDS:
            raise ArgumentError(
                f"There is no record {record!r}.",
                where="argument record",
                hint='Give "layers", or leave it out.',
            )
        if until is not None and not isinstance(model, nn.Module) and hasattr(model, "nodes"):
            raise ArgumentError(
                "until= needs a module: a Network has no submodules.", where="argument until", hint="Give the module."
            )
        options |= {name: check_count(name, options.get(name)) for name in ("memory", "max_breaks", "max_polygons")}
        options["seconds"] = check_seconds(options.get("seconds"))
        options["device"] = select_device(model, options.get("device"))
        return RestrictOptions(**options)


def check_count(name: str, value: Any) -> int | None:
    """Validate a limit: a whole number of at least 1, or None for no limit."""
    if value is None:
        return None
    if not _is_number(value) or value < 1 or value != int(min(value, 2**62)):
        raise _bad_argument(name, value, "a whole number of at least 1")
    return int(value)


def check_seconds(value: Any) -> float | None:
    """Validate a time limit: a number of at least 0, or None for no limit."""
    if value is not None and not (_is_number(value) and value >= 0):
        raise _bad_argument("seconds", value, "a number of at least 0")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _bad_argument(name: str, value: Any, expected: str) -> ArgumentError:
    return ArgumentError(
        f"{name} must be {expected}, not {value!r}.", where=f"argument {name}", hint="Leave it out for no limit."
    )


def select_device(model: Any, device: torch.device | str | None) -> torch.device:
    """The device that the caller names, or the device of the model's weights; raises ArgumentError if unusable."""
    if device is None:
        weight = next(iter(model.parameters()), None) if isinstance(model, nn.Module) else None
        device = weight.device if weight is not None and not weight.is_meta else "cpu"
    try:
        selected = torch.device(device)
        if selected.type == "cuda" and selected.index is None:
            selected = torch.device("cuda", torch.cuda.current_device())
        if selected.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=selected)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise ArgumentError(
            f"The device {device} cannot be used: {str(problem).splitlines()[0]}",
            where="argument device",
            hint="Use 'cpu', or 'cuda' if there is a GPU.",
        ) from problem
    return selected


def free_memory(device: torch.device) -> int:
    """The default working set of a sweep on a device, in bytes."""
    if device.type == "cuda":
        return free_device_bytes(device) // GPU_MEMORY_DIVISOR
    return min(_free_bytes() // CPU_MEMORY_DIVISOR, DEFAULT_MEMORY)


def _free_bytes() -> int:
    """Memory that programs can get: on Linux with that of cached files, which the system gives back when asked."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return FALLBACK_FREE_BYTES


def free_device_bytes(device: torch.device) -> int:
    """Free bytes on a GPU, including those that torch has reserved and no tensor uses."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused
