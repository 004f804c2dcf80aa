"""Optional packages: a typed error that says what to install."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .errors import MissingError


@contextmanager
def require_package(problem: str, *, where: str, hint: str) -> Generator[None]:
    """Turn the ImportError of an optional package inside the block into a MissingError.

    >>> with require_package("Plots need matplotlib.", where="line.plot", hint="pip install matplotlib"):
    ...     import not_a_package
    Traceback (most recent call last):
    exactline.errors.MissingError: Plots need matplotlib.
      where: line.plot
      try:   pip install matplotlib
    """
    try:
        yield
    except ImportError as error:
        raise MissingError(problem, where=where, hint=hint) from error
