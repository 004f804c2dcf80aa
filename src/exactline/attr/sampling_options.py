"""Options of sampling methods that exact attributions take and do not use: checked as captum does, then ignored."""

from __future__ import annotations

import warnings
from typing import Any

from .argument_errors import AttributionArgumentError

RIEMANN_METHODS = ("riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid")
METHODS = (*RIEMANN_METHODS, "gausslegendre")
MIN_RIEMANN_NODES = 2
_warned_options: set[str] = set()


class ExactWarning(UserWarning):
    """An option of a sampling method was given that exact attributions ignore.

    >>> import torch
    >>> from exactline.attr import IntegratedGradients
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ExactWarning)  # a script written for captum can keep its n_steps
    ...     IntegratedGradients(torch.nn.ReLU()).attribute(torch.tensor([[3.0]]), target=0, n_steps=50)
    tensor([[3.]])
    """


def ignore_sampling(
    n_steps: Any, method: Any, default_method: str = "gausslegendre", extra_nodes: int = 0, **others: Any
) -> None:
    """Check captum's sampling options, and warn once in a process about each that is given.

    Args:
        n_steps: The number of steps, or None.
        method: The quadrature rule, or None.
        default_method: The rule that captum takes by default.
        extra_nodes: How many more nodes than steps captum's method samples.
        **others: Further options to warn about unless they are None.

    Raises ArgumentError for values that captum refuses.
    """
    if method is not None and method not in METHODS:
        raise AttributionArgumentError(
            f"There is no method {method!r}.",
            where="argument method",
            hint=f"Leave it out; captum has {', '.join(METHODS)}.",
        )
    least = MIN_RIEMANN_NODES - extra_nodes if (method or default_method) in RIEMANN_METHODS else 1
    is_whole = isinstance(n_steps, int) and not isinstance(n_steps, bool)
    if n_steps is not None and (not is_whole or n_steps < least):
        raise AttributionArgumentError(
            f"n_steps is {n_steps!r}.",
            where="argument n_steps",
            hint="Leave n_steps out: exact attributions have no steps.",
        )
    for name, value in {"n_steps": n_steps, "method": method, **others}.items():
        if value is not None and name not in _warned_options:
            _warned_options.add(name)
            warnings.warn(f"{name} has no effect: the attributions are exact.", ExactWarning, stacklevel=4)
