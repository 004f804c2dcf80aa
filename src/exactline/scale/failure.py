"""What went wrong with one line, in a form that files and other processes can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ERRORS, ExactlineError

LONGEST = 500  # characters of a foreign error's message that are kept


@dataclass(frozen=True)
class Note:
    """An error without its traceback.

    >>> from exactline.errors import LineError
    >>> note = Note.of(LineError("Q holds NaN.", where="argument Q"))
    >>> note.code, type(note.error()).__name__, Note.of(ValueError("too far")).problem
    ('line', 'LineError', 'ValueError: too far')
    """

    code: str
    problem: str
    where: str = ""
    hint: str = ""
    tries: int = 1  # how often the line was tried

    @staticmethod
    def of(error: BaseException) -> Note:
        """The note of an error of ours, or of anybody else's."""
        if isinstance(error, ExactlineError):
            return Note(error.code, error.problem, error.where, error.hint)
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        return Note("failed", f"{type(error).__name__}: {first[:LONGEST]}", hint="Run this line alone to see where.")

    def error(self) -> ExactlineError:
        """The error again, of the same type where it was one of ours."""
        kind = next((known for known in ERRORS if known.code == self.code), ExactlineError)
        return kind(self.problem, where=self.where, hint=self.hint)

    def facts(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)
