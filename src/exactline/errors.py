"""Every error a user can meet: what the problem is, where it is, and what to try."""

from __future__ import annotations


class ExactlineError(Exception):
    """The base of all our errors; it prints as problem / where / try.

    >>> print(LineError("Q holds NaN.", where="argument Q", hint="Give finite points."))
    Q holds NaN.
      where: argument Q
      try:   Give finite points.
    """

    code = "exactline"
    exit_status = 1

    def __init__(self, problem: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.problem]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  try:   {self.hint}")
        return "\n".join(lines)


class LineError(ExactlineError):
    """The end points of a line cannot be used."""

    code = "line"
    exit_status = 2


class PlaneError(ExactlineError):
    """The corners of a polygon cannot be used."""

    code = "plane"
    exit_status = 2


class ArgumentError(ExactlineError):
    """An option or an argument has a value that makes no sense."""

    code = "argument"
    exit_status = 2


class CaptureError(ExactlineError):
    """The model could not be turned into a graph."""

    code = "capture"
    exit_status = 3


class TrainingModeError(CaptureError):
    """A submodule behaves as in training, so the model is not one function."""

    code = "training-mode"


class UnsupportedError(CaptureError):
    """The graph holds operators that are not piecewise linear, or that we do not know."""

    code = "unsupported"

    def __init__(self, problem: str, *, nodes: tuple[str, ...] = (), where: str = "", hint: str = "") -> None:
        super().__init__(problem, where=where, hint=hint)
        self.nodes = nodes


class NumberError(ExactlineError):
    """A weight or a value is NaN, infinite or overflows."""

    code = "number"
    exit_status = 4


class MissingError(ExactlineError):
    """What was asked for was not kept, or an optional package is absent."""

    code = "missing"
    exit_status = 5


class FileError(ExactlineError):
    """A file cannot be read or written."""

    code = "file"
    exit_status = 6


class ServiceError(ExactlineError):
    """A server cannot be reached, or cannot do its work now."""

    code = "service"
    exit_status = 7


class AccessError(ServiceError):
    """A server does not know the caller: its token is missing or wrong."""

    code = "access"


class LimitError(ServiceError):
    """A call asks for more than a limit of the server allows; the limit is named."""

    code = "limit"


ERRORS: tuple[type[ExactlineError], ...] = (
    ExactlineError,
    LineError,
    PlaneError,
    ArgumentError,
    CaptureError,
    TrainingModeError,
    UnsupportedError,
    NumberError,
    MissingError,
    FileError,
    ServiceError,
    AccessError,
    LimitError,
)
