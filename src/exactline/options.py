"""The options of a restriction: named and typed once, checked once, passed on as one frozen value."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch import nn

from .errors import ArgumentError
from .progress import ProgressCallback

ENGINES = ("auto", "dense", "patches")
CPU_MEMORY_SHARE, GPU_MEMORY_SHARE = 4, 2  # a sweep takes one part in so many of the free memory
MAX_CPU_BYTES = 256 << 20  # a larger working set makes no sweep on a processor faster


class PlaneKeywords(TypedDict, total=False):
    """Keyword arguments of `restrict_plane` and `grid`."""

    dtype: torch.dtype  # torch.float64 (default) or torch.float32
    device: torch.device | str | None  # where to compute; default: where the model's weights are
    memory: int | None  # bytes of the working set; default: a share of the free memory
    values: bool  # False keeps only breaks and their origins
    progress: bool | ProgressCallback  # True shows a bar; a function is called with the share done and a count
    rewrite: bool  # False keeps ReLU and maximum apart instead of fusing them
    until: str | None  # the submodule whose output is wanted instead of the model's


class SweepKeywords(TypedDict, total=False):
    """Keyword arguments of `sweep`."""

    dtype: torch.dtype
    device: torch.device | str | None
    memory: int | None
    values: bool
    rewrite: bool
    until: str | None
    seconds: float | None  # end the sweep after so many seconds, with what is known by then
    engine: str  # "dense" (values at every break), "patches" (local slope jumps) or "auto"


class RestrictKeywords(SweepKeywords, total=False):
    """Keyword arguments of `restrict`, `restrict_many` and `restrict_path`."""

    progress: bool | ProgressCallback
    max_breaks: int | None  # end the sweep after so many breaks


@dataclass(frozen=True)
class RestrictOptions:
    """All options of a restriction, checked."""

    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    memory: int | None = None
    values: bool = True
    progress: bool | ProgressCallback = False
    rewrite: bool = True
    until: str | None = None
    max_breaks: int | None = None
    seconds: float | None = None
    engine: str = "auto"

    @property
    def memory_budget(self) -> int:
        """Bytes of the working set."""
        return free_memory(self.device) if self.memory is None else self.memory

    @staticmethod
    def check(model: Any, keywords: Any, allowed: type) -> RestrictOptions:
        """The options that a call gives, checked; ``allowed`` is the TypedDict that names them."""
        names = tuple(allowed.__annotations__)
        for name in keywords:
            if name not in names:
                raise ArgumentError(
                    f"There is no option {name!r}.", where=f"argument {name}", hint=f"Options are {', '.join(names)}."
                )
        given = dict(keywords)
        dtype, until, engine = given.get("dtype", torch.float64), given.get("until"), given.get("engine", "auto")
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
        if until is not None and not isinstance(model, nn.Module) and hasattr(model, "nodes"):
            raise ArgumentError(
                "until= needs a module: a Network has no submodules.", where="argument until", hint="Give the module."
            )
        given |= {name: check_count(name, given.get(name)) for name in ("memory", "max_breaks")}
        given["seconds"] = check_seconds(given.get("seconds"))
        given["device"] = select_device(model, given.get("device"))
        return RestrictOptions(**given)


def check_count(name: str, value: Any) -> int | None:
    """A limit as a whole number of at least 1; None for no limit."""
    if value is None:
        return None
    if not _is_number(value) or value < 1 or value != int(min(value, 2**62)):
        raise _bad_argument(name, value, "a whole number of at least 1")
    return int(value)


def check_seconds(value: Any) -> float | None:
    """A time limit as a number of seconds; None for no limit."""
    if value is not None and not (_is_number(value) and value >= 0):
        raise _bad_argument("seconds", value, "a number of at least 0")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _bad_argument(name: str, value: Any, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name} must be {wanted}, not {value!r}.", where=f"argument {name}", hint="Leave it out for no limit."
    )


def select_device(model: Any, device: torch.device | str | None) -> torch.device:
    """The device the caller names, or the one that holds the model's weights."""
    if device is None:
        weight = next(iter(model.parameters()), None) if isinstance(model, nn.Module) else None
        device = weight.device if weight is not None and not weight.is_meta else "cpu"
    try:
        found = torch.device(device)
        if found.type == "cuda" and found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
        if found.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise ArgumentError(
            f"The device {device} cannot be used: {str(problem).splitlines()[0]}",
            where="argument device",
            hint="Use 'cpu', or 'cuda' where there is a GPU.",
        ) from problem
    return found


def free_memory(device: torch.device) -> int:
    """The working set of a sweep where the caller names none, in bytes."""
    if device.type == "cuda":
        return free_device_bytes(device) // GPU_MEMORY_SHARE
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        free = 4 << 30
    return min(free // CPU_MEMORY_SHARE, MAX_CPU_BYTES)


def free_device_bytes(device: torch.device) -> int:
    """Bytes that a GPU has left: those nobody holds, and those torch holds but no tensor uses."""
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
