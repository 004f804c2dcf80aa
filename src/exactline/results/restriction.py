"""The result for one line: its breaks, the values there, and methods to analyse them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..engines.layer_record import LayerTable
from ..errors import ArgumentError
from ..exact.certify import certify
from ..fp_context import full_precision
from ..humanize import count_noun, format_seconds, format_setup, format_units
from ..lines import Lines
from ..network.graph import Network
from . import methods
from .check import Check, check_line
from .errors import LineErrors
from .evaluate import as_alphas, interpolate_errors, require_network, require_values, values_between_breaks
from .minimal import minimal_restriction
from .origins import Origin as Origin
from .origins import Origins as Origins
from .piece import Piece

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.extrema import Extrema, LevelSet
    from ..decide.intervals import Decisions
    from ..exact.certify import Certificate
    from ..measures.line_metrics import LineMetrics

Values = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Restriction:
    """A network restricted to a line: ``len(line)`` pieces, on each of which the network is affine.

    Between two breaks the activation pattern is constant: a piece lies in one linear region of the network.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
    >>> line.alphas.tolist(), line.values[-1].tolist(), line.origins[1].node
    ([0.0, 0.5, 0.75, 1.0], [1.0, 1.0], 'relu')
    """

    alphas: Tensor  # (breaks,) float64, ascending, from 0 to 1 or to where the sweep was stopped
    lines: Lines  # the end points, as a single line
    origin_table: Tensor  # (breaks, 3) node or -1, unit, count: see `origins`
    ambiguous_per_piece: Tensor  # (pieces,) units whose side of a knot rounding hides on each piece
    stored_values: tuple[Tensor, ...] | None  # (breaks, *out) for each output; None if values=False
    names: tuple[str, ...]  # names of the network's nodes
    network: Network | None = None  # None after loading without the model
    units: dict[str, int] = field(default_factory=dict)  # number of units that can break, by kind of operator
    several_inputs: bool = False  # whether points are tuples of tensors
    several_outputs: bool = False  # whether values are tuples of tensors
    dtype: torch.dtype = torch.float64  # precision of the sweep
    seconds: float = 0.0  # duration of the sweep
    setup_seconds: float = 0.0  # duration of the capture of the model before it; 0 if an earlier one was used
    stopped: str = ""  # the option that stopped the sweep early: "max_breaks", "seconds" or ""
    is_minimal: bool = False  # whether `minimal` removed breaks
    stored_errors: Tensor | None = None  # (breaks,) `errors`, where the network is not known
    rewrite: bool = True  # option of the sweep
    until: str | None = None  # option of the sweep
    engine: str = "dense"  # the engine that ran, and why
    checksum: str = ""  # of the network's weights, where the network is not known
    layers: LayerTable | None = None  # what the units of every layer do, if ``record="layers"``

    def __len__(self) -> int:
        return max(len(self.alphas) - 1, 0)

    @property
    def status(self) -> Literal["exact"]:
        """How far the result can be trusted: always "exact".

        Exact means that `alphas` has all breaks of the network on the line, that values are computed in float64 (or
        `dtype`), and that `error_at` estimates how far rounding moves the function. Nothing is sampled.
        """
        return "exact"

    @property
    def complete(self) -> bool:
        """Whether the sweep reached the end of the line."""
        return not self.stopped

    @property
    def reached(self) -> float:
        """The alpha up to which the line was swept."""
        return float(self.alphas[-1]) if len(self.alphas) else 0.0

    @property
    def ambiguous(self) -> int:
        """Number of units whose side of a knot rounding hides along a piece, summed over pieces."""
        return int(self.ambiguous_per_piece.sum())

    @property
    def origins(self) -> Origins:
        """The node and the unit that gave rise to each break; None at both ends of the line.

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

        Raises MissingError if the line was restricted with values=False.
        """
        hint = "Call restrict with values=True, or use line.at(alpha)."
        values = require_values(self.stored_values, where="line.values", hint=hint)
        return values if self.several_outputs else values[0]

    @property
    def points(self) -> Values:
        """The input points at the breaks, (breaks, *in).

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.points[1]
        tensor([ 0., -1.], dtype=torch.float64)
        """
        with full_precision():
            points = tuple(self.lines.at_alphas(self.alphas)[0])
        return points if self.several_inputs else points[0]

    @cached_property
    def errors(self) -> Tensor:
        """The estimated error at every break, (breaks,): the largest over all outputs. See `error_at`."""
        if self.stored_errors is not None or self.network is None:
            return torch.zeros_like(self.alphas) if self.stored_errors is None else self.stored_errors
        with full_precision():
            network = self.network.to(dtype=self.dtype)
            line = torch.zeros(len(self.alphas), dtype=torch.int64)
            return LineErrors(network, self.lines, line, self.alphas, self.stored_values, self.dtype).estimate()

    @property
    def error(self) -> float:
        """The largest estimated error anywhere on the line: the maximum of `error_at`."""
        return float(self.errors.max()) if len(self.errors) else 0.0

    def error_at(self, alpha: Any) -> Tensor:
        """Estimate how far `at` may be from the exact value of the network, (*alpha.shape).

        The estimate covers rounding errors of the values and of the positions of breaks, and is the largest over all
        outputs. It is not proven: `certify` proves breaks and values in rational arithmetic.

        Args:
            alpha: A position between 0 and 1, or an array of positions of any shape.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0], [2.0])
        >>> bool(line.error_at(0.5) < 1e-14), bool(line.error_at(0.5) <= line.error)
        (True, True)

        Raises ArgumentError for positions off the line, MissingError.
        """
        with full_precision():
            return interpolate_errors(self, as_alphas(alpha))

    def at(self, alpha: Any, *, tail: bool = False) -> Values:
        """The network's value anywhere on the line, (*alpha.shape, *out).

        Args:
            alpha: A position between 0 and 1, or an array of positions of any shape.
            tail: Whether to apply the smooth last operator of the network, such as a softmax.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [-1.0], [1.0]).at(0.75)
        tensor([0.5000], dtype=torch.float64)

        Raises ArgumentError for positions off the line, MissingError.
        """
        with full_precision():
            outputs = values_between_breaks(self, as_alphas(alpha), tail=tail)
        return outputs if self.several_outputs else outputs[0]

    def piece(self, index: int) -> Piece:
        """One piece: its position, its activation pattern and its affine map.

        Args:
            index: From 0 to ``len(line) - 1``; negative numbers count from the end.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.piece(1).start, line.piece(1).stop, line.piece(1).affine()[0].tolist()
        (0.5, 0.75, [[1.0, 0.0], [0.0, 0.0]])

        Raises ArgumentError, and MissingError without the network.
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
                hint="Call piece on the line itself, before minimal().",
            )
        index %= len(self)
        return Piece(
            network=self.require_network("line.piece"),
            lines=self.lines,
            index=index,
            start=self.alphas[index].item(),
            stop=self.alphas[index + 1].item(),
            ambiguous=int(self.ambiguous_per_piece[index]),
        )

    def pattern(self, index: int) -> dict[str, Tensor]:
        """The activation pattern on a piece, by node: see `Piece.pattern`.

        Args:
            index: From 0 to ``len(line) - 1``; negative numbers count from the end.
        """
        return self.piece(index).pattern()

    def minimal(self) -> Restriction:
        """The minimal partition: the fewest pieces on which the outputs are affine in alpha, leftmost first.

        The gradient may change inside such a piece where the slope along the line does not: do not use it for
        attributions.

        >>> import exactline as xl
        >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(1, 1))
        >>> _ = torch.nn.init.zeros_(model[1].weight)
        >>> line = xl.restrict(model, [-1.0], [1.0])
        >>> len(line), len(line.minimal())
        (2, 1)
        """
        return minimal_restriction(self)

    def decisions(
        self,
        order: str = "max",
        top: int = 1,
        *,
        output: str | int | None = None,
        threshold: float | None = None,
        rivals: Sequence[int] | None = None,
    ) -> Decisions:
        """The output that leads on every point of the line: intervals with exact boundaries, including ties.

        If the sweep was stopped early, the intervals end where it stopped.

        Args:
            order: "max" if the largest output decides, "min" for the smallest.
            top: How many of the leading outputs to report, in order.
            output: Which output tensor decides, by its name or index, if the network has several.
            threshold: For a network with one output, which has no rival: class 1 is where the output is above it (below
                it with "min"), class 0 elsewhere. Behind a sigmoid it is a probability, 0.5 by default.
            rivals: The outputs that compete, if not all do; a single one needs a threshold.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).decisions().boundaries
        tensor([0.5000], dtype=torch.float64)
        >>> print(xl.restrict(torch.nn.ReLU(), [-1.0], [3.0]).decisions(threshold=1.0))
        2 intervals, class 1 where the output is above 1
          0 to 0.5: 0, margin 1
          0.5 to 1: 1, margin 2

        Raises ArgumentError, also for one output without a threshold; MissingError, NumberError.
        """
        return methods.decide_line(self, order, top, output, threshold, rivals)

    def extrema(self, weights: Any, *, output: str | int | None = None) -> Extrema:
        """The smallest and the largest value of a linear functional of the outputs on the line, and their positions.

        Args:
            weights: One functional (out,), several (k, out), or the index of a single output.
            output: Which output tensor to use, by its name or index, if the network has several.

        >>> import exactline as xl
        >>> extrema = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).extrema([1.0, 1.0])
        >>> extrema.maximum, extrema.argmax, round(extrema.minimum, 9), round(extrema.argmin, 9)
        (2.0, 1.0, 0.666666667, 0.333333333)
        """
        return methods.line_extrema(self, weights, output)

    def level(self, weights: Any, c: float = 0.0, *, output: str | int | None = None) -> LevelSet:
        """The level set of a linear functional of the outputs: all alphas and intervals where it equals c.

        Args:
            weights: The functional (out,), or the index of a single output.
            c: The level.
            output: Which output tensor to use, by its name or index, if the network has several.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 2.0]).level([1.0, -1.0], 0.0).alphas
        tensor([0.5000], dtype=torch.float64)
        """
        return methods.line_level(self, weights, c, output)

    def metrics(self, *, output: str | int | None = None) -> LineMetrics:
        """Exact measures of the line: regions, variation, slopes, the length of the curve, margins, and layers.

        A sweep that was stopped early is measured up to where it came: ``reached`` says how far. Layers need
        ``record="layers"``.

        Args:
            output: Which output tensor to measure, by its name or index; by default all of them side by side.

        >>> import exactline as xl
        >>> found = xl.restrict(torch.nn.ReLU(), [-1.0, 1.0], [2.0, 5.0], record="layers").metrics()
        >>> found.pieces, found.region_density, found.total_variation.tolist()
        (2, 0.4, [2.0, 4.0])
        >>> found.layers
        (LayerMetrics(node='relu', units=2, crossings=1, dead=0, always_on=1),)

        Raises LineError for a line of length 0, ArgumentError for a minimal partition, MissingError without values or
        before the first piece, NumberError.
        """
        return methods.measure_line(self, output)

    def check(self, samples: int = 1000, seed: int = 0) -> Check:
        """The largest difference between this result and the network's own forward pass in float64.

        Args:
            samples: The largest number of points of each kind: breaks, midpoints, neighbours of breaks, random.
            seed: For the random points.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.check().worst < 1e-12
        True
        """
        with full_precision():
            return check_line(self, self.require_network("line.check"), samples, seed)

    def certify(self, pieces: int | Sequence[int] | None = None) -> Certificate:
        """Prove pieces in rational arithmetic: no unit crosses a knot inside them, and one does at their ends.

        Stored values at the ends of the pieces are proved too: they differ from the exact ones by no more than rounding
        explains, and by no more than `errors`. The unit that `origins` names at a break changes its activation pattern
        there. How many units do, and how many are ambiguous, is not proved.

        Args:
            pieces: How many pieces, spread evenly; or their indices; or None for all.

        >>> import exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> line.certify().complete
        True

        Raises ArgumentError for pieces that do not exist and for a line that was stopped early, MissingError.
        """
        network = self.require_network("line.certify")
        if not self.complete:
            raise ArgumentError(
                f"The sweep was stopped by {self.stopped} at alpha {self.reached:.6g}.",
                where="line.certify",
                hint="Restrict the whole line, or only its first part.",
            )
        start, end = (tuple(t[0] for t in side) for side in (self.lines.starts, self.lines.ends))
        with full_precision():
            return certify(
                network,
                start,
                end,
                self.alphas,
                pieces=pieces,
                values=self.stored_values,
                origins=self.origin_table,
                errors=self.errors,
                dtype=self.dtype,
            )

    def save(self, path: str | Path) -> None:
        """Write everything but the network to a safetensors file, atomically.

        Args:
            path: The file to write.

        >>> import tempfile, exactline as xl
        >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [1.0, 1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     line.save(f"{folder}/line.safetensors")
        ...     xl.Restriction.load(f"{folder}/line.safetensors").alphas.tolist()
        [0.0, 0.5, 0.75, 1.0]

        Raises FileError.
        """
        methods.save_line(self, path)

    @staticmethod
    def load(path: str | Path, model: Any = None) -> Restriction:
        """Read a saved line.

        Args:
            path: The file.
            model: The model that was restricted, for methods that need the network; it must have the same weights.

        Raises FileError.
        """
        return methods.load_line(path, model)

    def with_network(self, network: Network) -> Restriction:
        """Attach a network, for methods that need it.

        Args:
            network: The network that was restricted.
        """
        return replace(self, network=network)

    def plot(self, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None) -> Axes:
        """Plot the outputs against alpha with matplotlib; breaks are marked by the node of their origin.

        `exactline.plot.save_picture` writes the axes to a file in which text stays text.

        Args:
            ax: The axes to draw into; None makes new ones.
            output: Which output tensor to plot, if the network has several.
            labels: Names of the outputs.

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
        classes: bool = True,
        colors: Sequence[str] | None = None,
    ) -> Path:
        """Write a self-contained web page to explore the line: a slider along alpha, classes, breaks by layer, zoom.

        Args:
            path: The file to write.
            labels: Names of the outputs.
            features: Names of the input's features.
            title: Title of the page.
            image: False shows the input as a table, a shape such as ``(28, 28)`` as a picture of that shape; None
                decides by the shape of the input.
            order: "max" if the largest output decides, "min" for the smallest.
            output: Which output tensor to show, if the network has several.
            classes: False shows no classes, for outputs that are not rivals, such as a price and a weight.
            colors: Colours of the outputs, such as "#0072B2"; by default those of every other picture.

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
            classes=classes,
            colors=colors,
        )

    def __str__(self) -> str:
        parts = [
            f"{count_noun(len(self), 'piece')}{' (minimal)' if self.is_minimal else ''}"
            f" in {format_seconds(self.seconds)}",
            format_units(self.units),
            f"estimated value error {self.error:.0e}",
            f"{self.ambiguous:,} ambiguous",
        ]
        if not self.complete:
            parts.append(f"stopped by {self.stopped} at alpha {self.reached:.6g}")
        return ", ".join(parts) + format_setup(self.setup_seconds)

    def __repr__(self) -> str:
        return f"<Restriction: {self}>"

    def _repr_html_(self) -> str:
        return methods.line_html(self)

    def require_network(self, where: str) -> Network:
        """The network; raises MissingError if it is not known. ``where`` names the method that needs it."""
        hint = "Load with Restriction.load(path, model), or attach it with line.with_network(network)."
        return require_network(self.network, where=where, hint=hint)
