"""Full precision while we compute: TF32, autocast and flushed subnormals are off inside and restored after."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator
from typing import Any

import torch

from .locks import settings_lock


@contextlib.contextmanager
def full_precision(kernels: bool = True) -> Generator[None]:
    """No gradients, no reduced-precision kernels, no flush to zero; everything as it was afterwards.

    Tracing runs no float32 kernel that counts, and wants torch's switches as the caller left them: kernels=False.
    """
    flushed = _flushes_subnormals()
    if flushed:
        torch.set_flush_denormal(False)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))  # what we return must work outside of it
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
        if flushed:
            torch.set_flush_denormal(True)


class _Tf32Guard:
    """The switches are global, so the first to come turns them off and the last to go turns them back."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: tuple[Any, ...] = ()

    @contextlib.contextmanager
    def off(self) -> Generator[None]:
        with settings_lock:
            if self.inside == 0:
                self.before = _get_precision()
                _set_precision(
                    ("old", "highest", False) if self.before[0] == "old" else ("new", "ieee", "ieee", "ieee")
                )
            self.inside += 1
        try:
            yield
        finally:
            with settings_lock:
                self.inside -= 1
                if self.inside == 0:
                    _set_precision(self.before)


_tf32_guard = _Tf32Guard()


def _get_precision() -> tuple[Any, ...]:
    """How torch is set, by its older switches or, for whoever used the newer ones, by those."""
    try:
        return "old", torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        backends: Any = torch.backends
        return "new", *(place.fp32_precision for place in _backend_settings(backends))


def _set_precision(wanted: tuple[Any, ...]) -> None:
    if _get_precision() == wanted:
        return
    kind, *values = wanted
    backends: Any = torch.backends
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own renaming of these switches
        if kind == "old":
            torch.set_float32_matmul_precision(values[0])
            backends.cudnn.allow_tf32 = values[1]
        else:
            for place, value in zip(_backend_settings(backends), values, strict=True):
                place.fp32_precision = value


def _backend_settings(backends: Any) -> list[Any]:
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]


def _flushes_subnormals() -> bool:
    """Whether the processor was told to read subnormal numbers as zero."""
    small = torch.tensor([1e-310], dtype=torch.float64, device="cpu")
    return float(small * 1.0) == 0.0 or float(small + small) == 0.0
