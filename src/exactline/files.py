"""Atomic writing of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import FileError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: to a temporary file in the same folder, which is then renamed.

    Raises FileError.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)  # mkstemp makes private files
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(
            f"The file cannot be written: {reason}", where=str(path), hint="Choose a folder that you can write to."
        ) from problem
