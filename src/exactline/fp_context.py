"""Full precision during computations: TF32, autocast and flushing of subnormals are switched off, then restored."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Generator
from typing import Any

import torch

# Held while settings that all threads share are changed: torch's own and Python's warning filters. torch.export changes
# and restores them too.
settings_lock = threading.RLock()


@contextlib.contextmanager
def full_precision(kernels: bool = True) -> Generator[None]:
    """Compute without gradients, reduced-precision kernels and flushing to zero; restores all settings at the end.

    Args:
        kernels: False leaves torch's precision switches alone. Tracing needs that, and runs no kernel whose result
            counts.
    """
    flushes = _flushes_subnormals()
    if flushes:
        torch.set_flush_denormal(False)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))  # results must be usable outside of inference mode
            stack.enter_context(torch.no_grad())
            if kernels:
                stack.enter_context(_tf32_guard.off())
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            if torch.get_default_device().type != "cpu":
                stack.enter_context(torch.device("cpu"))
            yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)


class _Tf32Guard:
    """Counts the calls inside `off`, as the switches are global: the first turns TF32 off, the last restores it."""

    def __init__(self) -> None:
        self.users = 0
        self.original: tuple[Any, ...] = ()

    @contextlib.contextmanager
    def off(self) -> Generator[None]:
        """Switch TF32 off until the end of the block."""
        with settings_lock:
            if self.users == 0:
                self.original = _get_precision()
                _set_precision(
                    ("old", "highest", False) if self.original[0] == "old" else ("new", "ieee", "ieee", "ieee")
                )
            self.users += 1
        try:
            yield
        finally:
            with settings_lock:
                self.users -= 1
                if self.users == 0:
                    _set_precision(self.original)


_tf32_guard = _Tf32Guard()


def _get_precision() -> tuple[Any, ...]:
    """Torch's precision settings: by its old switches, or by the new ones if the caller has used those."""
    try:
        return "old", torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return "new", *(setting.fp32_precision for setting in _backend_settings())


def _set_precision(precision: tuple[Any, ...]) -> None:
    if _get_precision() == precision:
        return
    kind, *values = precision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates the old switches
        if kind == "old":
            torch.set_float32_matmul_precision(values[0])
            torch.backends.cudnn.allow_tf32 = values[1]
        else:
            for setting, value in zip(_backend_settings(), values, strict=True):
                setting.fp32_precision = value


def _backend_settings() -> list[Any]:
    backends: Any = torch.backends
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]


def _flushes_subnormals() -> bool:
    """Whether the processor is set to flush subnormal numbers to zero."""
    subnormal = torch.tensor([1e-310], dtype=torch.float64, device="cpu")
    return float(subnormal * 1.0) == 0.0 or float(subnormal + subnormal) == 0.0
