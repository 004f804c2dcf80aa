"""What people type, parsed: shapes, labels, amounts of memory and input points."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, LineError
from ..humanize import count_noun
from .output import print_note

if TYPE_CHECKING:
    from ..formats.points_convert import PointOptions
    from ..network import Network
    from ..network.smooth_network import SmoothNetwork
    from .options import PointConversions

MAX_POINT_CHARACTERS = 60  # of a point in notes
BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_shapes(text: str | None) -> tuple[int, ...] | list[tuple[int, ...]] | dict[str, tuple[int, ...]] | None:
    """Parse the shapes of one or several inputs.

    Args:
        text: one shape such as 12,12,3; for several inputs one for each, as 3,32,32;5 in the order of the file, or by
            name, as image=3,32,32;age=5.

    Raises ArgumentError for anything but sizes of at least 1, and where only some inputs are named.
    """
    if text is None or (";" not in text and "=" not in text):
        return parse_shape(text)
    parts = [part.rpartition("=") for part in text.split(";") if part.strip()]
    names = [name.strip() for name, _, _ in parts]
    shapes = [parse_shape(shape) or () for _, _, shape in parts]
    if not any(names):
        return shapes
    if not all(names) or len(set(names)) != len(names):
        raise ArgumentError(
            f"{text!r} does not name every input once.",
            where="option --shape",
            hint="Give shapes such as 3,32,32;5 in the order of the file, or image=3,32,32;age=5 by name.",
        )
    return dict(zip(names, shapes, strict=True))


def parse_shape(text: str | None, option: str = "--shape", example: str = "12,12,3") -> tuple[int, ...] | None:
    """Parse a shape such as 12,12,3.

    Raises ArgumentError for anything but sizes of at least 1.
    """
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not sizes or any(size < 1 for size in sizes):
        raise ArgumentError(
            f"{text!r} is not a shape.", where=f"option {option}", hint=f"Give sizes such as {example}."
        )
    return sizes


def split_names(text: str | None) -> list[str] | None:
    """Split a list of names such as no,maybe,yes."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_labels(text: str | None, count: int) -> list[str] | None:
    """Parse the names of the outputs, such as no,maybe,yes.

    Raises ArgumentError if there are not ``count`` of them.
    """
    names = split_names(text)
    if names is not None and len(names) != count:
        raise ArgumentError(
            f"That is {count_noun(len(names), 'name')} for {count_noun(count, 'output')}.",
            where="--labels",
            hint="Give one name for each output, separated by commas.",
        )
    return names


def check_choice(option: str, value: str, choices: Sequence[str], noun: str | None = None) -> None:
    """Raise ArgumentError for a value that is not among the choices of an option.

    Args:
        option: The option, such as --order.
        value: What it was given.
        choices: The values it may have.
        noun: What the option chooses, for the message; its name by default.
    """
    if value not in choices:
        raise ArgumentError(
            f"There is no {noun or option.removeprefix('--')} {value!r}.",
            where=option,
            hint=f"Give {' or '.join(choices)}.",
        )


def parse_bytes(text: str) -> int:
    """Parse an amount of memory such as 1048576, 512M or 2G.

    >>> parse_bytes("512M") == 512 * 2**20
    True

    Raises ArgumentError for anything else.
    """
    match = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(i?b)?", text.strip().lower())
    if match is None:
        raise ArgumentError(f"{text!r} is not an amount of memory.", where="--memory", hint="Give bytes, 512M or 2G.")
    return int(match[1]) * BYTE_UNITS[match[2]]


def parse_output(text: str | None) -> str | int | None:
    """Parse the option --output: the index of an output, or its name."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def parse_indices(text: str | None, option: str) -> list[int] | None:
    """Parse a list of indices such as 0,2.

    Raises ArgumentError for anything else.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ArgumentError(f"{text!r} is not a list of indices.", where=option, hint="Give numbers such as 0,2.")
    return [int(part) for part in parts]


@dataclass
class PointReader:
    """Reads the points of a command, tells every conversion on standard error, and keeps them for the JSON document."""

    network: Network | SmoothNetwork
    options: PointOptions
    conversions: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    warned: list[str] = field(default_factory=list[str])

    @staticmethod
    def make(network: Network | SmoothNetwork, given: PointConversions) -> PointReader:
        """Check the options.

        Raises ArgumentError.
        """
        from ..formats.points_convert import PointOptions

        options = PointOptions.check(
            resize=given.resize,
            layout=given.layout,
            scale=given.scale,
            mean=_parse_numbers(given.mean, "--mean"),
            std=_parse_numbers(given.std, "--std"),
        )
        return PointReader(network, options)

    def read(self, texts: list[str], option: str) -> Any:
        """Read one input point of the network: an array, or a tuple of arrays if the network has several inputs.

        Args:
            texts: Numbers or files, one for each input of the network.
            option: The option that the texts were given with, for error messages.

        Raises LineError if their number or their shapes do not fit the network, FileError if a file cannot be read.
        """
        from ..formats.points import convert_point

        given: Any = self.network.input_shape
        shapes = list(given) if self.network.several_inputs else [given]
        if len(texts) != len(shapes):
            raise LineError(
                f"The network takes {count_noun(len(shapes), 'input')}, but {option} is given "
                f"{count_noun(len(texts), 'time')}.",
                where=option,
                hint=f"Give {option} once for each input, in order.",
            )
        points = [convert_point(text, shape, self.options, option) for text, shape in zip(texts, shapes, strict=True)]
        for text, point in zip(texts, points, strict=True):
            name = text if len(text) <= MAX_POINT_CHARACTERS else f"{text[:MAX_POINT_CHARACTERS]}..."
            self.conversions += [{"option": option, "point": name, "conversion": c} for c in point.conversions]
            if point.conversions:
                print_note(f"{option} {name}: {', '.join(point.conversions)}")
        arrays = tuple(point.values for point in points)
        return arrays if self.network.several_inputs else arrays[0]

    def read_ends(self, start: list[str], end: list[str]) -> tuple[Any, Any]:
        """Read both ends of a line, and warn if their ranges are far apart; see `read`."""
        ends = self.read(start, "--from"), self.read(end, "--to")
        self.compare_ranges(*ends, ("--from", "--to"))
        return ends

    def compare_ranges(self, one: Any, other: Any, options: tuple[str, str]) -> None:
        """Warn if the values of one point are far outside the range of the other.

        Args:
            one: A point that `read` returned.
            other: Another one.
            options: The options they were given with.
        """
        from ..formats.points_range import compare_ranges

        ones, others = (p if isinstance(p, tuple) else (p,) for p in (one, other))
        for first, second in zip(ones, others, strict=True):
            if problem := compare_ranges(first, second, options):
                self.warned.append(problem)
                print_note(f"warning: {problem}")

    @contextlib.contextmanager
    def silence_warnings(self) -> Generator[None]:
        """Silence the library's warnings about ranges, which `compare_ranges` has printed."""
        from ..formats.points_range import RangeWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)
            yield

    def report(self) -> dict[str, Any]:
        """The entries of the JSON document."""
        return {"conversions": self.conversions, "warnings": self.warned}


def _parse_numbers(text: str | None, option: str) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{text!r} is not a list of numbers.", where=option, hint="Give one number, or one for each channel."
        ) from None
