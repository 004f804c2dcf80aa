"""Compilation of loops by numba, if the extra `fast` is installed."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false, reportMissingModuleSource=false, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compile_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function with an on-disk cache, or without one where none can be written."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        return njit(nogil=True, error_model="numpy")(function)
