"""Parse decimal numbers in text files, as lists and in nested brackets, without evaluating any code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Floats
from ..errors import ExactlineError, FileError, NumberError
from . import limits

MAX_LINES = 1 << 24  # of a file
MAX_NUMBER_CHARACTERS = 2048  # of one number
SPLIT_CHUNK_BYTES = 1 << 20  # of text that are split at a time
NUMBER_CHARACTERS = b"0123456789+-.eE, \t"
BRACKETS = b"[]"
BRACKETS_TO_SPACES = bytes.maketrans(BRACKETS, b"  ")
NON_BRACKET_BYTES = bytes(c for c in range(256) if c not in b"[],")
DIGITS_TO_ZERO = bytes.maketrans(b"123456789+-.eE", b"0" * 14)  # any character of a number becomes 0
NUMBER_HINT = "Write decimal numbers such as -0.25 or 1e-3, with commas between them."


class TextLines:
    """Iterates over the lines of a text file, without empty lines and comments."""

    def __init__(self, data: bytes, where: str, comment: bytes | None = None) -> None:
        self.where = where
        self.number = 0  # of the line read last, from 1
        self.section = ""  # the layer being read, for error messages
        limits.check_limit(data.count(b"\n"), MAX_LINES, "lines", where)
        self._lines = self._split_lines(data.removeprefix(b"\xef\xbb\xbf"), comment)

    @property
    def position(self) -> str:
        """The file, line number and section of the line read last, for error messages."""
        layer = f" ({self.section})" if self.section else ""
        return f"{self.where}, line {self.number}{layer}"

    def next_line(self) -> bytes | None:
        """The next line, or None at the end."""
        return next(self._lines, None)

    def require_line(self, what: str) -> bytes:
        """The next line; raises FileError at the end of the file."""
        line = self.next_line()
        if line is None:
            raise self.make_error(f"The file ends before {what}.", "The file is incomplete: download it again.")
        return line

    def make_error(self, problem: str, hint: str) -> FileError:
        """An error about the line read last."""
        return FileError(problem, where=self.position, hint=hint)

    def _split_lines(self, data: bytes, comment: bytes | None) -> Iterator[bytes]:
        start = 0
        while start < len(data):
            stop = data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            self.number += 1
            limits.check_limit(stop - start, limits.MAX_LINE_BYTES, "bytes in one line", self.position)
            line = data[start:stop].strip()
            start = stop + 1
            if line and not (comment is not None and line.startswith(comment)):
                yield line


def parse_numbers(text: bytes, where: str) -> Floats:
    """Parse numbers separated by commas.

    >>> parse_numbers(b"1, -2.5,3e-1", "an example")
    array([ 1. , -2.5,  0.3])
    """
    _check_characters(text, NUMBER_CHARACTERS, where)
    return _parse_in_chunks(text, where)


def parse_array(text: bytes, where: str) -> Floats:
    """Parse numbers in nested brackets, with rows of equal length.

    >>> parse_array(b"[[1, 2], [3, 4]]", "an example")
    array([[1., 2.],
           [3., 4.]])
    """
    _check_characters(text, NUMBER_CHARACTERS + BRACKETS, where)
    shape = _read_shape(text, where)
    return _parse_in_chunks(text.translate(BRACKETS_TO_SPACES), where).reshape(shape)


def _parse_in_chunks(text: bytes, where: str) -> Floats:
    count = text.count(b",") + 1
    limits.check_limit(count, limits.MAX_TENSOR_NUMBERS, "numbers in one line", where)
    numbers = np.empty(count)
    start = done = 0
    while done < count:
        stop = text.find(b",", start + SPLIT_CHUNK_BYTES)
        stop = len(text) if stop < 0 else stop
        tokens = text[start:stop].split(b",")
        limits.check_limit(max(map(len, tokens)), MAX_NUMBER_CHARACTERS, "characters in one number", where)
        try:
            values = [float(t) for t in tokens]
        except ValueError:
            raise _make_token_error(tokens, where) from None
        numbers[done : done + len(values)] = values
        start, done = stop + 1, done + len(values)
    finite = np.isfinite(numbers)
    if not finite.all():
        index = int(finite.argmin())
        token = text.split(b",", index + 1)[index]
        raise NumberError(
            f"{quote(token)} is larger than any double (number {index + 1} of its line).", where=where, hint=NUMBER_HINT
        )
    return numbers


def _check_characters(text: bytes, allowed: bytes, where: str) -> None:
    """Raise an error for characters that no list of decimal numbers contains, such as letters and quotes."""
    others = text.translate(None, allowed)
    if not others:
        return
    position = text.index(others[:1])
    start = max(text.rfind(c, 0, position) for c in (b",", b"[", b" ")) + 1
    ends = [e for e in (text.find(c, position) for c in (b",", b"]", b" ")) if e >= 0]
    raise _make_number_error(text[start : min(ends, default=len(text))], where)


def _read_shape(text: bytes, where: str) -> tuple[int, ...]:
    """The shape that nested brackets describe; raises FileError where rows differ in length.

    The brackets and commas of the first rows determine the shape; the text must then consist of repetitions of them.
    """
    brackets = text.translate(None, NON_BRACKET_BYTES)
    depth = len(brackets) - len(brackets.lstrip(b"["))
    if not depth:
        raise FileError("A list in brackets was expected.", where=where, hint="Write [1, 2] or [[1, 2], [3, 4]].")
    limits.check_limit(depth, limits.MAX_NESTING_DEPTH, "levels of brackets", where)
    block, shape = b"", list[int]()
    for level in range(1, depth + 1):
        end = brackets.find(b"]" * level)  # where the first block of this level closes
        inside = end + level - (depth - level) - 1  # bytes of its inner blocks, and as many commas
        count = max(inside // (len(block) + 1), 1)
        block = b"[" + ((block + b",") * count)[:-1] + b"]"
        shape.insert(0, count)
        if len(block) > len(brackets):
            break
    if brackets != block:
        raise FileError(
            "The brackets are not balanced, or the rows differ in length.",
            where=where,
            hint=f"The first rows have the shape {tuple(shape)}: check that the others agree.",
        )
    zeros = text.translate(DIGITS_TO_ZERO, b" \t")
    if b"0[" in zeros or b"]0" in zeros:
        raise FileError("There is a number between the brackets of two rows.", where=where, hint=NUMBER_HINT)
    return tuple(shape)


def _make_token_error(tokens: list[bytes], where: str) -> ExactlineError:
    """An error about the first token that is not a number."""
    for token in tokens:
        try:
            float(token)
        except ValueError:
            return _make_number_error(token, where)
    return FileError("A number cannot be read.", where=where, hint=NUMBER_HINT)


def _make_number_error(token: bytes, where: str) -> ExactlineError:
    """An error about a token that is not a number."""
    lower = token.lower()
    if b"nan" in lower or b"inf" in lower:
        return NumberError(f"{quote(token)} is not a finite number.", where=where, hint="Weights must be finite.")
    if not token.strip():
        return FileError("A number is missing.", where=where, hint=NUMBER_HINT)
    return FileError(f"{quote(token)} is not a decimal number.", where=where, hint=NUMBER_HINT)


def quote(token: bytes) -> str:
    """Quote text from a file for an error message: printable, and at most 40 characters of it."""
    text = token.strip()
    return ascii(text[:40].decode("latin-1")) + ("..." if len(text) > 40 else "")
