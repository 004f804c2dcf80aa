"""What people type, parsed: shapes, labels, amounts of memory and input points."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, LineError
from ..humanize import count_noun

if TYPE_CHECKING:
    from ..network import Network

BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


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


def read_input_point(texts: list[str], network: Network, option: str) -> Any:
    """Read one input point of a network: an array, or a tuple of arrays if the network has several inputs.

    Args:
        texts: Numbers or files, one for each input of the network.
        network: The network that takes the point.
        option: The option that the texts were given with, for error messages.

    Raises LineError if their number or their shapes do not fit the network, FileError if a file cannot be read.
    """
    from ..formats.points import read_point

    shapes = [network.nodes[i].shape for i in network.inputs]
    if len(texts) != len(shapes):
        raise LineError(
            f"The network takes {count_noun(len(shapes), 'input')}, but {option} is given "
            f"{count_noun(len(texts), 'time')}.",
            where=option,
            hint=f"Give {option} once for each input, in order.",
        )
    arrays = tuple(read_point(text, shape, option) for text, shape in zip(texts, shapes, strict=True))
    return arrays if network.several_inputs else arrays[0]
