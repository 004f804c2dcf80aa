"""The manifest of a store: the network, the job and the lines it was made from, so that nothing else is mixed in."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import write_atomically
from ..network.graph import Network
from .jobs import Job

MANIFEST_FILE = "store.json"
FORMAT = "exactline.store.1"
NO_STORE_HINT = "Give a folder that xl.scale.run has written to."
REQUIRED_KEYS = {"format", "network", "job", "lines", "block", "names", "units", "breaking", "inputs"}
MISMATCHES = {  # the keys that must agree for a run to continue, and the problem where one does not
    "network": "The store was made with another network.",
    "job": "The store was made by another job.",
    "lines": "The store was made from other lines.",
}


def build_manifest(network: Network, job: Job, lines: dict[str, Any], batch_size: int) -> dict[str, Any]:
    """The manifest of a new store, as JSON holds it."""
    names = [node.name for node in network.nodes]
    operators = [node.op.title for node in network.nodes]
    shapes = [list(node.shape) for node in network.nodes]
    return {
        "format": FORMAT,
        "network": {
            "checksum": network.checksum(),
            "graph": sha256(json.dumps([names, operators, shapes, list(network.outputs)]).encode()).hexdigest(),
        },
        "job": job.to_json(),
        "lines": lines,
        "block": batch_size,
        "names": names,
        "units": network.units,
        "breaking": [names[i] for i in network.breaking_nodes],
        "several_inputs": network.several_inputs,
        "several_outputs": network.several_outputs,
        "inputs": [list(network.nodes[i].shape) for i in network.inputs],
    }


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest into the folder, whole or not at all."""
    write_atomically(folder / MANIFEST_FILE, json.dumps(manifest, indent=1).encode())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the store in a folder; None where there is no store.

    Raises FileError where the file is not a manifest.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise FileError(
            f"The store cannot be read: {problem.strerror}.", where=str(path), hint=NO_STORE_HINT
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise FileError(f"The file is not JSON: {problem}", where=str(path), hint=NO_STORE_HINT) from problem
    if not isinstance(manifest, dict) or not manifest.keys() >= REQUIRED_KEYS or manifest["format"] != FORMAT:
        raise FileError("The file describes no store of this version.", where=str(path), hint=NO_STORE_HINT)
    return manifest


def check_same_manifest(folder: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue a store with another network, job or lines.

    Raises FileError.
    """
    for key, problem in MISMATCHES.items():
        if stored[key] != json.loads(json.dumps(wanted[key])):
            raise FileError(problem, where=f"{folder}: {key}", hint="Give another folder, or the same as before.")
