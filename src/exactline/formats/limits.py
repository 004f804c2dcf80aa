"""How large a file and what is in it may be. Every reader checks these before it allocates."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ..errors import FileError

MIB = 1 << 20
FILE = 1024 * MIB  # bytes of a file, and of what a .gz unpacks to
TEXT_LINE = 512 * MIB  # bytes of one line of a text format
NUMBERS = 1 << 28  # numbers in one tensor
WEIGHTS = 1 << 29  # numbers in all tensors together
LAYERS = 100_000  # nodes of a graph, layers of a text format
WIDTH = 1 << 24  # elements of one value of the graph, for one point
TABLES = 1 << 25  # places in all tables that say where elements go
MADE = 1 << 25  # numbers of all constants that nodes of a graph work out
DIMS = 16  # of a tensor
DEPTH = 32  # nesting: brackets in text, graphs within graphs in ONNX
NAME = 4096  # characters of a name


def within(count: float, most: float, what: str, where: str) -> None:
    """Refuse what is larger than its limit."""
    if count > most:
        raise FileError(
            f"There are too many {what}: {count:,.0f}, and at most {most:,.0f} are read.",
            where=where,
            hint="If the file is right, raise the limit in exactline.formats.limits.",
        )


def sized(dims: Iterable[int], what: str, where: str, most: int = NUMBERS) -> int:
    """The number of elements of a shape, refused where a dim is negative or there are too many."""
    shape = list(dims)
    within(len(shape), DIMS, f"dims of {what}", where)
    if any(d < 0 for d in shape):
        raise FileError(f"{what} has a negative size: {shape}.", where=where, hint="The file is damaged.")
    within(prod(max(d, 1) for d in shape), most, f"elements of {what}", where)  # even where another dim is 0
    return prod(shape)
