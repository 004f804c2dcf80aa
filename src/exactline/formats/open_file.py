"""Read a file as bytes within limits: regular files only, and a .gz is unpacked only up to the limit."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from ..errors import FileError
from . import limits

UNPACKED_CHUNK_BYTES = 1 << 20  # unpacked at a time
PACKED_CHUNK_BYTES = 1 << 14  # read at a time: the unused rest of a chunk is copied


def read_file(path: Path) -> bytes:
    """Read all of a file, and unpack it if its name ends in .gz.

    Raises FileError for a file that is missing, not regular, too large or damaged.
    """
    data = _read_regular_file(path)
    return _decompress(data, path) if path.name.lower().endswith(".gz") else data


def _read_regular_file(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileError("The path is not a regular file.", where=str(path), hint="Give the name of a file.")
            limits.check_limit(status.st_size, limits.MAX_FILE_BYTES, "bytes", str(path))
            return file.read(limits.MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(f"The file cannot be read: {reason}.", where=str(path), hint="Check its name.") from problem


def _decompress(data: bytes, path: Path) -> bytes:
    chunks: list[bytes] = []
    streams = total = position = 0
    try:
        while position < len(data):
            stream = zlib.decompressobj(wbits=31)
            streams += 1
            limits.check_limit(streams, limits.MAX_LAYERS, "streams of gzip", str(path))
            while not stream.eof:
                packed = data[position : position + PACKED_CHUNK_BYTES]
                chunk = stream.decompress(packed, UNPACKED_CHUNK_BYTES)
                position += len(packed) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)
                total += len(chunk)
                limits.check_limit(total, limits.MAX_FILE_BYTES, "unpacked bytes", str(path))
                chunks.append(chunk)
                if not packed and not chunk and not stream.eof:
                    raise zlib.error("it ends too early")
    except zlib.error as problem:
        raise FileError(
            f"The file is not gzip, or damaged: {problem}.", where=str(path), hint="Unpack it yourself to check it."
        ) from problem
    return b"".join(chunks)
