"""How a command ends: without a traceback, and quietly if its output is no longer read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from errno import ENOSPC

from ..errors import ExactlineError, FileError

INTERRUPTED_STATUS = 130  # the status that a shell reports for Ctrl-C
CLOSED_PIPE_STATUS = 141  # the status that a shell reports for a closed pipe


@contextlib.contextmanager
def wrap_unexpected_errors() -> Generator[None]:
    """Raise every unexpected error as an ExactlineError, and a full disk as a FileError."""
    try:
        yield
    except (ExactlineError, BrokenPipeError):
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno == ENOSPC:
            silence_stdout()
            where = str(problem.filename or "standard output")
            raise FileError("There is no space left on the device.", where=where, hint="Free some space.") from problem
        first_line = (str(problem).strip().splitlines() or ["no message"])[0]
        raise ExactlineError(
            f"An unexpected error occurred: {type(problem).__name__}: {first_line}",
            hint="Run again with --debug to see where, and report it.",
        ) from problem


@contextlib.contextmanager
def exit_cleanly() -> Generator[None]:
    """Flush standard output at the end; exit quietly on Ctrl-C and on a closed pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED_STATUS) from None
    except BrokenPipeError:
        silence_stdout()
        raise SystemExit(CLOSED_PIPE_STATUS) from None


def reopen_closed_streams() -> None:
    """Send standard output and error to nowhere if the caller has closed them (``>&-``): writing to them would fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - stays open until the process ends


def silence_stdout() -> None:
    """Redirect standard output to nowhere, because Python itself flushes it once more when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
