"""Counts, times and units as text for people."""

from __future__ import annotations

from collections.abc import Mapping

OPERATOR_TITLES = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "relu6": "ReLU6", "prelu": "PReLU", "rrelu": "RReLU"}


def count_noun(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural.

    >>> count_noun(1, "piece"), count_noun(1234, "piece")
    ('1 piece', '1,234 pieces')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """A duration in milliseconds or seconds.

    >>> format_seconds(0.0123), format_seconds(1.26)
    ('12 ms', '1.3 s')
    """
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_bytes(count: int) -> str:
    """Format a number of bytes in its largest unit.

    >>> format_bytes(512), format_bytes(300 << 20), format_bytes(3 << 29)
    ('512 bytes', '300 MiB', '1.5 GiB')
    """
    if count >= 1 << 30:
        return f"{count / (1 << 30):.3g} GiB"
    return f"{-(-count // (1 << 20)):,} MiB" if count >= 1 << 20 else f"{count:,} bytes"


def format_units(units: Mapping[str, int]) -> str:
    """The number of units of each kind of operator.

    >>> format_units({"relu": 1600, "max_pool2d": 16}), format_units({})
    ('1,600 ReLU and 16 max_pool2d units', 'no units')
    """
    return (
        " and ".join(f"{count:,} {OPERATOR_TITLES.get(name, name)}" for name, count in units.items()) or "no"
    ) + " units"
