"""The answer for one line: its breaks, the values there, and what one asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, MissingError
from ..exact.certify import certify
from ..fp_context import full_precision
from ..humanize import count_noun, format_seconds, format_units
from ..lines import Lines, interpolate
from ..network.graph import Network
from . import methods
from .origins import Origin as Origin
from .origins import Origins as Origins
from .piece import Piece

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.extrema import Crossings, Extrema
    from ..decide.intervals import Decisions
    from ..exact.certify import Certificate
    from .check import Check

Values = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Restriction:
    """A network on a line, exactly: ``len(line)`` pieces between ``len(line) + 1`` breaks.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
    >>> line.alphas.tolist(), line.values[-1].tolist(), line.origins[1].node
    ([0.0, 0.5, 0.75, 1.0], [1.0, 1.0], 'relu')
    """

    alphas: Tensor  # (breaks,) float64, ascending, from 0 to 1 (or to where the sweep was stopped)
    lines: Lines  # one line
    origin_table: Tensor  # (breaks, 3) node or -1, unit, count
    ambiguous_per_piece: Tensor  # (pieces,) units not told from a knot on each piece
    stored_values: tuple[Tensor, ...] | None  # (breaks, *out) each; None where values were not kept
    names: tuple[str, ...]  # of the network's nodes
    network: Network | None = None
    units: dict[str, int] = field(default_factory=dict)
    several_inputs: bool = False
    several_outputs: bool = False
    dtype: torch.dtype = torch.float64  # in which the sweep was done
    seconds: float = 0.0
    stopped: str = ""  # the limit that ended the sweep early, if one did
    is_minimal: bool = False
    stored_error: float | None = None
    rewrite: bool = True  # the options of the sweep that decide which network it was
    until: str | None = None
    engine: str = "dense"  # which engine swept, and why
    weights: str = ""  # a checksum of the network's numbers, where the network itself is not known

    def __len__(self) -> int:
        return max(len(self.alphas) - 1, 0)

    @property
    def complete(self) -> bool:
        """Whether the sweep got to the end of the line."""
        return not self.stopped

    @property
    def reached(self) -> float:
        """The alpha up to which everything is known."""
        return float(self.alphas[-1]) if len(self.alphas) else 0.0

    @property
    def ambiguous(self) -> int:
        """Units that could not be told from a knot along a piece, summed over pieces."""
        return int(self.ambiguous_per_piece.sum())

    @property
    def origins(self) -> Origins:
        """Which node and unit gave rise to each break.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.origins[1], line.origins[0]
        (Origin(node='relu', unit=0, count=1), None)
        """
        return Origins(self.origin_table, self.names)

    @property
    def values(self) -> Values:
        """The network's values at the breaks, (breaks, *out), before any smooth tail.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.values[-1]
        tensor([1., 1.], dtype=torch.float64)
        """
        if self.stored_values is None:
            raise MissingError(
                "The values were not kept.",
                where="line.values",
                hint="Call restrict with values=True, or ask line.at(alpha).",
            )
        return self.stored_values if self.several_outputs else self.stored_values[0]

    @property
    def points(self) -> Values:
        """The input points at the breaks, (breaks, *in).

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.points[1]
        tensor([ 0., -1.], dtype=torch.float64)
        """
        with full_precision():
            found = tuple(self._points(self.alphas))
        return found if self.several_inputs else found[0]

    def at(self, alpha: Any, *, tail: bool = False) -> Values:
        """The network's exact value at one alpha or at an array of them.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [-1.0], [1.0]).at(0.75)
        tensor([0.5000], dtype=torch.float64)
        """
        with full_precision():
            return self._at(_as_alphas(alpha), tail)

    def _at(self, asked: Tensor, tail: bool) -> Values:
        low, high = (float(self.alphas[0]), self.reached) if len(self.alphas) else (0.0, -1.0)
        if not bool(((asked >= low) & (asked <= high)).all()):
            raise ArgumentError(
                f"alpha must be between {low:g} and {high:g}.",
                where="argument alpha",
                hint="Points off the line are not covered." if self.complete else "The sweep was stopped there.",
            )
        piece = (torch.searchsorted(self.alphas, asked.flatten(), right=True) - 1).clamp(0, max(len(self) - 1, 0))
        stop = (piece + 1).clamp(max=len(self.alphas) - 1)
        width = self.alphas[stop] - self.alphas[piece]
        part = torch.where(width > 0, (asked.flatten() - self.alphas[piece]) / width, torch.zeros_like(width))
        outs = tuple(self._between(k, piece, stop, part).view((*asked.shape, *s)) for k, s in enumerate(self._shapes()))
        if tail:
            outs = tuple(
                t.apply(o.view((-1, *s))).view((*asked.shape, *s)) if t is not None else o
                for o, t, s in zip(outs, self.require_network("line.at(tail=True)").tails, self._shapes(), strict=True)
            )
        return outs if self.several_outputs else outs[0]

    def piece(self, index: int) -> Piece:
        """One piece: where it lies, its branch pattern and its affine map.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.piece(1).start, line.piece(1).stop, line.piece(1).affine()[0].tolist()
        (0.5, 0.75, [[1.0, 0.0], [0.0, 0.0]])
        """
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise ArgumentError(
                f"There are {len(self)} pieces; {index!r} is not one of them.",
                where="argument index",
                hint=f"Count from 0 to {len(self) - 1}.",
            )
        if self.is_minimal:
            raise ArgumentError(
                "A piece of a minimal partition may hold several affine maps of the network.",
                where="line.minimal().piece",
                hint="Ask the line itself, before minimal().",
            )
        index %= len(self)
        start, stop = self.alphas[index].item(), self.alphas[index + 1].item()
        return Piece(
            self.require_network("line.piece"), self.lines, index, start, stop, int(self.ambiguous_per_piece[index])
        )

    def pattern(self, index: int) -> dict[str, Tensor]:
        """The branch every unit takes on a piece, by node."""
        return self.piece(index).pattern()

    def minimal(self) -> Restriction:
        """The fewest pieces on which the outputs are affine along the line, leftmost first.

        Unlike the pieces of the line itself these need not have one gradient each: do not attribute with them.

        >>> import exactline as xl
        >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(1, 1))
        >>> _ = torch.nn.init.zeros_(model[1].weight)
        >>> line = xl.restrict(model, [-1.0], [1.0])
        >>> len(line), len(line.minimal())
        (2, 1)
        """
        from .minimal import minimal_breaks

        network = self.require_network("line.minimal")
        with full_precision():
            return self._select_breaks(minimal_breaks(network, self.lines, self.alphas, self._all_values()))

    def _select_breaks(self, kept: Tensor) -> Restriction:
        ambiguous = torch.zeros(max(len(kept) - 1, 0), dtype=torch.int64)
        owner = torch.searchsorted(kept, torch.arange(len(self)), right=True) - 1
        ambiguous.index_add_(0, owner, self.ambiguous_per_piece)
        return replace(
            self,
            alphas=self.alphas[kept],
            origin_table=self.origin_table[kept],
            ambiguous_per_piece=ambiguous,
            stored_values=tuple(v[kept] for v in self._all_values()),
            is_minimal=True,
        )

    def decisions(self, order: str = "max", top: int = 1, *, output: int | None = None) -> Decisions:
        """Which output leads on every point of the line: intervals with exact boundaries, ties along pieces said.

        ``order="min"`` where the smallest output decides, ``top`` for the best few in order, ``output`` to choose one
        where the network has several. Where the sweep was stopped, they end there.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).decisions().boundaries
        tensor([0.5000], dtype=torch.float64)

        Raises ArgumentError, MissingError, NumberError.
        """
        return methods.decide_line(self, order, top, output)

    def extrema(self, weights: Any, *, output: int | None = None) -> Extrema:
        """The smallest and the largest value of a linear functional of the outputs on the line, and where.

        ``weights`` is one row (out,), several (k, out), or the number of one output.

        >>> import exactline as xl
        >>> found = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).extrema([1.0, 1.0])
        >>> found.maximum, found.argmax, round(found.minimum, 9), round(found.argmin, 9)
        (2.0, 1.0, 0.666666667, 0.333333333)
        """
        return methods.line_extrema(self, weights, output)

    def level(self, weights: Any, c: float = 0.0, *, output: int | None = None) -> Crossings:
        """Every alpha where a linear functional of the outputs equals c, and the stretches where it does all along.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).level([1.0, -1.0], 0.0).alphas
        tensor([0.5000], dtype=torch.float64)
        """
        return methods.line_level(self, weights, c, output)

    def check(self, samples: int = 1000, seed: int = 0) -> Check:
        """The largest distance between this answer and the network's own forward pass.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.check().worst < 1e-12
        True
        """
        from .check import check_line

        with full_precision():
            return check_line(self, self.require_network("line.check"), samples, seed)

    def certify(self, pieces: int | Sequence[int] | None = None) -> Certificate:
        """Prove pieces in rational arithmetic: all, so many spread evenly, or those named.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.certify().complete
        True
        """
        network = self.require_network("line.certify")
        start, end = (tuple(t[0] for t in side) for side in (self.lines.starts, self.lines.ends))
        with full_precision():
            return certify(network, start, end, self.alphas, pieces=pieces)

    @cached_property
    def error(self) -> float:
        """The estimated error of the values, the largest over breaks spread along the line."""
        if self.stored_error is not None or self.network is None:
            return self.stored_error or 0.0
        from .check import value_error

        with full_precision():
            return value_error(self.network.to(dtype=self.dtype), self.lines, self.alphas, self.dtype)

    def save(self, path: str | Path) -> None:
        """Write everything but the network to a safetensors file, atomically.

        >>> import tempfile, exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     line.save(f"{folder}/line.safetensors")
        ...     xl.Restriction.load(f"{folder}/line.safetensors").alphas.tolist()
        [0.0, 0.5, 0.75, 1.0]
        """
        from .storage import save_line

        save_line(self, Path(path))

    @staticmethod
    def load(path: str | Path, model: Any = None) -> Restriction:
        """Read a saved restriction; give the model again for what needs the network."""
        from .storage import load_line

        return load_line(Path(path), model)

    def with_network(self, network: Network) -> Restriction:
        """The same answer, with the network to ask further."""
        return replace(self, network=network)

    def plot(self, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None) -> Axes:
        """Draw the outputs against alpha, breaks marked by the node that bore them; returns matplotlib's axes.

        ``labels`` names the outputs, ``output`` chooses one where the network has several.
        `exactline.plot.line.save_picture` writes axes to a file in which letters stay letters.

        >>> import exactline as xl
        >>> axes = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0]).plot(labels=["one", "two"])
        >>> [curve.get_label() for curve in axes.lines]
        ['one', 'two']
        """
        return methods.plot_line(self, ax, output, labels)

    def to_html(
        self,
        path: str | Path,
        *,
        labels: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        title: str | None = None,
        image: bool | tuple[int, ...] | None = None,
        order: str = "max",
        output: int = 0,
    ) -> Path:
        """Write one web page to explore the line in: a slider along alpha, classes, breaks by layer, outputs, zoom.

        ``labels`` names the outputs, ``features`` the numbers of the input. An input of the shape of an image is shown
        as one: ``image=False`` makes it a table, a shape such as ``(28, 28)`` a picture of a flat input. ``order`` and
        ``output`` are those of `decisions`. The page is one file and fetches nothing.

        Raises ArgumentError for options that do not fit, MissingError without pieces, NumberError, FileError.
        """
        return methods.write_line_page(
            self,
            path,
            labels=labels,
            features=features,
            title=title,
            image=image,
            order=order,
            output=output,
        )

    def __str__(self) -> str:
        parts = [
            f"{count_noun(len(self), 'piece')}{' (minimal)' if self.is_minimal else ''}",
            format_units(self.units),
            format_seconds(self.seconds),
            f"estimated value error {self.error:.0e}",
            f"{self.ambiguous:,} unresolved",
        ]
        if not self.complete:
            parts.append(f"stopped by {self.stopped} at alpha {self.reached:.6g}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Restriction: {self}>"

    def _repr_html_(self) -> str:
        return methods.line_html(self)

    def require_network(self, what: str) -> Network:
        """The network, for what asks it further; raises MissingError where it is not known."""
        if self.network is None:
            raise MissingError(
                "The network is not known: neither a saved file nor a server sends it along.",
                where=what,
                hint="Load with Restriction.load(path, model), or give it with line.with_network(network).",
            )
        return self.network

    def _points(self, alphas: Tensor) -> list[Tensor]:
        return self.lines.at(torch.zeros(len(alphas), dtype=torch.int64), alphas)[0]

    def _shapes(self) -> list[torch.Size]:
        if self.stored_values is not None:
            return [v.shape[1:] for v in self.stored_values]
        network = self.require_network("line.at")
        return [torch.Size(network.nodes[i].shape) for i in network.outputs]

    def _between(self, output: int, start: Tensor, stop: Tensor, part: Tensor) -> Tensor:
        if self.stored_values is not None:
            left, right = self.stored_values[output][start], self.stored_values[output][stop]
        else:
            left, right = (self._evaluate(self.alphas[i])[output] for i in (start, stop))
        return interpolate(left, right, part.to(left.dtype).view(-1, *[1] * (left.dim() - 1)))

    def _evaluate(self, alphas: Tensor) -> tuple[Tensor, ...]:
        from .check import evaluate_in_batches

        return evaluate_in_batches(self.require_network("line.at"), self._points(alphas))

    def _all_values(self) -> tuple[Tensor, ...]:
        return self._evaluate(self.alphas) if self.stored_values is None else self.stored_values


def _as_alphas(value: Any) -> Tensor:
    """A user's alphas as a float64 tensor of any shape."""
    try:
        found = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
        if found.is_complex() or found.dtype == torch.bool:
            raise TypeError(f"{found.dtype} is no position")
        return found.to(torch.float64)
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            f"alpha is not a number or an array of numbers: {problem}",
            where="argument alpha",
            hint="Give positions between 0 and 1.",
        ) from problem
