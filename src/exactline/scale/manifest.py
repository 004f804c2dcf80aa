"""What a store was made from: the network, the job and the lines, so that nothing else is ever mixed into it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..files import write_atomically
from ..network.graph import Network
from .jobs import Job

NAME = "store.json"
FORMAT = "exactline.store.1"
HINT = "Give a folder that xl.scale.run has written to."
SAME = {  # what must be the same for a run to go on, and how it is said
    "network": "The store was made with another network.",
    "job": "The store was made by another job.",
    "lines": "The store was made from other lines.",
}


def meta_of(network: Network, job: Job, lines: dict[str, Any], block: int) -> dict[str, Any]:
    """Everything, as JSON holds it."""
    names = [node.name for node in network.nodes]
    told = [names, [node.op.title for node in network.nodes], [list(node.shape) for node in network.nodes]]
    return {
        "format": FORMAT,
        "network": {
            "checksum": network.checksum(),
            "graph": sha256(json.dumps([*told, list(network.outputs)]).encode()).hexdigest(),
        },
        "job": job.facts(),
        "lines": lines,
        "block": block,
        "names": names,
        "units": network.units,
        "breaking": [names[i] for i in network.breaking],
        "several_inputs": network.several_inputs,
        "several_outputs": network.several_outputs,
        "inputs": [list(network.nodes[i].shape) for i in network.inputs],
    }


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Into the folder, whole or not at all."""
    write_atomically(folder / NAME, json.dumps(meta, indent=1).encode())


def read_meta(folder: Path) -> dict[str, Any] | None:
    """Out of the folder; None where there is no store.

    Raises FileError where what is there is not one.
    """
    path = folder / NAME
    try:
        meta = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise FileError(f"The store cannot be read: {problem.strerror}.", where=str(path), hint=HINT) from problem
    except (ValueError, RecursionError) as problem:
        raise FileError(f"The file is not JSON: {problem}", where=str(path), hint=HINT) from problem
    wanted = {"format", "network", "job", "lines", "block", "names", "units", "breaking", "inputs"}
    if not isinstance(meta, dict) or not wanted <= meta.keys() or meta["format"] != FORMAT:
        raise FileError("The file describes no store of this version.", where=str(path), hint=HINT)
    return meta


def same_meta(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to go on with something else.

    Raises FileError.
    """
    for key, problem in SAME.items():
        if old[key] != json.loads(json.dumps(new[key])):
            raise FileError(problem, where=f"{folder}: {key}", hint="Give another folder, or the same as before.")
