"""What captum's attribution classes offer beside ``attribute``: names, futures, and the mark of its decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch

from ..errors import UnsupportedError

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def expose_wrapped(method: MethodT) -> MethodT:
    """Wrap a method, so that it has ``__wrapped__``: captum's NoiseTunnel and TCAV call the plain function there."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


class CaptumInterface:
    """Base class with the methods that captum's ``Attribution`` and ``GradientAttribution`` have.

    >>> from exactline.attr import IntegratedGradients
    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> ig.get_name()
    'Integrated Gradients'
    >>> ig.attribute_future(torch.tensor([[3.0]]), target=0).wait()
    tensor([[3.]])
    """

    attribute: ClassVar[Callable[..., Any]]

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the class with a space before each capital letter but the first."""
        return "".join(c if c.islower() or not i else f" {c}" for i, c in enumerate(cls.__name__))

    def attribute_future(self, *args: Any, **kwargs: Any) -> torch.futures.Future[Any]:
        """Call ``attribute`` at once and return its result as a future.

        Args:
            *args: The arguments of ``attribute``.
            **kwargs: Its keyword arguments.
        """
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.attribute(*args, **kwargs))
        return future

    @property
    def gradient_func(self) -> Callable[..., Any]:
        """captum's hook for another gradient; it does not exist here, because no gradient is sampled."""
        raise AttributeError("exact attributions have no gradient_func")

    @gradient_func.setter
    def gradient_func(self, function: Callable[..., Any]) -> None:
        raise UnsupportedError(
            "gradient_func cannot be replaced: exact attributions do not sample gradients.",
            where="attribute gradient_func",
            hint="Use captum's class for a gradient of your own.",
        )
