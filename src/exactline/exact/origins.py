"""Compare the origins of breaks with the units that change their activation pattern there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..network.graph import Network
from ..ops.base import Breaking


@dataclass(frozen=True)
class OriginProof:
    """How many origins are proved, and what is wrong with the others."""

    checked: int = 0
    proved: int = 0
    failures: tuple[str, ...] = ()


class OriginCheck:
    """Collects the activation patterns of neighbouring pieces, and whether the units that breaks name differ there."""

    def __init__(self, network: Network, origins: Tensor, breaks: int) -> None:
        if origins.dim() != 2 or len(origins) != breaks or origins.shape[1] < 2:
            raise ArgumentError(
                f"The origins have the shape {tuple(origins.shape)}, not ({breaks}, 3).",
                where="argument origins",
                hint="Give line.origin_table.",
            )
        self.network = network
        self.origins: list[list[int]] = origins[:, :2].tolist()  # by break: node and unit
        self._last: tuple[int, dict[int, Tensor]] | None = None  # the last piece, and its patterns by node
        self._changes: dict[int, bool] = {}  # by break: whether the unit that it names differs beside it

    def add_pieces(self, pieces: Sequence[int], patterns: dict[int, Tensor]) -> None:
        """Compare some pieces, in ascending order, with their predecessors; patterns are (pieces, ...) by node."""
        for at, piece in enumerate(pieces):
            patterns_here = {node: pattern[at] for node, pattern in patterns.items()}
            if self._last is not None and self._last[0] == piece - 1:
                self._changes[piece] = self._has_changed(piece, self._last[1], patterns_here)
            self._last = (piece, patterns_here)

    def _has_changed(self, index: int, before: dict[int, Tensor], after: dict[int, Tensor]) -> bool:
        node, unit = self.origins[index]
        if node not in before or not 0 <= unit < self._units(node):
            return False
        rows = (pattern[node].reshape(self._units(node), -1)[unit] for pattern in (before, after))
        return not torch.equal(*rows)  # a window that is sorted has a branch for every rank

    def _units(self, node: int) -> int:
        """How many units of a breaking node have an activation pattern."""
        op, inputs = self.network.nodes[node].op, self.network.nodes[node].inputs
        return op.units(self.network.nodes[inputs[0]].shape) if isinstance(op, Breaking) else 0

    def prove(self) -> OriginProof:
        """Count the origins at which the unit that is named changes its activation pattern."""
        failures = tuple(
            f"origin of break {index}: {self._name(index)} does not change its activation pattern there"
            for index, has_changed in self._changes.items()
            if not has_changed
        )
        return OriginProof(len(self._changes), len(self._changes) - len(failures), failures)

    def _name(self, index: int) -> str:
        node, unit = self.origins[index]
        is_known = 0 <= node < len(self.network.nodes) and isinstance(self.network.nodes[node].op, Breaking)
        return f"{self.network.nodes[node].name if is_known else f'node {node}'} unit {unit}"
