"""Compiled loops that are used where they save time: they are on disk, or the work pays for their compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..budget import seconds_left

# Numbers a process handles without a set of loops before they are compiled. Compilation takes 1 to 8 s of processor
# time, and NumPy takes 10 to 100 ns longer for a number: at about this many the two costs are equal, so that a process
# never takes much more than twice the time of the better choice.
MIN_NUMBERS_TO_COMPILE = 1 << 26
MIN_SECONDS_TO_LOAD = 20.0  # seconds left before a deadline: with fewer, loops are neither loaded nor compiled


class CompiledLoops:
    """A set of compiled loops that are used together.

    Args:
        load: returns the object that has the loops; raises ImportError without numba.
        names: of the loops that the set needs.
    """

    def __init__(self, load: Callable[[], Any], names: tuple[str, ...]) -> None:
        self._load, self._names = load, names
        self._found: Any = None
        self._is_missing = False
        self._numbers = 0  # handled without the loops so far
        self.is_ready = False

    def request(self, numbers: int) -> Any:
        """The loops; None where they are not installed, or would cost more time than they save.

        Args:
            numbers: how many numbers the caller is about to handle.
        """
        if self.is_ready:
            return self._found
        if self._is_missing or seconds_left() < MIN_SECONDS_TO_LOAD:
            return None
        self._numbers += numbers
        if self._numbers >= MIN_NUMBERS_TO_COMPILE or (self._found is None and self._are_compiled()):
            return self.load()
        return None

    def load(self) -> Any:
        """The loops, which are compiled at their first calls; None without numba."""
        self._import()
        self.is_ready = self._found is not None
        return self._found

    def _import(self) -> None:
        if self._found is None and not self._is_missing:
            try:
                self._found = self._load()
            except ImportError:
                self._is_missing = True

    def _are_compiled(self) -> bool:
        """Whether all loops are on disk; looked up once."""
        self._import()
        if self._found is None:
            return False
        from .jit import is_compiled

        return all(is_compiled(getattr(self._found, name)) for name in self._names)
