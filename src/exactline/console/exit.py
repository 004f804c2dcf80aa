"""How a command ends: never with a traceback, and quietly where nobody listens any more."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from errno import ENOSPC

from ..errors import ExactlineError, FileError

INTERRUPTED = 130  # as a shell reports Ctrl-C ...
UNHEARD = 141  # ... and a pipe that was closed


@contextlib.contextmanager
def dressed() -> Generator[None]:
    """Errors that are not ours as one of ours, for they are a fault of this package or of the machine."""
    try:
        yield
    except (ExactlineError, BrokenPipeError):
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno == ENOSPC:
            hush()
            where = str(problem.filename or "standard output")
            raise FileError("There is no space left to write to.", where=where, hint="Make room.") from problem
        first = (str(problem).strip().splitlines() or ["no reason given"])[0]
        raise ExactlineError(
            f"Something went wrong that should not: {type(problem).__name__}: {first}",
            hint="Add --debug to see where, and tell us.",
        ) from problem


@contextlib.contextmanager
def flushed() -> Generator[None]:
    """Say everything before the end, or end quietly where the listener has gone or the user has had enough."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        hush()
        raise SystemExit(UNHEARD) from None


def heard() -> None:
    """Open what the caller has closed, as by ``>&-``: Python has no output there, and whoever writes would fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - it stays open until the end


def hush() -> None:
    """Send what is still to be said nowhere: Python itself says a last word to standard output when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
