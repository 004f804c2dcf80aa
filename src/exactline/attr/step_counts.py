"""How many gradients each sampling rule needs on the user's own data."""

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
from .sampling_rules import NAMES, Pieces, checked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 1000


@dataclass(frozen=True)
class Need:
    """How many gradients one rule needs, over all inputs for which it gets there."""

    rule: str
    mean: float
    high: float  # 95th percentile
    missed: int  # inputs that are not within the tolerance with the most gradients tried


@dataclass(frozen=True, eq=False)
class Report:
    """What each rule needs; prints as a table, and ``plot()`` draws the errors.

    >>> from exactline.zoo import loan_line, loan_network
    >>> Q, R = loan_line()
    >>> report = recommend(loan_network(), R[None], Q[None], target=0, rules=["left", "midpoint"])
    >>> report.needs
    (Need(rule='left', mean=20.0, high=20.0, missed=0), Need(rule='midpoint', mean=11.0, high=11.0, missed=0))
    """

    tolerance: float
    within: float  # how well the attributions add up when the heuristic is content
    pieces: Tensor  # (inputs,)
    counts: dict[str, Tensor]  # (inputs,) gradients needed by each rule; NaN where the most tried are too few
    errors: dict[str, Tensor]  # (inputs, 128) mean relative error with 1, 2, ... 128 gradients
    stops: Tensor  # (inputs,) where the heuristic stops: m-tilde; NaN where it never does
    stop_errors: Tensor  # (inputs,) the true error there

    @property
    def needs(self) -> tuple[Need, ...]:
        """One row for each rule."""
        return tuple(Need(rule, *_summary(counts)) for rule, counts in self.counts.items())

    def __str__(self) -> str:
        lines = [
            f"gradients until the mean relative error stays below {self.tolerance:.3g}, {len(self.pieces)} inputs",
            f"{'rule':<16}{'mean':>9}{'95 %':>9}{'missed':>9}",
        ]
        lines += [f"{n.rule:<16}{n.mean:>9.2f}{n.high:>9.2f}{n.missed:>9}" for n in self.needs]
        lines.append(f"{'exact (pieces)':<16}{self.pieces.mean():>9.2f}{torch.quantile(self.pieces, 0.95):>9.2f}{0:>9}")
        mean, high, missed = _summary(self.stops)
        lines.append(f"{'until complete':<16}{mean:>9.2f}{high:>9.2f}{missed:>9}")
        wrong, worst, _ = _summary(self.stop_errors)
        lines.append(
            f"A left sum that adds up to within {self.within:.3g} has a true error of {wrong:.2%}"
            f" (95th percentile {worst:.2%})."
        )
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean error of each rule against the number of gradients."""
        return plot_error_curves(self, ax)


def recommend(
    model: Any,
    inputs: PointLike,  # (inputs, *in), or a tuple of such
    baselines: PointLike = 0,  # a number for all coordinates, or of the shape of inputs
    target: int | Sequence[int] | Tensor | None = None,
    tolerance: float = 0.05,
    *,
    rules: Sequence[str] = NAMES,
    within: float = 0.01,
    most: int = MOST,
) -> Report:
    """How many gradients each rule needs until its error stays below ``tolerance``, on these inputs.

    The error stays below when five numbers of gradients in a row are below. ``target`` is one flat position in the
    output for all inputs or one for each, by default the largest at each input. With the rules comes the usual
    heuristic: left sums with 20, 21, ... gradients until the attributions add up to within ``within`` of the change of
    the output. Takes one exact restriction and one gradient of every piece for each input.

    >>> from exactline.zoo import digits_images, digits_network
    >>> images, labels = digits_images()
    >>> report = recommend(digits_network(), images[:2], rules=["left", "trapezoid"])
    >>> [need.rule for need in report.needs], report.counts["left"].shape
    (['left', 'trapezoid'], torch.Size([2]))

    Raises ArgumentError, and what restrict raises.
    """
    checked(rules, [most])
    if not tolerance > 0 or not within > 0:
        raise ArgumentError(
            "A tolerance must be greater than 0.", where="arguments tolerance, within", hint="Try 0.05 and 0.01."
        )
    ends = as_points(inputs, "inputs")
    plain = isinstance(baselines, (int, float)) and not isinstance(baselines, bool)
    starts = tuple(torch.full_like(e, float(baselines)) for e in ends) if plain else baselines
    lines = restrict_many(model, starts, ends)
    if not len(lines):
        raise ArgumentError("There are no inputs.", where="argument inputs", hint="Give at least one.")
    targets = _targets(target, [line.values for line in lines])
    counts: dict[str, list[float]] = {rule: [] for rule in rules}
    errors: dict[str, list[Tensor]] = {rule: [] for rule in rules}
    stops: list[tuple[float, float]] = []
    for line, wanted in zip(lines, targets, strict=True):
        pieces = Pieces.of(line, wanted)
        for rule in rules:
            found, shown = pieces.settled(rule, tolerance, most)
            counts[rule].append(torch.nan if found is None else found)
            errors[rule].append(shown)
        stops.append(pieces.completeness(within, last=most) or (torch.nan, torch.nan))
    return Report(
        tolerance,
        within,
        lines.pieces.double(),
        {rule: torch.tensor(found, dtype=torch.float64) for rule, found in counts.items()},
        {rule: torch.stack(found) for rule, found in errors.items()},
        *torch.tensor(stops, dtype=torch.float64).unbind(1),
    )


def _targets(target: int | Sequence[int] | Tensor | None, values: list[Tensor | tuple[Tensor, ...]]) -> list[int]:
    """One flat position for each line."""
    if target is None:
        lasts = [(v[0] if isinstance(v, tuple) else v)[-1] for v in values]
        return [int(last.argmax()) for last in lasts]
    if isinstance(target, int):
        return [target] * len(values)
    found = [int(t) for t in (target.tolist() if isinstance(target, Tensor) else target)]
    if len(found) != len(values):
        raise ArgumentError(
            f"There are {len(values)} inputs and {len(found)} targets.",
            where="argument target",
            hint="Give one for all, or one for each.",
        )
    return found


def _summary(numbers: Tensor) -> tuple[float, float, int]:
    """Mean and 95th percentile of those that are there, and how many are not."""
    there = numbers[~numbers.isnan()]
    missed = len(numbers) - len(there)
    if not len(there):
        return torch.nan, torch.nan, missed
    return float(there.mean()), float(torch.quantile(there, 0.95)), missed
