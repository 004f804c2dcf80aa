"""Results of a long study on disk, so that a study that was killed continues where it stopped.

Each result is one small JSON file, written atomically. The file is named after a hash of everything the result depends
on, so a result is never reused for another network, image or definition.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from ..errors import FileError
from ..files import write_atomically

CACHE_FOLDER = "kept"


class ResultCache:
    """The finished results of one study in a folder; without a folder nothing is stored.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     cache = ResultCache(Path(folder), "a study, version 1")
    ...     cache.put({"pieces": 3, "share": 0.1}, "network 5", "image 7")
    ...     cache.get("network 5", "image 7"), cache.get("network 5", "image 8")
    ({'pieces': 3, 'share': 0.1}, None)

    Args:
        folder: Where the subfolder of results is created; None stores nothing.
        version: Name and version of the study's definitions; results of another version are ignored.
    """

    def __init__(self, folder: Path | None, version: str) -> None:
        self.version = version
        self.folder = None if folder is None else folder / CACHE_FOLDER
        self.reused = 0  # results that did not have to be computed again

    def get_or_compute(self, compute: Callable[[], dict[str, Any]], *key: str) -> dict[str, Any]:
        """Return the result stored under a key, or compute and store it."""
        result = self.get(*key)
        if result is None:
            result = compute()
            self.put(result, *key)
        return result

    def get(self, *key: str) -> dict[str, Any] | None:
        """Return the result stored under a key, or None where it is missing or its file is damaged."""
        path = self._path(key)
        if path is None:
            return None
        try:
            stored = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(stored, dict) or stored.get("from") != [self.version, *key]:
            return None
        result = stored.get("part")
        if not isinstance(result, dict):
            return None
        self.reused += 1
        return result

    def put(self, result: dict[str, Any], *key: str) -> None:
        """Store a result; floats are read back bit for bit.

        Raises FileError if the folder cannot be written.
        """
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as problem:
            raise FileError(
                f"The folder cannot be created: {problem.strerror}.",
                where=str(path.parent),
                hint="Choose another folder with --out.",
            ) from problem
        text = json.dumps({"from": [self.version, *key], "part": result})
        write_atomically(path, text.encode())

    def _path(self, key: tuple[str, ...]) -> Path | None:
        if self.folder is None:
            return None
        name = sha256(json.dumps([self.version, *key]).encode()).hexdigest()
        return self.folder / f"{name[:40]}.json"


def measure_seconds(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Compute a result and add its processor time (``seconds``) and its wall-clock time (``wall``) in seconds."""
    cpu_start, wall_start = process_time(), perf_counter()
    result = compute()
    return result | {"seconds": process_time() - cpu_start, "wall": perf_counter() - wall_start}
