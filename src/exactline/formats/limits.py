"""The largest sizes that readers of files accept; each is checked before memory is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ..errors import FileError

MIB = 1 << 20
MAX_FILE_BYTES = 1024 * MIB  # of a file, also after unpacking a .gz
MAX_LINE_BYTES = 512 * MIB  # of one line of a text format
MAX_TENSOR_NUMBERS = 1 << 28  # in one tensor
MAX_WEIGHTS = 1 << 29  # in all tensors together
MAX_LAYERS = 100_000  # nodes of a graph, layers of a text format
MAX_VALUE_ELEMENTS = 1 << 24  # of one value of the graph, for one point
MAX_TABLE_ENTRIES = 1 << 25  # in all index tables of rearrangements and maxima together
MAX_FOLDED_NUMBERS = 1 << 25  # in all constants that nodes of a graph compute
MAX_DIMS = 16  # of a tensor
MAX_NESTING_DEPTH = 32  # of brackets in text
MAX_NAME_CHARACTERS = 4096  # of a name


def check_limit(count: float, limit: float, what: str, where: str) -> None:
    """Raise FileError if a count is above its limit."""
    if count > limit:
        raise FileError(
            f"There are too many {what}: {count:,.0f}; the limit is {limit:,.0f}.",
            where=where,
            hint="If the file is right, raise the limit in exactline.formats.limits.",
        )


def count_elements(dims: Iterable[int], what: str, where: str, limit: int = MAX_TENSOR_NUMBERS) -> int:
    """Count the elements of a shape; raises FileError for a negative size or too many elements."""
    shape = list(dims)
    check_limit(len(shape), MAX_DIMS, f"dimensions of {what}", where)
    if any(d < 0 for d in shape):
        raise FileError(f"{what} has a negative size: {shape}.", where=where, hint="The file is damaged.")
    check_limit(prod(max(d, 1) for d in shape), limit, f"elements of {what}", where)  # also where another size is 0
    return prod(shape)
