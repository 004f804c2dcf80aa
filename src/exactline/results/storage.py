"""Lines and planes in safetensors files: arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ..errors import FileError
from ..files import write_atomically
from ..network import as_network
from ..network.graph import Network
from ..optional import require_package
from .codec import decode_line, decode_plane, encode_line, encode_plane
from .plane import PlaneRestriction
from .restriction import Restriction
from .validate import check_line_arrays, check_plane_arrays

LINE_FORMAT = "exactline.restriction.1"
PLANE_FORMAT = "exactline.plane.1"
Result = TypeVar("Result", Restriction, PlaneRestriction)


def save_line(line: Restriction, path: Path) -> None:
    """Write a line."""
    write_arrays(path, *encode_line(line), LINE_FORMAT)


def load_line(path: Path, model: Any = None) -> Restriction:
    """Read a line, and attach the model's network if a model is given."""
    line = _read(path, LINE_FORMAT, "line", decode_line, check_line_arrays)
    return line if model is None else _attach_network(line, model, line.lines.starts, path)


def save_plane(plane: PlaneRestriction, path: Path) -> None:
    """Write a plane."""
    write_arrays(path, *encode_plane(plane), PLANE_FORMAT)


def load_plane(path: Path, model: Any = None) -> PlaneRestriction:
    """Read a plane, and attach the model's network if a model is given."""
    plane = _read(path, PLANE_FORMAT, "plane", decode_plane, check_plane_arrays)
    return plane if model is None else _attach_network(plane, model, plane.vertices, path)


def write_arrays(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], format: str) -> None:
    """Write arrays and facts to a file, atomically."""
    header = {"format": format, "facts": json.dumps(facts)}
    data = _safetensors().save({k: v.contiguous().clone() for k, v in tensors.items()}, metadata=header)
    write_atomically(path, data)


def read_arrays(path: Path, format: str, what: str, hint: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the arrays and the header of a file; raises FileError unless the header names the format."""
    package = _safetensors()
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        tensors = package.load(data)
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except OSError as problem:
        raise FileError(f"The file cannot be read: {problem.strerror}", where=str(path), hint=hint) from problem
    except Exception as problem:  # safetensors has an error type of its own
        raise FileError(f"The file is not safetensors: {problem}", where=repr(str(path)), hint=hint) from problem
    if header.get("format") != format:
        raise FileError(f"The file holds no {what}.", where=str(path), hint=hint)
    return tensors, header


def is_same_network(network: Network, names: tuple[str, ...], checksum: str) -> bool:
    """Whether a network has the node names and the checksum of a file."""
    return tuple(n.name for n in network.nodes) == names and network.checksum() == checksum


def check_same_network(network: Network, names: tuple[str, ...], checksum: str, path: Path) -> None:
    """Raise FileError if a network is not the one that a file was made with."""
    if not is_same_network(network, names, checksum):
        raise FileError(
            "The model is not the one the file was made with.",
            where=str(path),
            hint="Give the same model with the same weights.",
        )


def _read(
    path: Path,
    format: str,
    what: str,
    decode: Callable[[dict[str, Tensor], dict[str, Any]], Result],
    check: Callable[[Result], None],
) -> Result:
    """Read and validate a result; ``what`` is "line" or "plane"."""
    hint = f"Give a file that {what}.save() wrote."
    tensors, header = read_arrays(path, format, what, hint)
    try:
        result = decode(tensors, dict(json.loads(header["facts"])))
        check(result)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as problem:
        raise FileError(f"The file is not a valid {what}: {problem}", where=str(path), hint=hint) from problem
    return result


def _attach_network(result: Result, model: Any, points: tuple[Tensor, ...], path: Path) -> Result:
    """Capture the model, check that it is the one of the file, and attach it."""
    network = as_network(model, [t[0] for t in points], rewrite=result.rewrite, until=result.until)
    if network.several_outputs and not result.several_outputs:
        parts = [network.output(i) for i in range(len(network.outputs))]
        network = next((p for p in parts if is_same_network(p, result.names, result.checksum)), network)
    check_same_network(network, result.names, result.checksum, path)
    return result.with_network(network)


def _safetensors() -> Any:
    hint = "pip install safetensors"
    with require_package("The package safetensors is not installed.", where="save and load", hint=hint):
        import safetensors.torch
    return safetensors.torch
