"""What to try when a model is refused: the errors of a capture, in terms of what attribution classes take."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ..errors import CaptureError, UnsupportedError
from ..network.prefix import BATCH_REASONS
from ..network.reader import DICT_PROBLEM
from .argument_errors import AttributionArgumentError, AttributionCaptureError

TOLERANCE_HINT = "Give the constructor tol=1e-6: any differentiable model is then integrated to that tolerance."
BATCH_HINT = "Compute each point of a batch independently of the others."
LOSS_HINT = 'Give the loss reduction="none": one number for each example.'
DICT_HINT = 'Name the output first in the target, target=("logits", 3), or give attribute output="logits".'
FORWARD_HINT = (
    "Call the model on these inputs to see its own error. forward must accept any batch size and must not branch on"
    " values, unless the constructor has tol=1e-6; token ids need LayerIntegratedGradients(model, model.embedding)."
)


@contextmanager
def explain_refusals() -> Generator[None]:
    """Raise the UnsupportedErrors and CaptureErrors of captures with a hint for users of attributions."""
    try:
        with explain_captures():
            yield
    except UnsupportedError as error:
        mixing = [line for line in error.nodes if line.endswith(BATCH_REASONS)]
        hint = TOLERANCE_HINT
        if mixing:  # torch reduces a loss to one number by default
            hint = LOSS_HINT if all("_loss" in line for line in mixing) else BATCH_HINT
        raise UnsupportedError(error.problem, nodes=error.nodes, where=error.where, hint=hint) from error


@contextmanager
def explain_captures() -> Generator[None]:
    """Raise CaptureErrors with a hint for users of attributions.

    A wrong selector or layer that was found while the model was traced is reported as an error of that argument. A
    failed assertion of the model remains an AssertionError.
    """
    try:
        yield
    except CaptureError as error:
        causes = list(_list_causes(error))
        own = next((cause for cause in causes if isinstance(cause, AttributionArgumentError)), None)
        if own is not None:
            raise own from None
        if type(error) is CaptureError and error.problem == DICT_PROBLEM:
            raise CaptureError(error.problem, where=error.where, hint=DICT_HINT) from error
        if type(error) is not CaptureError or not causes:
            raise
        is_assertion = any(type(cause) is AssertionError for cause in causes)
        kind = AttributionCaptureError if is_assertion else CaptureError
        raise kind(error.problem, where=error.where, hint=FORWARD_HINT) from error.__cause__


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """The errors that led to an error, without itself."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
