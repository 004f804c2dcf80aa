"""Restrictions in safetensors files: plain arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import FileError
from ..lines import Lines
from ..optional import needed

if TYPE_CHECKING:
    from ..network.graph import Network
    from .restriction import Restriction

FORMAT = "exactline.restriction.1"
FACTS = (
    "names",
    "units",
    "several_inputs",
    "several_outputs",
    "seconds",
    "stopped",
    "is_minimal",
    "rewrite",
    "until",
    "engine",
)
DTYPES = {"float64": torch.float64, "float32": torch.float32}
HINT = "Give a file that line.save() wrote."


def save(line: Restriction, path: Path) -> None:
    """Write a restriction; the file appears whole or not at all."""
    tensors: dict[str, Tensor] = {"alphas": line.alphas, "births": line.births, "doubts": line.doubts}
    for kind, group in (("start", line.lines.starts), ("end", line.lines.ends), ("value", line.kept or ())):
        tensors.update({f"{kind}.{i}": t for i, t in enumerate(group)})
    facts = {name: getattr(line, name) for name in FACTS}
    facts["stored_error"] = line.error
    facts["weights"] = line.weights if line.network is None else line.network.checksum()
    facts |= {"values": line.kept is not None, "dtype": str(line.dtype).split(".")[1]}
    write_arrays(path, tensors, FORMAT, facts)


def write_arrays(path: Path, tensors: dict[str, Tensor], format: str, facts: dict[str, Any]) -> None:
    """Arrays and facts as one file, whole or not at all."""
    header = {"format": format, "facts": json.dumps(facts)}
    data = _safetensors().save({k: v.contiguous().clone() for k, v in tensors.items()}, metadata=header)
    write_atomically(path, data)


def load(path: Path, model: Any = None) -> Restriction:
    """Read a restriction; with the model, everything can be asked of it again."""
    from ..network import as_network
    from .restriction import Restriction

    tensors, header = read_arrays(path, FORMAT, "restriction", HINT)
    try:
        facts = dict(json.loads(header["facts"]))
        lines = Lines(numbered(tensors, "start"), numbered(tensors, "end"))
        kept = numbered(tensors, "value") if facts.pop("values") else None
        facts |= {"names": tuple(facts["names"]), "dtype": DTYPES[facts["dtype"]]}
        line = Restriction(tensors["alphas"], lines, tensors["births"], tensors["doubts"], kept, **facts)
        _consistent(line)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as problem:
        raise FileError(f"The file lacks parts of a restriction: {problem}", where=str(path), hint=HINT) from problem
    if model is None:
        return line
    network = as_network(model, [t[0] for t in lines.starts], rewrite=line.rewrite, until=line.until)
    same_network(network, line.names, line.weights, path)
    return line.with_network(network)


def same_network(network: Network, names: tuple[str, ...], weights: str, path: Path) -> None:
    """Refuse a network that is not the one a file was made with."""
    if tuple(n.name for n in network.nodes) != names or network.checksum() != weights:
        raise FileError(
            "The model is not the one the file was made with.",
            where=str(path),
            hint="Give the same model with the same weights.",
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a neighbouring file, then take its place in one step."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)  # a temporary file is private, the one it becomes should not be
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(
            f"The file cannot be written: {reason}", where=str(path), hint="Choose a folder that can be written."
        ) from problem


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


def _consistent(line: Restriction) -> None:
    """Refuse arrays that do not fit together, before anyone computes with them."""
    count = len(line.alphas)
    shapes = {"births": (line.births, (count, 3)), "doubts": (line.doubts, (max(count - 1, 0),))}
    for name, (tensor, shape) in shapes.items():
        if tensor.shape != shape or tensor.dtype != torch.int64:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, not {shape}")
    rising = bool((line.alphas[1:] > line.alphas[:-1]).all()) and bool(torch.isfinite(line.alphas).all())
    if line.alphas.dtype != torch.float64 or line.alphas.dim() != 1 or not rising:
        raise ValueError("alphas do not rise")
    if any(len(v) != count for v in line.kept or ()) or (line.kept is not None and not line.kept):
        raise ValueError("there is not one value for each break")
    ends = (line.lines.starts, line.lines.ends)
    if not ends[0] or [t.shape for t in ends[0]] != [t.shape for t in ends[1]] or any(len(t) != 1 for t in ends[0]):
        raise ValueError("the ends of the line are missing")
    if not all(bool(torch.isfinite(t).all()) for t in (*ends[0], *ends[1], *(line.kept or ()))):
        raise ValueError("values or ends are not finite")
    nodes = line.births[:, 0]
    if count and (int(nodes.min()) < -1 or int(nodes.max()) >= len(line.names)):
        raise ValueError("births name what is not there")
    plain = {"seconds": (int, float), "stored_error": (int, float), "until": (str, type(None))}
    plain |= dict.fromkeys(("stopped", "engine", "weights"), (str,))
    known_facts(line, plain | dict.fromkeys(("several_inputs", "several_outputs", "is_minimal", "rewrite"), (bool,)))


def known_facts(answer: Any, plain: dict[str, tuple[type, ...]]) -> None:
    """Refuse facts of other types than those that are written: these, the names of nodes and the counts of units."""
    wrong = [name for name, kinds in plain.items() if not isinstance(getattr(answer, name), kinds)]
    counts = answer.units.values()
    wrong += ["names"] * (not all(isinstance(word, str) for word in (*answer.names, *answer.units)))
    wrong += ["units"] * (not all(isinstance(count, int) and count >= 0 for count in counts))
    if wrong or not isfinite(answer.seconds):
        raise ValueError(f"{(wrong or ['seconds'])[0]} is not what it should be")


def numbered(tensors: dict[str, Tensor], kind: str) -> tuple[Tensor, ...]:
    """The tensors kind.0, kind.1 and so on."""
    count = sum(name.startswith(f"{kind}.") for name in tensors)
    return tuple(tensors[f"{kind}.{i}"] for i in range(count))


def _safetensors() -> Any:
    with needed("The package safetensors is not installed.", where="save and load", hint="pip install safetensors"):
        import safetensors.torch
    return safetensors.torch
