"""The result for one line: a polynomial on each piece, an error estimate, and methods to analyse the curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..decide.extrema import Extrema, LevelSet
from ..decide.intervals import Decisions
from ..errors import ArgumentError
from ..humanize import count_noun, format_seconds
from ..lines import Lines
from . import methods
from .chebyshev import evaluate
from .curve_metrics import CurveMetrics, measure_curve
from .curve_queries import decide_curve, find_curve_extrema, find_curve_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Status = Literal["exact", "certified", "estimated"]
Values = Tensor | tuple[Tensor, ...]
MAX_GATHERED_NUMBERS = 1 << 22  # coefficients that are gathered for one batch of alphas


@dataclass(frozen=True, eq=False)
class Approximation:
    """A network along a line as polynomials: ``len(curve)`` pieces, each with a Chebyshev interpolant of all outputs.

    >>> import exactline as xl
    >>> curve = xl.approximate(torch.nn.Tanh(), [-1.0], [2.0], tol=1e-9)
    >>> curve.status, curve.error < 1e-9, bool(abs(curve.at(0.5) - np.tanh(0.5)) < curve.error)
    ('estimated', True, True)
    """

    breakpoints: Tensor  # (pieces + 1,) float64, ascending from 0 to 1
    degrees: Tensor  # (pieces,) of the polynomials
    coefficients: Tensor  # (sum of degrees + 1, outputs) Chebyshev coefficients, piece after piece
    errors: Tensor  # (pieces,) estimated largest error on each piece, over all outputs, rounding included
    lines: Lines  # the end points, as a single line
    status: Status  # how far the result can be trusted
    tol: float  # the tolerance that was asked for
    output_shapes: tuple[tuple[int, ...], ...]  # of each output for one point
    kinks: Tensor = field(default_factory=lambda: torch.zeros(0))  # (n,) breakpoints where a unit changes side
    evaluations: int = 0  # of the model, one for each point
    seconds: float = 0.0
    stopped: str = ""  # the option that stopped the subdivision early: "max_evaluations", "seconds" or ""
    several_inputs: bool = False
    several_outputs: bool = False
    output_names: tuple[str, ...] = ()
    source: str = "captured"  # how the model was evaluated: "captured", "file" or "black box"

    def __len__(self) -> int:
        return len(self.degrees)

    @property
    def error(self) -> float:
        """The largest estimated error anywhere on the line, over all outputs, rounding included."""
        return float(self.errors.max())

    @property
    def complete(self) -> bool:
        """Whether the subdivision ended by itself, not by a limit."""
        return not self.stopped

    @property
    def points(self) -> Values:
        """The input points at the breakpoints, (pieces + 1, *in)."""
        points = tuple(self.lines.at_alphas(self.breakpoints)[0])
        return points if self.several_inputs else points[0]

    @property
    def values(self) -> Values:
        """The values at the breakpoints, (pieces + 1, *out)."""
        return self.at(self.breakpoints)

    def at(self, alpha: Any) -> Values:
        """The network's value anywhere on the line, (*alpha.shape, *out), up to `error`.

        Args:
            alpha: A position between 0 and 1, or an array of positions of any shape.

        >>> import exactline as xl
        >>> xl.approximate(torch.nn.Sigmoid(), [0.0], [1.0]).at([0.0, 1.0]).shape
        torch.Size([2, 1])

        Raises ArgumentError for positions off the line.
        """
        alphas = self._check_alphas(alpha)
        rows = self.rows_at(alphas.reshape(-1).numpy())
        sizes = [int(np.prod(shape)) for shape in self.output_shapes]
        parts = torch.from_numpy(rows).split(sizes, 1)
        outputs = tuple(p.reshape(*alphas.shape, *s) for p, s in zip(parts, self.output_shapes, strict=True))
        return outputs if self.several_outputs else outputs[0]

    def error_at(self, alpha: Any) -> Tensor:
        """The error estimate of the piece that holds each position, (*alpha.shape).

        Args:
            alpha: A position between 0 and 1, or an array of positions of any shape.

        Raises ArgumentError for positions off the line.
        """
        alphas = self._check_alphas(alpha)
        piece = self.locate(alphas.reshape(-1).numpy())
        return self.errors[torch.from_numpy(piece)].reshape(alphas.shape)

    def locate(self, alphas: Floats) -> Ints:  # (n,) -> (n,)
        """The piece that holds each alpha; a breakpoint belongs to the piece on its right.

        Args:
            alphas: Positions on the line.
        """
        inner = self.breakpoints.numpy()[1:-1]
        return np.searchsorted(inner, alphas, side="right")

    def rows_at(self, alphas: Floats) -> Floats:  # (n,) -> (n, outputs)
        """Evaluate the polynomials: all outputs of each alpha as one row.

        Args:
            alphas: Positions on the line.
        """
        piece, degrees = self.locate(alphas), self.degrees.numpy()
        ends, coeffs = self.breakpoints.numpy(), self.coefficients.numpy()
        first = np.cumsum(degrees + 1) - (degrees + 1)
        a, b = ends[piece], ends[piece + 1]
        position = np.clip(((alphas - a) - (b - alphas)) / (b - a), -1.0, 1.0)
        rows = np.empty((len(alphas), coeffs.shape[1]))
        for degree in np.unique(degrees[piece]):
            here = np.flatnonzero(degrees[piece] == degree)
            step = max(1, MAX_GATHERED_NUMBERS // max(1, (int(degree) + 1) * coeffs.shape[1]))
            for part in np.split(here, range(step, len(here), step)):
                index = first[piece[part]][:, None] + np.arange(degree + 1)
                rows[part] = evaluate(coeffs[index], position[part])
        return rows

    def piece_coefficients(self, index: int) -> Floats:  # (degree + 1, outputs)
        """The Chebyshev coefficients of one piece, on [-1, 1].

        Args:
            index: The index of the piece.
        """
        degrees = self.degrees.numpy()
        first = int((degrees[:index] + 1).sum())
        return self.coefficients.numpy()[first : first + int(degrees[index]) + 1]

    def decisions(
        self,
        order: str = "max",
        *,
        output: str | int | None = None,
        threshold: float | None = None,
        rivals: Sequence[int] | None = None,
    ) -> Decisions:
        """The output that leads on every point of the line: intervals with their boundaries and boundary errors.

        Of a certified curve, labels are proven outside of the boundaries plus and minus their errors. Where no label
        can be proven, the interval is tied between the outputs that may lead.

        Args:
            order: "max" if the largest output decides, "min" for the smallest.
            output: Which output tensor decides, by its name or index, if the network has several.
            threshold: For a single output: class 1 is where it is above the threshold (below it with "min").
            rivals: The outputs that compete, if not all do.

        >>> import exactline as xl
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Tanh())
        >>> _ = torch.nn.init.constant_(model[0].bias, 0.0)
        >>> with torch.no_grad():
        ...     _ = model[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        >>> xl.approximate(model, [-1.0], [1.0]).decisions().labels
        [1, 0]

        Raises ArgumentError, also for one output without a threshold.
        """
        return decide_curve(self, order, output, threshold, rivals)

    def extrema(self, weights: Any, *, output: str | int | None = None) -> Extrema:
        """The smallest and the largest value of a linear functional of the outputs, and their positions.

        Args:
            weights: One functional (out,), several (k, out), or the index of a single output.
            output: Which output tensor to use, by its name or index, if the network has several.

        >>> import exactline as xl
        >>> found = xl.approximate(torch.nn.GELU(), [-3.0], [1.0]).extrema(0)
        >>> round(found.minimum, 6), round(found.argmin, 4)
        (-0.169971, 0.5621)
        """
        return find_curve_extrema(self, weights, output)

    def level(self, weights: Any, c: float = 0.0, *, output: str | int | None = None) -> LevelSet:
        """The level set of a linear functional of the outputs: all alphas and intervals where it equals c.

        Args:
            weights: The functional (out,), or the index of a single output.
            c: The level.
            output: Which output tensor to use, by its name or index, if the network has several.

        >>> import exactline as xl
        >>> xl.approximate(torch.nn.Sigmoid(), [-1.0], [3.0]).level(0, 0.5).alphas
        tensor([0.2500], dtype=torch.float64)
        """
        return find_curve_level(self, weights, c, output)

    def metrics(self) -> CurveMetrics:
        """Measures of the curve that need no linear regions: variation, steepest slope, length, mean.

        >>> import exactline as xl
        >>> xl.approximate(torch.nn.Tanh(), [-9.0], [9.0]).metrics().largest_slope
        tensor([18.0000], dtype=torch.float64)
        """
        return measure_curve(self)

    def save(self, path: str | Path) -> None:
        """Write the curve to a safetensors file, atomically.

        Args:
            path: The file to write.

        >>> import tempfile, exactline as xl
        >>> curve = xl.approximate(torch.nn.Tanh(), [-1.0], [2.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     curve.save(f"{folder}/curve.safetensors")
        ...     bool((xl.Approximation.load(f"{folder}/curve.safetensors").at(0.3) == curve.at(0.3)).all())
        True

        Raises FileError.
        """
        methods.save_curve(self, path)

    @staticmethod
    def load(path: str | Path) -> Approximation:
        """Read a saved curve.

        Args:
            path: The file.

        Raises FileError.
        """
        return methods.load_curve(path)

    def plot(self, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None) -> Axes:
        """Plot the outputs against alpha with matplotlib; breakpoints are marked below.

        Args:
            ax: The axes to draw into; None makes new ones.
            output: Which output tensor to plot, if the network has several.
            labels: Names of the outputs.
        """
        return methods.plot_curve(self, ax, output, labels)

    def to_html(self, path: str | Path, *, labels: Sequence[str] | None = None, title: str | None = None) -> Path:
        """Write a self-contained web page: a picture of the curve, its status and error, and its decisions.

        Args:
            path: The file to write.
            labels: Names of the outputs.
            title: Title of the page.

        Raises FileError, MissingError without matplotlib.
        """
        return methods.write_curve_page(self, path, labels=labels, title=title)

    def _check_alphas(self, alpha: Any) -> Tensor:
        try:
            alphas = torch.as_tensor(alpha, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as problem:
            raise ArgumentError(
                f"alpha is not a number or an array: {problem}",
                where="argument alpha",
                hint="Give numbers from 0 to 1.",
            ) from problem
        alphas, last = alphas.detach().cpu(), float(self.breakpoints[-1])
        if not bool(((alphas >= 0) & (alphas <= last)).all()):
            raise ArgumentError(
                "alpha is not on the line." if last == 1 else f"The line was followed up to alpha {last:.6g}.",
                where="argument alpha",
                hint=f"Give numbers from 0 to {last:.6g}.",
            )
        return alphas

    def __str__(self) -> str:
        parts = [
            f"{self.status}, error {self.error:.0e}",
            count_noun(len(self), "piece"),
            f"degrees up to {int(self.degrees.max())}",
            count_noun(self.evaluations, "evaluation"),
            format_seconds(self.seconds),
        ]
        if self.stopped:
            parts.append(f"stopped by {self.stopped}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Approximation: {self}>"
