"""Where operators have features that samples can miss: how close an argument must come to 0 for them to show.

A sigmoid of a large argument is flat but for a narrow bend; a quotient has a narrow peak where its divisor comes close
to 0. Between two samples that lie on both sides of it, or that look as if nothing happened, the argument tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .tolerances import BEND_CHANGE, BEND_LEVEL, BEND_REACH, POLE_SHARE, WAVE_STEP

Args: TypeAlias = dict[str, Any]  # by the argument names of the operator's schema


@dataclass(frozen=True)
class Closeness:
    """How close an argument must come to 0 between samples for an operator to show a feature there."""

    reach: float = 0.0  # distance from 0, in units of the argument
    share: float = 0.0  # or of the smallest sample
    change: float = 0.0  # the smallest change of the argument that matters
    level: float = 0.0  # size of the argument at which the line is cut
    has_zero: bool = True  # whether 0 is a special argument; False if only a change matters
    step: float = float("inf")  # the largest change between neighbouring samples; with a larger one they are too few

    @property
    def is_kink(self) -> bool:
        """Whether the operator is not smooth at 0."""
        return self == KINK


KINK = Closeness()
BEND = Closeness(reach=BEND_REACH, change=BEND_CHANGE, level=BEND_LEVEL)
POLE = Closeness(share=POLE_SHARE)
PEAK = Closeness(reach=float("inf"), change=BEND_CHANGE, has_zero=False)
WAVE = Closeness(reach=float("inf"), change=float("inf"), has_zero=False, step=WAVE_STEP)


def _is_singular_power(args: Args) -> bool:
    exponent = args.get("exponent")
    return isinstance(exponent, (int, float)) and not (exponent >= 0 and float(exponent).is_integer())


BENDING = (
    *("sigmoid", "log_sigmoid_forward", "tanh", "atan", "erf", "erfc", "gelu", "silu", "mish", "elu", "celu", "selu"),
)
# Smooth functions of one number: what matters of their argument, and the argument.
ARGUMENTS: dict[str, tuple[Closeness, Callable[[Args], Tensor | None]]] = {
    **dict.fromkeys(
        (
            "sigmoid",
            "tanh",
            "erf",
            "erfc",
            "gelu",
            "silu",
            "mish",
            "elu",
            "celu",
            "selu",
            "atan",
            "log_sigmoid_forward",
        ),
        (BEND, lambda a: a["self"]),
    ),
    "softplus": (BEND, lambda a: a["self"] * a["beta"]),
    **dict.fromkeys(("exp", "exp2", "expm1"), (PEAK, lambda a: -a["self"])),
    **dict.fromkeys(("sqrt", "rsqrt", "reciprocal", "log", "log2", "log10"), (POLE, lambda a: a["self"])),
    **dict.fromkeys(("sin", "cos"), (WAVE, lambda a: a["self"])),
    "log1p": (POLE, lambda a: 1 + a["self"]),
    "div": (POLE, lambda a: a["other"] if isinstance(a["other"], Tensor) else None),
    "pow": (POLE, lambda a: a["self"] if _is_singular_power(a) else None),
}
# Operators that divide by a norm, which their results tell.
NORMS: dict[str, Callable[[Any], Tensor]] = {
    "native_layer_norm": lambda out: 1 / out[2],
    "native_group_norm": lambda out: 1 / out[2],
    "linalg_vector_norm": lambda out: out,
}
# Operators that select softly among the elements along a dimension.
SOFT_SELECTIONS = ("_softmax", "_log_softmax", "logsumexp")


def has_features(name: str) -> bool:
    """Whether an operator is in one of the tables."""
    return name in ARGUMENTS or name in NORMS or name in SOFT_SELECTIONS


def read_argument(name: str, args: Args, is_inplace: bool) -> tuple[Closeness, Tensor] | None:
    """What matters of the argument of a smooth function; None if nothing does."""
    if name not in ARGUMENTS:
        return None
    closeness, select = ARGUMENTS[name]
    values = select(args)
    if values is None or not values.is_floating_point():
        return None
    values = values.detach()
    return closeness, values.clone() if is_inplace else values


def select_softly(args: Args) -> tuple[Tensor, int] | None:
    """The argument of a soft selection, and its dimension; None for a selection over several dimensions."""
    along = args["dim"]
    if isinstance(along, (list, tuple)):
        along = along[0] if len(along) == 1 else None
    x = args["self"].detach()
    return None if along is None or not x.is_floating_point() else (torch.nan_to_num(x), along % x.dim())
