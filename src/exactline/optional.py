"""Packages that may be missing: what to say, and what to install."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .errors import MissingError


@contextmanager
def require_package(problem: str, *, where: str, hint: str) -> Generator[None]:
    """Imports that may fail; raises MissingError where one does.

    >>> with require_package("Dreams need a pillow.", where="bed", hint="pip install pillow"):
    ...     import not_a_package
    Traceback (most recent call last):
    exactline.errors.MissingError: Dreams need a pillow.
      where: bed
      try:   pip install pillow
    """
    try:
        yield
    except ImportError as error:
        raise MissingError(problem, where=where, hint=hint) from error
