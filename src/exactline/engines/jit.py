"""Compilation of loops by numba, if the extra `fast` is installed, once a process does enough work to pay for it."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false, reportMissingModuleSource=false, reportMissingImports=false

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


class OptionalCache(FunctionCache):
    """Compiled code on disk, which is left out where it cannot be read or written.

    Workers of the server may write no files, disks are full, and folders belong to somebody else. An index that another
    version of this package has written may name classes that are gone; numba reads it before it compares versions.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            return None
        except Exception:  # noqa: BLE001  whatever unpickling raises
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def holds_code(self, target_context: Any) -> bool:
        """Whether there is compiled code for this processor on disk."""
        processor = target_context.codegen().magic_tuple()
        try:
            return any(key[1] == processor for key in self._cache_file._load_index())  # pyright: ignore[reportPrivateUsage]
        except Exception:  # noqa: BLE001  whatever unpickling raises
            return False

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


def compile_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function at its first call, with an on-disk cache where there is a place for one."""
    loop = njit(nogil=True, error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # no folder to cache in
        loop._cache = OptionalCache(function)  # pyright: ignore[reportAttributeAccessIssue]
    return loop


def is_compiled(loop: Any) -> bool:
    """Whether the first call of a loop compiles nothing: it has been called before, or its code is on disk."""
    if loop.signatures:
        return True
    return isinstance(loop._cache, OptionalCache) and loop._cache.holds_code(loop.targetctx)
