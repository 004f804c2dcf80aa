"""A fingerprint of everything that a module's forward pass can read, to tell whether a capture is still valid."""

from __future__ import annotations

import decimal
import types
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .state_walk import StateWalk

GLOBAL_HOOKS: list[dict[Any, Any]] = [  # hooks of all modules
    hooks for name, hooks in sorted(vars(nn.modules.module).items()) if name.startswith("_global_") and "hook" in name
]
TORCH_FUNCTIONS = tuple(name for name, value in vars(torch).items() if isinstance(value, types.BuiltinFunctionType))


class Fingerprint(NamedTuple):
    """The summary of a module, and whether it covers everything that the forward pass can read."""

    content: tuple[Any, ...]
    is_complete: bool

    def proves_unchanged(self, other: Fingerprint) -> bool:
        """Whether a module with these two fingerprints certainly computes the same function."""
        try:
            return self.is_complete and other.is_complete and self.content == other.content
        except (RuntimeError, TypeError, ValueError):  # objects that cannot be compared, such as two arrays
            return False


def fingerprint_module(module: nn.Module) -> Fingerprint:
    """Summarize the data and the code that a forward pass can read, by content.

    Compared are: all attributes of the module and of whatever they refer to, with weights by checksum; classes,
    functions and hooks by their code, their defaults, their closures and the global names that they read; hooks of
    all modules; torch's default precision; replaced functions of torch. Objects whose state Python cannot show,
    such as iterators, locks and random generators in C, make the fingerprint incomplete.

    >>> layer = nn.Linear(2, 2)
    >>> before = fingerprint_module(layer)
    >>> before.proves_unchanged(fingerprint_module(layer))
    True
    >>> layer.weight.data[0, 0] += 1
    >>> before.proves_unchanged(fingerprint_module(layer))
    False

    Raises CaptureError for a lazy module that has no weights yet.
    """
    walk = StateWalk()
    try:
        content = _summarize_module(walk, module)
    except RecursionError:  # a chain of objects that is longer than Python's stack
        return Fingerprint((), False)
    return Fingerprint(content, walk.is_complete and not _has_function_mode())


def _summarize_module(walk: StateWalk, module: nn.Module) -> tuple[Any, ...]:
    context = decimal.getcontext()
    return (
        walk.summarize_tree(module),
        tuple(walk.summarize(hooks) for hooks in GLOBAL_HOOKS if hooks),
        torch.get_default_dtype(),
        (context.prec, context.rounding),
        walk.summarize_trusted(F),
        walk.summarize_trusted(Tensor),
        walk.summarize_trusted(torch, TORCH_FUNCTIONS),
        walk.summarize_reachable(),
        walk.fetch_checksums(),
    )


def _has_function_mode() -> bool:
    """Whether a torch function mode other than a default device is active, which may replace any operator."""
    if not torch._C._len_torch_function_stack():  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        return False
    modes: Any = torch.overrides._get_current_function_mode_stack()  # pyright: ignore[reportPrivateUsage]
    return any(type(mode).__name__ != "DeviceContext" for mode in modes)
