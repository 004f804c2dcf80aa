"""Full precision while we compute: TF32, autocast and flushed subnormals are off inside and restored after."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator

import torch


@contextlib.contextmanager
def precise() -> Generator[None]:
    """No gradients, no reduced-precision kernels, no flush to zero; everything as it was afterwards."""
    flushed = _flushes()
    if flushed:
        torch.set_flush_denormal(False)
    try:
        with torch.no_grad(), _no_tf32(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        if flushed:
            torch.set_flush_denormal(True)


@contextlib.contextmanager
def _no_tf32() -> Generator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own renaming of these switches
        matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_float32_matmul_precision(matmul)
            torch.backends.cudnn.allow_tf32 = cudnn


def _flushes() -> bool:
    """Whether the processor was told to read subnormal numbers as zero."""
    small = torch.tensor([1e-310], dtype=torch.float64, device="cpu")
    return float(small * 1.0) == 0.0 or float(small + small) == 0.0
