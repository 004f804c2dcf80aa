"""Finished parts of a long study on disk: a run that was killed goes on where it stopped.

Each part is one small JSON file that appears whole or not at all. Its name is made from everything that the part was
computed from, so that another network, image or definition never finds it.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import write_atomically

FOLDER = "kept"


class Kept:
    """Parts of one study in a folder; without one nothing is kept.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     kept = Kept(Path(folder), "a study, version 1")
    ...     kept.put({"pieces": 3, "share": 0.1}, "network 5", "image 7")
    ...     kept.get("network 5", "image 7"), kept.get("network 5", "image 8")
    ({'pieces': 3, 'share': 0.1}, None)
    """

    def __init__(self, folder: Path | None, study: str) -> None:
        self.study = study
        self.folder = None if folder is None else folder / FOLDER
        self.found = 0  # parts that did not have to be computed again

    def get(self, *made_from: str) -> dict[str, Any] | None:
        """The part, or None where it has to be computed: it is missing, or the file was damaged."""
        path = self._path(made_from)
        if path is None:
            return None
        try:
            stored = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(stored, dict) or stored.get("from") != [self.study, *made_from]:
            return None
        part = stored.get("part")
        if not isinstance(part, dict):
            return None
        self.found += 1
        return part

    def put(self, part: dict[str, Any], *made_from: str) -> None:
        """Keep a part; numbers read back as the same numbers.

        Raises FileError where the folder cannot be written.
        """
        path = self._path(made_from)
        if path is None:
            return
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as problem:
            raise FileError(
                f"The folder cannot be made: {problem.strerror}.", where=str(path.parent), hint="Give another --out."
            ) from problem
        text = json.dumps({"from": [self.study, *made_from], "part": part})
        write_atomically(path, text.encode())

    def _path(self, made_from: tuple[str, ...]) -> Path | None:
        if self.folder is None:
            return None
        name = sha256(json.dumps([self.study, *made_from]).encode()).hexdigest()
        return self.folder / f"{name[:40]}.json"
