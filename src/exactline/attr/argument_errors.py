"""Errors of argument checks that are AssertionErrors too, which scripts written for captum may catch."""

from __future__ import annotations

from ..errors import ArgumentError, CaptureError, LineError


class AttributionArgumentError(ArgumentError, AssertionError):
    """An `ArgumentError` where captum raises an AssertionError.

    >>> import torch
    >>> from exactline.attr import IntegratedGradients
    >>> try:
    ...     IntegratedGradients(torch.nn.ReLU()).attribute(torch.ones(1, 2), target=0, n_steps=-1)
    ... except AssertionError as error:
    ...     print(error)
    n_steps is -1.
      where: argument n_steps
      try:   Leave n_steps out: exact attributions have no steps.
    """


class AttributionLineError(LineError, AssertionError):
    """A `LineError` where captum raises an AssertionError.

    >>> import torch
    >>> from exactline.attr import IntegratedGradients
    >>> try:
    ...     IntegratedGradients(torch.nn.ReLU()).attribute(torch.ones(1, 2), baselines=torch.ones(3, 2), target=0)
    ... except AssertionError as error:
    ...     print(error)
    A baseline has shape (3, 2), its input (1, 2).
      where: argument baselines
      try:   Give a number, or a tensor of shape (1, 2) or (1, 2).
    """


class AttributionCaptureError(CaptureError, AssertionError):
    """A `CaptureError` of a model whose ``forward`` raises an AssertionError, which captum passes on.

    >>> import torch
    >>> from exactline.attr import IntegratedGradients
    >>> def forward(x):
    ...     assert x.shape[1] == 3, "three features are needed"
    ...     return x
    >>> try:
    ...     IntegratedGradients(forward).attribute(torch.ones(1, 2), target=0)
    ... except AssertionError as error:
    ...     print("three features are needed" in str(error))
    True
    """
