"""The time and memory that the running computation may use: loops ask whether time is left, blocks are sized by memory.

An engine sets the budget around a part of its work. Operators, error estimates and evaluations read it where they
divide their work into blocks, so that it is not passed through every function between them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace

DEFAULT_MEMORY = 512 << 20  # bytes of a working set on a CPU; a larger one makes no sweep much faster
MIN_MEMORY = 256 << 20  # bytes: smaller budgets may be exceeded up to here where a network needs as much
BLOCK_DIVISOR = 16  # one block of temporary numbers may take one part in so many of the memory
MIN_BLOCK_BYTES = 1 << 20  # bytes of a block, however little memory there is


class DeadlineReached(Exception):
    """The deadline has passed: the engine discards the unfinished part and returns what it has."""


@dataclass(frozen=True)
class Budget:
    """The limits of a computation."""

    deadline: float = float("inf")  # on the clock of time.monotonic
    memory: int = DEFAULT_MEMORY  # bytes


_budget: ContextVar[Budget] = ContextVar("budget", default=Budget())  # noqa: B039  frozen


@contextmanager
def enforce_budget(budget: Budget) -> Generator[None]:
    """Make `check_deadline` and `block_bytes` follow a budget inside the block.

    >>> with enforce_budget(Budget(deadline=time.monotonic() - 1)):
    ...     check_deadline()
    Traceback (most recent call last):
    ...
    exactline.budget.DeadlineReached
    """
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


@contextmanager
def limit_memory(memory: int) -> Generator[None]:
    """Make `block_bytes` follow a memory of at most so many bytes inside the block.

    >>> with limit_memory(256 << 20):
    ...     block_bytes() >> 20
    16
    """
    budget = _budget.get()
    with enforce_budget(replace(budget, memory=min(budget.memory, memory))):
        yield


def seconds_left() -> float:
    """Seconds until the deadline; infinity if there is none."""
    deadline = _budget.get().deadline
    return deadline - time.monotonic() if deadline < float("inf") else deadline


def check_deadline() -> None:
    """Raise `DeadlineReached` if the deadline has passed."""
    deadline = _budget.get().deadline
    if deadline < float("inf") and time.monotonic() > deadline:
        raise DeadlineReached


def block_bytes(divisor: int = BLOCK_DIVISOR) -> int:
    """Bytes that one block of temporary numbers may take on a CPU: a share of the memory.

    >>> with enforce_budget(Budget(memory=1 << 30)):
    ...     block_bytes() >> 20
    64
    """
    return max(_budget.get().memory // divisor, MIN_BLOCK_BYTES)


def release_free_memory() -> None:
    """Give memory that was freed back to the system, where the allocator of the process can."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
