"""Prove the breaks of a float restriction: a short checker in rationals that looks at one piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..errors import ArgumentError
from ..network.graph import Network
from ..ops.base import Breaking, Input
from .affine import Given, affine
from .certificate import Certificate
from .forms import Forms, line_forms
from .integers import read
from .points import Point, read_ends, to_network
from .reach import Reach, reach_through

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TOLERANCE = 1e-12
TINY = Fraction(1, 1 << 80)  # so that a turn is seen at a break itself, even without tolerance
AT_ONCE = 1 << 21  # forms held at a time


def certify(
    model: nn.Module | ExportedProgram | Network,
    Q: Point,  # (*in), or a tuple of them for several inputs
    R: Point,  # likewise
    alphas: Tensor | ArrayLike,  # (n,) the breaks to prove, from 0 to 1
    pieces: int | Sequence[int] | None = None,
    tolerance: float = TOLERANCE,
    *,
    rewrite: bool = True,
    until: str | None = None,
) -> Certificate:
    """Prove that between given breaks nothing turns, and that at each of them something does.

    >>> relu = nn.ReLU()
    >>> certify(relu, [-1.0], [3.0], [0.0, 0.25, 1.0]).complete
    True
    >>> print(certify(relu, [-1.0], [3.0], [0.0, 1.0]))
    not proved: 0 of 1 pieces hold, 0 of 0 breaks are real
      piece 0 from 0.0 to 1.0: relu unit 0 turns at 0.25

    On each piece the exact rational midpoint decides every branch, and the stretch on which all of them
    hold is compared with the piece. ``pieces``: all, that many evenly spread, or a list of indices.
    Whatever is not proved counts as a failure.
    """
    starts, stops = read_ends(Q, R)
    network = to_network(model, starts, rewrite=rewrite, until=until)
    breaks = _breaks(alphas)
    slack = _slack(tolerance)
    chosen = _chosen(pieces, len(breaks) - 1)
    found: list[Reach] = []
    line = {i: line_forms(read(q), read(r)) for i, q, r in zip(network.inputs, starts, stops, strict=True)}
    widest = max(torch.Size(node.shape).numel() for node in network.nodes)
    step = max(1, AT_ONCE // max(2 * widest, 1))
    for at in range(0, len(chosen), step):
        reaches = [Reach.around(breaks[k], breaks[k + 1], 2 * slack + TINY) for k in chosen[at : at + step]]
        _narrow(network, line, reaches)
        found += reaches
    return Certificate.of(breaks, chosen, found, slack)


def _narrow(network: Network, line: dict[int, Forms], reaches: list[Reach]) -> None:
    """Carry the branches of every midpoint through the network and narrow each reach to where they hold."""
    same = np.zeros(len(reaches), dtype=np.int64)
    live = {i: forms.on(same) for i, forms in line.items()}
    last = network.last_use(network.outputs)
    for i, node in enumerate(network.nodes):
        if i not in last or isinstance(node.op, Input):
            continue
        if isinstance(node.op, Breaking):
            source = node.inputs[0]
            live[i] = reach_through(node, network.nodes[source].shape, live[source], reaches)
        else:
            live[i] = affine(node, [Given(live[j], network.nodes[j].shape) for j in node.inputs])
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]


def _breaks(alphas: Tensor | ArrayLike) -> list[Fraction]:
    given = alphas.detach().cpu().numpy() if isinstance(alphas, Tensor) else np.asarray(alphas, dtype=np.float64)
    if given.ndim != 1 or len(given) < 2 or not np.isfinite(given).all():
        raise ArgumentError(
            "The breaks are no row of finite numbers.", where="argument alphas", hint="Give line.alphas."
        )
    breaks = [Fraction(a) for a in given.tolist()]
    if breaks[0] != 0 or breaks[-1] != 1 or any(a >= b for a, b in pairwise(breaks)):
        raise ArgumentError("The breaks do not rise from 0 to 1.", where="argument alphas", hint="Sort them.")
    return breaks


def _slack(tolerance: float) -> Fraction:
    if not 0 <= tolerance < 1:
        raise ArgumentError(f"The tolerance is {tolerance}.", where="argument tolerance", hint="Try 1e-12.")
    return Fraction(tolerance)


def _chosen(pieces: int | Sequence[int] | None, count: int) -> list[int]:
    """Indices of the pieces to look at."""
    if pieces is None:
        return list(range(count))
    if isinstance(pieces, int):
        if pieces < 1:
            raise ArgumentError(f"{pieces} pieces cannot be checked.", where="argument pieces", hint="Give 1 or more.")
        return sorted({round(i) for i in np.linspace(0, count - 1, min(pieces, count)).tolist()})
    if wrong := [k for k in pieces if not -count <= k < count]:
        raise ArgumentError(
            f"Of {count} pieces none has index {wrong[0]}.",
            where="argument pieces",
            hint=f"Count from 0 to {count - 1}.",
        )
    return sorted({range(count)[k] for k in pieces})
