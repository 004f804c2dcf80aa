"""The units of a property's bounds on a .nnet file: those of the file's ranges, or normalised ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..formats.numbers import TextLines, parse_numbers
from ..formats.open_file import read_file
from ..tolerances import UNITS_SLACK
from .property import Property

PHYSICAL, NORMALISED = "physical", "normalised"
HEADER_ROWS = ("counts", "sizes", "flag", "minima", "maxima", "means", "ranges")  # before the weights


@dataclass(frozen=True)
class UnitChoice:
    """How the bounds of a property are read."""

    normalize: bool  # whether the network includes the normalization of the file
    name: str = ""  # the units; "" where the file does not normalise its inputs
    note: str = ""  # what the user should know about the choice


@dataclass(frozen=True)
class InputRanges:
    """The ranges of the inputs in a .nnet file."""

    lower: Tensor  # (inputs,) in physical units
    upper: Tensor  # (inputs,)
    means: Tensor  # (inputs,)
    spans: Tensor  # (inputs,) the divisors of the normalization

    def fits_inputs(self, count: int) -> bool:
        """Whether there is a range for each input; `load` raises the error of a file without."""
        rows = (self.lower, self.upper, self.means, self.spans)
        return all(len(row) == count for row in rows) and bool((self.spans != 0).all())

    @property
    def normalises(self) -> bool:
        """Whether physical and normalised units differ."""
        return bool((self.means != 0).any()) or bool((self.spans != 1).any())

    def holds(self, prop: Property, units: str) -> bool:
        """Whether all boxes of a property lie within the ranges, in these units."""
        low, high = self.lower, self.upper
        if units == NORMALISED:
            ends = torch.stack([(end - self.means) / self.spans for end in (low, high)])
            low, high = ends.amin(0), ends.amax(0)
        slack = UNITS_SLACK * (high - low)
        boxes = [box for box, _ in prop.disjuncts_by_box()]
        return all(bool(((b.lower >= low - slack) & (b.upper <= high + slack)).all()) for b in boxes)


def choose_units(path: Path, prop: Property, normalize: bool | None) -> UnitChoice:
    """Choose the units in which the bounds of a property are read.

    Args:
        path: The file of the network.
        prop: The property.
        normalize: True for physical units, False for normalised ones, None to compare the bounds with the ranges.

    Raises ArgumentError if ``normalize`` is None and the bounds fit both or neither; FileError for a damaged file.
    """
    if not path.name.lower().removesuffix(".gz").endswith(".nnet"):
        return UnitChoice(normalize is not False)
    ranges = _read_ranges(path)
    if not ranges.fits_inputs(prop.inputs) or not ranges.normalises:
        return UnitChoice(normalize is not False)
    fits = {units: ranges.holds(prop, units) for units in (PHYSICAL, NORMALISED)}
    if normalize is None:
        if fits[PHYSICAL] == fits[NORMALISED]:
            raise _doubt_error(path, prop, fits_both=fits[PHYSICAL])
        chosen = PHYSICAL if fits[PHYSICAL] else NORMALISED
        return UnitChoice(chosen == PHYSICAL, chosen)
    chosen, other = (PHYSICAL, NORMALISED) if normalize else (NORMALISED, PHYSICAL)
    note = f"The bounds fit the file's ranges in {other} units only." if fits[other] and not fits[chosen] else ""
    return UnitChoice(normalize, chosen, note)


def _doubt_error(path: Path, prop: Property, fits_both: bool) -> ArgumentError:
    which = "both in physical and in normalised units" if fits_both else "neither in physical nor in normalised units"
    return ArgumentError(
        f"The bounds of the property fit the ranges of the file {which}.",
        where=f"{prop.source or 'the property'}, {path}",
        hint="Say which units they are in: normalize=True (--normalize) for physical ones such as feet, "
        "normalize=False (--no-normalize) for normalised ones.",
    )


def _read_ranges(path: Path) -> InputRanges:
    """Read the ranges of the inputs from the header."""
    lines = TextLines(read_file(path), str(path), comment=b"//")
    rows: dict[str, Tensor] = {}
    for name in HEADER_ROWS:
        numbers = parse_numbers(lines.require_line(name).removesuffix(b","), f"{lines.position}: {name}")
        rows[name] = torch.from_numpy(numbers).to(torch.float64)
    count = len(rows["minima"])
    return InputRanges(rows["minima"], rows["maxima"], rows["means"][:count], rows["ranges"][:count])
