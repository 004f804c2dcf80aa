"""Restrictions in safetensors files: plain arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .errors import FileError, MissingError
from .line import Lines

if TYPE_CHECKING:
    from .restriction import Restriction

FORMAT = "exactline.restriction.1"


def save(line: Restriction, path: Path) -> None:
    """Write a restriction; the file appears whole or not at all."""
    tensors: dict[str, Tensor] = {"alphas": line.alphas, "births": line.births, "doubts": line.doubts}
    for kind, group in (("start", line.lines.starts), ("end", line.lines.ends), ("value", line.kept or ())):
        tensors.update({f"{kind}.{i}": t for i, t in enumerate(group)})
    facts = {name: getattr(line, name) for name in _FACTS}
    facts |= {"stored_error": line.error, "values": line.kept is not None, "dtype": str(line.dtype).split(".")[1]}
    header = {"format": FORMAT, "facts": json.dumps(facts)}
    data = _safetensors().save({k: v.contiguous().clone() for k, v in tensors.items()}, metadata=header)
    write_atomically(path, data)


def load(path: Path, model: Any = None) -> Restriction:
    """Read a restriction; with the model, everything can be asked of it again."""
    from .network import as_network
    from .restriction import Restriction

    tensors, header = _read(path)
    try:
        facts = json.loads(header["facts"])
        lines = Lines(_numbered(tensors, "start"), _numbered(tensors, "end"))
        kept = _numbered(tensors, "value") if facts.pop("values") else None
        facts |= {"names": tuple(facts["names"]), "dtype": _DTYPES[facts["dtype"]]}
        network = None if model is None else as_network(model, [t[0] for t in lines.starts])
        line = Restriction(
            tensors["alphas"], lines, tensors["births"], tensors["doubts"], kept, network=network, **facts
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise FileError(f"The file lacks parts of a restriction: {problem}", where=str(path), hint=_HINT) from problem
    if network is not None and tuple(n.name for n in network.nodes) != line.names:
        raise FileError(
            "The model is not the one the file was made with.", where=str(path), hint="Give the same model again."
        )
    return line


_FACTS = ("names", "units", "several_inputs", "several_outputs", "seconds", "stopped", "is_minimal")
_DTYPES = {"float64": torch.float64, "float32": torch.float32}
_HINT = "Give a file that line.save() wrote."


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a neighbouring file, then take its place in one step."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as problem:
        raise FileError(
            f"The file cannot be written: {problem.strerror}",
            where=str(path),
            hint="Choose a folder that can be written.",
        ) from problem


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    package = _safetensors()
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        tensors = package.load(data)
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except OSError as problem:
        raise FileError(f"The file cannot be read: {problem.strerror}", where=str(path), hint=_HINT) from problem
    except Exception as problem:  # the parser's own error type is not public
        raise FileError(f"The file is not safetensors: {problem}", where=str(path), hint=_HINT) from problem
    if header.get("format") != FORMAT:
        raise FileError("The file holds no restriction.", where=str(path), hint=_HINT)
    return tensors, header


def _numbered(tensors: dict[str, Tensor], kind: str) -> tuple[Tensor, ...]:
    count = sum(name.startswith(f"{kind}.") for name in tensors)
    return tuple(tensors[f"{kind}.{i}"] for i in range(count))


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as problem:
        raise MissingError(
            "The package safetensors is not installed.", where="save and load", hint="pip install safetensors"
        ) from problem
    return safetensors.torch
