"""Files as bytes, within limits: regular files only, and what a .gz unpacks to is counted as it comes."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from ..errors import FileError
from . import limits

CHUNK = 1 << 20


def opened(path: Path) -> bytes:
    """All of a file, unpacked where its name ends in .gz."""
    data = _read(path)
    return _unpacked(data, path) if path.name.lower().endswith(".gz") else data


def _read(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise FileError("It is not a regular file.", where=str(path), hint="Give the name of a file.")
            limits.within(facts.st_size, limits.FILE, "bytes", str(path))
            return file.read(limits.FILE + 1)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(f"The file cannot be read: {reason}.", where=str(path), hint="Check its name.") from problem


def _unpacked(data: bytes, path: Path) -> bytes:
    parts: list[bytes] = []
    total = 0
    rest = data
    try:
        while rest:
            stream = zlib.decompressobj(wbits=31)
            while not stream.eof:
                part = stream.decompress(rest, CHUNK)
                rest = stream.unconsumed_tail or stream.unused_data
                total += len(part)
                limits.within(total, limits.FILE, "unpacked bytes", str(path))
                parts.append(part)
                if not part and not stream.eof and not stream.unconsumed_tail:
                    raise zlib.error("it ends too early")
            rest = stream.unused_data
    except zlib.error as problem:
        raise FileError(
            f"The file is not gzip, or damaged: {problem}.", where=str(path), hint="Unpack it and look."
        ) from problem
    return b"".join(parts)
