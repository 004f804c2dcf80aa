"""Writes a folder of bad files, and a list of what must be said of each: ``python -m tests.corpus.make FOLDER``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from .containers import container_files, prepared
from .onnx_files import onnx_files
from .onnx_nodes import node_files
from .text_files import Bad, eran_files, nnet_files

MANIFEST = "manifest.json"


def bad_files() -> Iterator[Bad]:
    """Every bad file."""
    return chain(nnet_files(), eran_files(), onnx_files(), node_files(), container_files())


def make(folder: Path) -> dict[str, dict[str, str | None]]:
    """Write all files and the manifest: file -> error (None: it must load) and a word that the message must hold."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, dict[str, str | None]] = {}
    for name, data, error, says in bad_files():
        if name in manifest:
            raise ValueError(f"Two files are called {name}.")
        (folder / name).write_bytes(data)
        manifest[name] = {"error": error, "says": says}
    for name, error, says in prepared(folder):
        manifest[name] = {"error": error, "says": says}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


if __name__ == "__main__":
    print(f"{len(make(Path(sys.argv[1])))} files")
