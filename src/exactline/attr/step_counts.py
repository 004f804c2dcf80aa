"""Reports how many gradient evaluations each quadrature rule needs on the user's own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..api import restrict_many
from ..errors import ArgumentError
from ..lines import PointLike, as_points
from .methods import plot_error_curves
from .sampling_rules import RULE_NAMES, PieceGradients, check_rules

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_MAX_GRADIENTS = 1000  # tried with each rule


@dataclass(frozen=True)
class RuleNeed:
    """How many gradients one rule needs, over all inputs on which it reaches the tolerance."""

    rule: str
    mean: float
    percentile_95: float
    missed: int  # inputs on which it does not reach the tolerance


@dataclass(frozen=True, eq=False)
class SamplingReport:
    """How many gradients each rule needs; prints as a table, and ``plot()`` draws the errors.

    >>> from exactline.zoo import loan_line, loan_network
    >>> start, end = loan_line()
    >>> report = recommend(loan_network(), end[None], start[None], target=0, rules=["left", "midpoint"])
    >>> [(need.rule, need.mean, need.missed) for need in report.needs]
    [('left', 20.0, 0), ('midpoint', 11.0, 0)]
    """

    tolerance: float
    sum_tolerance: float  # relative error of the sum of the attributions at which the heuristic stops
    pieces: Tensor  # (inputs,) pieces of each line
    counts: dict[str, Tensor]  # (inputs,) gradients needed by each rule; NaN where it misses the tolerance
    errors: dict[str, Tensor]  # (inputs, 128) mean relative error with 1, 2, ... 128 gradients
    heuristic_counts: Tensor  # (inputs,) gradients at which the heuristic stops; NaN where it never does
    heuristic_errors: Tensor  # (inputs,) the true error there

    @property
    def needs(self) -> tuple[RuleNeed, ...]:
        """The needs of each rule."""
        return tuple(RuleNeed(rule, *_summarize(counts)) for rule, counts in self.counts.items())

    def __str__(self) -> str:
        lines = [
            f"gradients until the mean relative error stays below {self.tolerance:.3g}, {len(self.pieces)} inputs",
            f"{'rule':<16}{'mean':>9}{'95 %':>9}{'missed':>9}",
        ]
        lines += [f"{n.rule:<16}{n.mean:>9.2f}{n.percentile_95:>9.2f}{n.missed:>9}" for n in self.needs]
        lines.append(f"{'exact (pieces)':<16}{self.pieces.mean():>9.2f}{torch.quantile(self.pieces, 0.95):>9.2f}{0:>9}")
        mean, high, missed = _summarize(self.heuristic_counts)
        lines.append(f"{'until complete':<16}{mean:>9.2f}{high:>9.2f}{missed:>9}")
        wrong, worst, _ = _summarize(self.heuristic_errors)
        lines.append(
            f"A left sum that adds up to within {self.sum_tolerance:.3g} has a true error of {wrong:.2%}"
            f" (95th percentile {worst:.2%})."
        )
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean error of each rule against the number of gradients.

        Args:
            ax: The matplotlib axes to draw into; new ones by default.

        Raises MissingError without matplotlib.
        """
        return plot_error_curves(self, ax)


def recommend(
    model: Any,
    inputs: PointLike,
    baselines: PointLike = 0,
    target: int | Sequence[int] | Tensor | None = None,
    tolerance: float = 0.05,
    *,
    rules: Sequence[str] = RULE_NAMES,
    sum_tolerance: float = 0.01,
    max_gradients: int = DEFAULT_MAX_GRADIENTS,
) -> SamplingReport:
    """Report how many gradients each quadrature rule needs until its error stays below a tolerance.

    The error stays below it once five consecutive numbers of gradients are below. The report also contains the usual
    heuristic: left sums with 20, 21, ... gradients until the attributions add up to the change of the output. Each
    input takes one exact restriction and the gradient of every piece.

    Args:
        model: A module in eval mode, a Network, or a path.
        inputs: The inputs, (inputs, *in), or a tuple of tensors.
        baselines: A number for all coordinates, or points of the shape of the inputs.
        target: A flat position in the output for all inputs, or one for each; by default the largest output at each.
        tolerance: The largest mean relative error.
        rules: Names of rules; see `integrate`.
        sum_tolerance: The relative error of the sum at which the heuristic stops.
        max_gradients: The largest number of gradients to try.

    >>> from exactline.zoo import digits_images, digits_network
    >>> images, labels = digits_images()
    >>> report = recommend(digits_network(), images[:2], rules=["left", "trapezoid"])
    >>> [need.rule for need in report.needs], report.counts["left"].shape
    (['left', 'trapezoid'], torch.Size([2]))

    Raises ArgumentError, and the errors of `restrict`.
    """
    check_rules(rules, [max_gradients])
    if not tolerance > 0 or not sum_tolerance > 0:
        raise ArgumentError(
            "A tolerance must be greater than 0.", where="arguments tolerance, within", hint="Try 0.05 and 0.01."
        )
    ends = as_points(inputs, "inputs")
    is_number = isinstance(baselines, (int, float)) and not isinstance(baselines, bool)
    starts = tuple(torch.full_like(e, float(baselines)) for e in ends) if is_number else baselines
    lines = restrict_many(model, starts, ends)
    if not len(lines):
        raise ArgumentError("There are no inputs.", where="argument inputs", hint="Give at least one.")
    targets = _parse_targets(target, [line.values for line in lines])
    counts: dict[str, list[float]] = {rule: [] for rule in rules}
    errors: dict[str, list[Tensor]] = {rule: [] for rule in rules}
    heuristic: list[tuple[float, float]] = []
    for line, position in zip(lines, targets, strict=True):
        pieces = PieceGradients.of(line, position)
        for rule in rules:
            count, curve = pieces.find_stable_count(rule, tolerance, max_gradients)
            counts[rule].append(torch.nan if count is None else count)
            errors[rule].append(curve)
        heuristic.append(pieces.find_complete_count(sum_tolerance, last=max_gradients) or (torch.nan, torch.nan))
    return SamplingReport(
        tolerance,
        sum_tolerance,
        lines.pieces.double(),
        {rule: torch.tensor(numbers, dtype=torch.float64) for rule, numbers in counts.items()},
        {rule: torch.stack(curves) for rule, curves in errors.items()},
        *torch.tensor(heuristic, dtype=torch.float64).unbind(1),
    )


def _parse_targets(target: int | Sequence[int] | Tensor | None, values: list[Tensor | tuple[Tensor, ...]]) -> list[int]:
    """Return one flat position for each line."""
    if target is None:
        lasts = [(v[0] if isinstance(v, tuple) else v)[-1] for v in values]
        return [int(last.argmax()) for last in lasts]
    if isinstance(target, int):
        return [target] * len(values)
    positions = [int(t) for t in (target.tolist() if isinstance(target, Tensor) else target)]
    if len(positions) != len(values):
        raise ArgumentError(
            f"There are {len(values)} inputs and {len(positions)} targets.",
            where="argument target",
            hint="Give one target for all inputs, or one for each.",
        )
    return positions


def _summarize(numbers: Tensor) -> tuple[float, float, int]:
    """Return the mean and the 95th percentile without NaN, and the number of NaN."""
    known = numbers[~numbers.isnan()]
    missed = len(numbers) - len(known)
    if not len(known):
        return torch.nan, torch.nan, missed
    return float(known.mean()), float(torch.quantile(known, 0.95)), missed
