"""What to try when a model is refused: the hints of a capture, in terms of what attribution classes take."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..errors import UnsupportedError
from ..network.prefix import BATCH_REASONS

TOLERANCE_HINT = "Give the constructor tol=1e-6: any differentiable model is then integrated to that tolerance."
BATCH_HINT = "Compute each point of a batch independently of the others."


@contextmanager
def explain_refusals() -> Generator[None]:
    """Raise the UnsupportedErrors of captures with a hint for users of attributions."""
    try:
        yield
    except UnsupportedError as error:
        mixes = any(line.endswith(BATCH_REASONS) for line in error.nodes)
        raise UnsupportedError(
            error.problem, nodes=error.nodes, where=error.where, hint=BATCH_HINT if mixes else TOLERANCE_HINT
        ) from error
