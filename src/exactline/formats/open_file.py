"""Files as bytes, within limits: regular files only, and what a .gz unpacks to is counted as it comes."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from ..errors import FileError
from . import limits

CHUNK, PIECE = 1 << 20, 1 << 14  # bytes given out and taken in at a time


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
    streams = total = at = 0
    try:
        while at < len(data):
            stream = zlib.decompressobj(wbits=31)
            streams += 1
            limits.within(streams, limits.LAYERS, "streams of gzip", str(path))
            while not stream.eof:
                piece = data[at : at + PIECE]  # little at a time: what is left over is copied
                part = stream.decompress(piece, CHUNK)
                at += len(piece) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)
                total += len(part)
                limits.within(total, limits.FILE, "unpacked bytes", str(path))
                parts.append(part)
                if not piece and not part and not stream.eof:
                    raise zlib.error("it ends too early")
    except zlib.error as problem:
        raise FileError(
            f"The file is not gzip, or damaged: {problem}.", where=str(path), hint="Unpack it and look."
        ) from problem
    return b"".join(parts)
