"""Estimated errors of lines that a client asks for when they are needed, and the line that does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from ...errors import MissingError
from ...results.restriction import Restriction


class ErrorsLater:
    """Asks the server for the errors of an answer the first time they are needed.

    Args:
        create_request: returns the request, whose answer is the errors of all breaks.
    """

    def __init__(self, create_request: Callable[[], Any]) -> None:
        self.run: Callable[[Any], Tensor] | None = None  # makes a request; set by a client that can
        self._create_request = create_request
        self._errors: Tensor | None = None

    def fetch(self, breaks: int) -> Tensor:
        """Return the errors at all breaks, (breaks,).

        Raises MissingError if the client cannot ask, or the server's answer is about other breaks.
        """
        if self._errors is None and self.run is not None:
            self._errors = self.run(self._create_request())
        if self._errors is None or len(self._errors) != breaks:
            raise missing_errors()
        return self._errors


@dataclass(frozen=True, eq=False, repr=False)
class RemoteRestriction(Restriction):
    """A line from a server; its estimated errors are asked for when they are needed."""

    errors_later: ErrorsLater | None = field(default=None, repr=False)
    first_break: int = 0  # among those of all lines of the answer
    all_breaks: int = 0  # of the answer

    @cached_property
    def errors(self) -> Tensor:
        """The estimated error at every break, (breaks,): see `Restriction.error_at`."""
        if self.stored_errors is not None or self.network is not None:
            return super().errors
        if self.errors_later is None:
            raise missing_errors()
        errors = self.errors_later.fetch(self.all_breaks)
        return errors[self.first_break : self.first_break + len(self.alphas)]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"errors_later": None}  # a connection cannot be pickled


def missing_errors() -> MissingError:
    """Create the error for estimated errors that were not asked for and cannot be any more."""
    return MissingError(
        "The estimated errors were not asked for.",
        where="line.errors",
        hint="Call with errors=True, or pass the network to line.with_network.",
    )
