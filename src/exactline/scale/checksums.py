"""Checksums: of the end points of lines, of columns of such checksums, and of whole files."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats

Digests = NDArray[np.uint32]
READ_BYTES = 1 << 22  # of a file at a time


def extend_digest(data: bytes | Digests, digest: int = 0) -> int:
    """The checksum of what ``digest`` covers followed by ``data``."""
    return zlib.crc32(np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else data, digest)


def digest_rows(rows: Floats) -> Digests:  # rows is (n, k)
    """A checksum of the bits of each row: a sum of products with odd numbers, mixed before and after.

    >>> a = digest_rows(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [0.0, 1.0]]))
    >>> bool(a[0] == a[3]), len(set(a.tolist()))
    (True, 3)
    """
    words = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
    odd = np.random.Generator(np.random.PCG64(7)).integers(0, 2**63, (2, words.shape[1]), np.uint64) * 2 + 1
    mixed = (words ^ (words >> np.uint64(32))) * odd[0]
    mixed ^= mixed >> np.uint64(29)
    total = (mixed * odd[1]).sum(1, dtype=np.uint64)
    return (total >> np.uint64(32)).astype(np.uint32)


def file_crc(path: Path) -> int:
    """The CRC-32 checksum of a file."""
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            total = zlib.crc32(chunk, total)
    return total
