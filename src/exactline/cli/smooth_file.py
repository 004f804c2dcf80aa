"""What commands do with files that are not piecewise linear: they need a tolerance, and warn if it is not reached."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.output import print_note
from ..errors import UnsupportedError

if TYPE_CHECKING:
    from ..network.smooth_network import SmoothNetwork

Tolerance = Annotated[
    float | None,
    typer.Option("--tol", help="For networks that are not piecewise linear: compute to this tolerance."),
]


def needs_tolerance(network: Any, tol: float | None) -> bool:
    """Whether a network is not piecewise linear.

    Raises UnsupportedError for one without a tolerance.
    """
    from ..network.smooth_network import SmoothNetwork

    if not isinstance(network, SmoothNetwork):
        return False
    if tol is None:
        raise _suggest_tolerance(network)
    return True


def _suggest_tolerance(network: SmoothNetwork) -> UnsupportedError:
    refusal = network.refusal
    return UnsupportedError(
        refusal.problem,
        nodes=refusal.nodes,
        where=refusal.where,
        hint="Give a tolerance, such as --tol 1e-6, for an answer with an error estimate.",
    )


@contextlib.contextmanager
def print_tolerance_warnings() -> Generator[None]:
    """Print warnings about tolerances that were not reached to standard error, as notes."""
    from ..smooth.api import ToleranceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", ToleranceWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, ToleranceWarning):
            print_note(f"warning: {warning.message}")
