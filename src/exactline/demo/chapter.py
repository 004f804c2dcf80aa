"""What a chapter of the demonstration is made of: texts, code, pictures, tables, pages to explore, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A picture, drawn when it is wanted."""

    name: str  # of its files, without their endings
    draw: Callable[[], Figure]
    alt: str  # what it shows, for whoever cannot see it
    caption: str


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1  # so many columns hold words, the others numbers


@dataclass(frozen=True)
class Page:
    """A file beside the report that it links to."""

    file: str
    title: str
    write: Callable[[Path], object]


@dataclass(frozen=True)
class Chapter:
    """One question and its answer."""

    name: str
    title: str
    texts: tuple[str, ...]
    code: str  # python that gives the answer, as it can be typed
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    pages: tuple[Page, ...]
    facts: dict[str, Any]  # the numbers behind it all, in full; JSON can hold them


def number(value: float, digits: int = 4) -> str:
    """A number for people; no minus before a zero.

    >>> number(2.0), number(-1e-18), number(1 / 3), number(114750.98)
    ('2', '0', '0.3333', '114,751')
    """
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{round(value, 12) + 0.0:.{digits}g}"


def percent(share: float) -> str:
    """A share, an error: two digits that count.

    >>> percent(0.0408), percent(3.2e-16), percent(0.0)
    ('4.1 %', '3.2e-14 %', '0 %')
    """
    return "0 %" if share == 0 else f"{100 * share:.2g} %"
