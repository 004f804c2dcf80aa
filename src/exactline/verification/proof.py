"""Proofs that a property has no counterexample, and the files they are stored in.

A proof lists, for every line and plane of inputs, the pieces or cells that cover the boxes on it, each with its
activation pattern. `check_proof` needs nothing else to verify it against the network and the property.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from ..network.graph import Network
from .complete.plane_search import CutEntry, LeafEntry
from .complete.solve import LinePart, PlanePart

PROOF_FORMAT, PROOF_VERSION = "exactline proof", 1


@dataclass(frozen=True, eq=False)
class Proof:
    """A proof that a property has no counterexample.

    >>> import torch, exactline as xl
    >>> from exactline.verification.property import Property
    >>> below = Property.of([-1.0], [1.0], [[1.0]], [-0.5])  # is relu(x) <= -0.5 somewhere in [-1, 1]?
    >>> proof = xl.verify(torch.nn.ReLU(), below).proof
    >>> proof.document["parts"][0]["pieces"]
    [['-1/1', '0/1', '0'], ['0/1', '1/1', '1']]
    """

    document: dict[str, Any]

    @staticmethod
    def of(network: Network, parts: Sequence[LinePart | PlanePart]) -> Proof:
        """Make the proof from all that was decided.

        Args:
            network: The network that was verified.
            parts: The lines and planes that cover the inputs, each with what was decided on it.
        """
        written = [_write_line(p) if isinstance(p, LinePart) else _write_plane(p) for p in parts]
        return Proof(
            {
                "format": PROOF_FORMAT,
                "version": PROOF_VERSION,
                "result": "unsat",
                "network": network.checksum(),
                "parts": written,
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the proof to a file, as JSON.

        Args:
            path: The file; compressed if its name ends in .gz.

        Raises FileError.
        """
        data = json.dumps(self.document).encode()
        file = Path(path)
        write_atomically(file, gzip.compress(data, mtime=0) if file.name.lower().endswith(".gz") else data)


def _write_line(part: LinePart) -> dict[str, Any]:
    pieces = [
        [_write_fraction(start), _write_fraction(end), "".join(_write_pattern(p[:, k]) for p in chunk.patterns)]
        for chunk in part.pieces
        for k, (start, end) in enumerate(chunk.ends)
    ]
    return {"inputs": [*part.group.axes], "point": part.group.point.tolist(), "pieces": pieces}


def _write_plane(part: PlanePart) -> dict[str, Any]:
    return {
        "inputs": [*part.group.axes],
        "point": part.group.point.tolist(),
        "lower": [*part.lower],
        "upper": [*part.upper],
        "tree": [_write_entry(entry) for entry in part.tree.entries],
    }


def _write_entry(entry: CutEntry | LeafEntry) -> list[str]:
    if isinstance(entry, CutEntry):
        return ["cut", *(f"{n:x}" for n in entry.line)]
    return ["outside"] if entry.patterns is None else ["cell", "".join(entry.patterns)]


def _write_pattern(is_on: NDArray[np.bool_]) -> str:
    return "".join("1" if on else "0" for on in is_on.tolist())


def _write_fraction(number: Fraction) -> str:
    """Write a fraction with hexadecimal digits, which have no limit in Python."""
    return f"{number.numerator:x}/{number.denominator:x}"
