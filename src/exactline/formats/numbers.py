"""Decimal numbers in text files: lines, lists and nested brackets, read without running anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Floats
from ..errors import ExactlineError, FileError, NumberError
from . import limits

LINES = 1 << 24  # of a file
DIGITS = 2048  # characters of one number
CHUNK = 1 << 20  # bytes of text that are split at a time
NUMERAL = b"0123456789+-.eE, \t"
BRACKETS = b"[]"
SPACES = bytes.maketrans(BRACKETS, b"  ")
NOT_SKELETON = bytes(c for c in range(256) if c not in b"[],")
DIGIT = bytes.maketrans(b"123456789+-.eE", b"0" * 14)  # every part of a number looks the same
HINT = "Write decimal numbers such as -0.25 or 1e-3, with commas between them."


class Lines:
    """The lines of a text file that are neither empty nor comments, one after another."""

    def __init__(self, data: bytes, where: str, comment: bytes | None = None) -> None:
        self.where = where
        self.number = 0  # of the line read last
        self.within = ""  # the layer being read, for messages
        limits.within(data.count(b"\n"), LINES, "lines", where)
        self._lines = self._split(data.removeprefix(b"\xef\xbb\xbf"), comment)

    @property
    def here(self) -> str:
        """The place of the line read last, for messages."""
        layer = f" ({self.within})" if self.within else ""
        return f"{self.where}, line {self.number}{layer}"

    def next(self) -> bytes | None:
        """The next line, or None at the end."""
        return next(self._lines, None)

    def need(self, what: str) -> bytes:
        """The next line, which the file must have."""
        line = self.next()
        if line is None:
            raise self.error(f"The file ends where {what} should come.", "The file is incomplete: get it again.")
        return line

    def error(self, problem: str, hint: str) -> FileError:
        """What is wrong with the line read last."""
        return FileError(problem, where=self.here, hint=hint)

    def _split(self, data: bytes, comment: bytes | None) -> Iterator[bytes]:
        start = 0
        while start < len(data):
            stop = data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            self.number += 1
            limits.within(stop - start, limits.TEXT_LINE, "bytes in one line", self.here)
            line = data[start:stop].strip()
            start = stop + 1
            if line and not (comment is not None and line.startswith(comment)):
                yield line


def floats(text: bytes, where: str) -> Floats:
    """Numbers with commas between them.

    >>> floats(b"1, -2.5,3e-1", "an example")
    array([ 1. , -2.5,  0.3])
    """
    _checked(text, NUMERAL, where)
    return _floats(text, where)


def array(text: bytes, where: str) -> Floats:
    """Numbers in nested brackets, as long in every row.

    >>> array(b"[[1, 2], [3, 4]]", "an example")
    array([[1., 2.],
           [3., 4.]])
    """
    _checked(text, NUMERAL + BRACKETS, where)
    shape = _shape(text, where)
    return _floats(text.translate(SPACES), where).reshape(shape)


def _floats(text: bytes, where: str) -> Floats:
    count = text.count(b",") + 1
    limits.within(count, limits.NUMBERS, "numbers in one line", where)
    found = np.empty(count)
    start = done = 0
    while done < count:
        stop = text.find(b",", start + CHUNK)
        stop = len(text) if stop < 0 else stop
        tokens = text[start:stop].split(b",")
        limits.within(max(map(len, tokens)), DIGITS, "characters in one number", where)
        try:
            values = [float(t) for t in tokens]
        except ValueError:
            raise _misread(tokens, where) from None
        found[done : done + len(values)] = values
        start, done = stop + 1, done + len(values)
    finite = np.isfinite(found)
    if not finite.all():
        place = int(finite.argmin())
        token = text.split(b",", place + 1)[place]
        raise NumberError(
            f"{shown(token)} is larger than any double (number {place + 1} of its line).", where=where, hint=HINT
        )
    return found


def _checked(text: bytes, allowed: bytes, where: str) -> None:
    """Refuse what no list of decimal numbers holds: letters, quotes, underscores."""
    rest = text.translate(None, allowed)
    if not rest:
        return
    at = text.index(rest[:1])
    start = max(text.rfind(c, 0, at) for c in (b",", b"[", b" ")) + 1
    ends = [e for e in (text.find(c, at) for c in (b",", b"]", b" ")) if e >= 0]
    raise _not_a_number(text[start : min(ends, default=len(text))], where)


def _shape(text: bytes, where: str) -> tuple[int, ...]:
    """The dims that the brackets say; all rows must agree."""
    skeleton = text.translate(None, NOT_SKELETON)
    depth = len(skeleton) - len(skeleton.lstrip(b"["))
    if not depth:
        raise FileError("A list in brackets was expected.", where=where, hint="Write [1, 2] or [[1, 2], [3, 4]].")
    limits.within(depth, limits.DEPTH, "brackets within brackets", where)
    block, shape = b"", list[int]()
    for level in range(1, depth + 1):
        end = skeleton.find(b"]" * level)  # where the first group of this level closes
        room = end + level - (depth - level) - 1  # its blocks, and as many commas
        count = max(room // (len(block) + 1), 1)
        block = b"[" + ((block + b",") * count)[:-1] + b"]"
        shape.insert(0, count)
        if len(block) > len(skeleton):
            break
    if skeleton != block:
        raise FileError(
            "The brackets are not balanced, or rows are not of the same length.",
            where=where,
            hint=f"The first rows say the shape is {tuple(shape)}: see that all others agree.",
        )
    plain = text.translate(DIGIT, b" \t")
    if b"0[" in plain or b"]0" in plain:
        raise FileError("There is something between the brackets of two rows.", where=where, hint=HINT)
    return tuple(shape)


def _misread(tokens: list[bytes], where: str) -> ExactlineError:
    """The error for the first token that is not a number."""
    for token in tokens:
        try:
            float(token)
        except ValueError:
            return _not_a_number(token, where)
    return FileError("A number cannot be read.", where=where, hint=HINT)


def _not_a_number(token: bytes, where: str) -> ExactlineError:
    low = token.lower()
    if b"nan" in low or b"inf" in low:
        return NumberError(f"{shown(token)} is not a finite number.", where=where, hint="Weights must be finite.")
    if not token.strip():
        return FileError("A number is missing.", where=where, hint=HINT)
    return FileError(f"{shown(token)} is not a decimal number.", where=where, hint=HINT)


def shown(token: bytes) -> str:
    """A piece of a file that is safe and short enough to print."""
    text = token.strip()
    return ascii(text[:40].decode("latin-1")) + ("..." if len(text) > 40 else "")
