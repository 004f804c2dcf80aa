"""Lines and planes in safetensors files: plain arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from ..errors import FileError
from ..files import write_atomically
from ..optional import require_package
from .codec import decode_line, decode_plane, encode_line, encode_plane
from .validate import check_line_arrays, check_plane_arrays

if TYPE_CHECKING:
    from ..network.graph import Network
    from .plane import PlaneRestriction
    from .restriction import Restriction

LINE_FORMAT = "exactline.restriction.1"
PLANE_FORMAT = "exactline.plane.1"
Result = TypeVar("Result")


def save_line(line: Restriction, path: Path) -> None:
    """Write a line; the file appears whole or not at all."""
    write_arrays(path, *encode_line(line), LINE_FORMAT)


def load_line(path: Path, model: Any = None) -> Restriction:
    """Read a line; with the model, every method of it works again."""
    line = _read(path, LINE_FORMAT, "restriction", "line.save()", decode_line, check_line_arrays)
    if model is None:
        return line
    network = _recapture(model, line.lines.starts, line.rewrite, line.until)
    check_same_network(network, line.names, line.weights, path)
    return line.with_network(network)


def save_plane(plane: PlaneRestriction, path: Path) -> None:
    """Write a plane; the file appears whole or not at all."""
    write_arrays(path, *encode_plane(plane), PLANE_FORMAT)


def load_plane(path: Path, model: Any = None) -> PlaneRestriction:
    """Read a plane; with the model, every method of it works again."""
    plane = _read(path, PLANE_FORMAT, "plane", "plane.save()", decode_plane, check_plane_arrays)
    if model is None:
        return plane
    network = _recapture(model, plane.vertices, plane.rewrite, plane.until)
    check_same_network(network, plane.names, plane.checksum, path)
    return plane.with_network(network)


def write_arrays(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], format: str) -> None:
    """Write arrays and facts as one file, whole or not at all."""
    header = {"format": format, "facts": json.dumps(facts)}
    data = _safetensors().save({k: v.contiguous().clone() for k, v in tensors.items()}, metadata=header)
    write_atomically(path, data)


def read_arrays(path: Path, format: str, what: str, hint: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The arrays of a file and its header, which must name the format."""
    package = _safetensors()
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        tensors = package.load(data)
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except OSError as problem:
        raise FileError(f"The file cannot be read: {problem.strerror}", where=str(path), hint=hint) from problem
    except Exception as problem:  # the parser has an error type of its own
        raise FileError(f"The file is not safetensors: {problem}", where=repr(str(path)), hint=hint) from problem
    if header.get("format") != format:
        raise FileError(f"The file holds no {what}.", where=str(path), hint=hint)
    return tensors, header


def check_same_network(network: Network, names: tuple[str, ...], weights: str, path: Path) -> None:
    """Refuse a network that is not the one a file was made with."""
    if tuple(n.name for n in network.nodes) != names or network.checksum() != weights:
        raise FileError(
            "The model is not the one the file was made with.",
            where=str(path),
            hint="Give the same model with the same weights.",
        )


def _read(
    path: Path,
    format: str,
    what: str,
    writer: str,
    decode: Callable[[dict[str, Tensor], dict[str, Any]], Result],
    check: Callable[[Result], None],
) -> Result:
    hint = f"Give a file that {writer} wrote."
    tensors, header = read_arrays(path, format, what, hint)
    try:
        result = decode(tensors, dict(json.loads(header["facts"])))
        check(result)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as problem:
        raise FileError(f"The file lacks parts of a {what}: {problem}", where=str(path), hint=hint) from problem
    return result


def _recapture(model: Any, points: tuple[Tensor, ...], rewrite: bool, until: str | None) -> Network:
    from ..network import as_network

    return as_network(model, [t[0] for t in points], rewrite=rewrite, until=until)


def _safetensors() -> Any:
    hint = "pip install safetensors"
    with require_package("The package safetensors is not installed.", where="save and load", hint=hint):
        import safetensors.torch
    return safetensors.torch
