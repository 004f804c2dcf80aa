"""The error of one line in a form that files and other processes can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ERRORS, ExactlineError

MAX_MESSAGE_CHARACTERS = 500  # of an error that is not exactline's


@dataclass(frozen=True)
class Failure:
    """An error without its traceback.

    >>> from exactline.errors import LineError
    >>> failure = Failure.from_error(LineError("start holds NaN.", where="argument start"))
    >>> failure.code, type(failure.to_error()).__name__, Failure.from_error(ValueError("too far")).problem
    ('line', 'LineError', 'ValueError: too far')
    """

    code: str
    problem: str
    where: str = ""
    hint: str = ""
    tries: int = 1  # how often the line was tried

    @staticmethod
    def from_error(error: BaseException) -> Failure:
        """Describe any exception; exactline's own keep problem, where and hint."""
        if isinstance(error, ExactlineError):
            return Failure(error.code, error.problem, error.where, error.hint)
        first = (str(error).strip().splitlines() or ["no reason given"])[0][:MAX_MESSAGE_CHARACTERS]
        return Failure("failed", f"{type(error).__name__}: {first}", hint="Run this line alone to see where.")

    def to_error(self) -> ExactlineError:
        """An exception to raise, of the original type where that was one of exactline's."""
        kind = next((known for known in ERRORS if known.code == self.code), ExactlineError)
        return kind(self.problem, where=self.where, hint=self.hint)

    def to_json(self) -> dict[str, Any]:
        """The fields as shards store them."""
        return asdict(self)
