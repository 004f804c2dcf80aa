"""Which elements of an output are compared: all of them, some rivals, or a single one with a threshold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import atanh, isfinite, log, nan, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..errors import ArgumentError
from ..humanize import count_noun
from ..network.graph import Network, Node, Tail
from ..ops.affine import Rearrange

if TYPE_CHECKING:
    from .intervals import IntervalTable

SIGMOID_THRESHOLD = 0.5  # of a probability, where no threshold is given
NEEDS_THRESHOLD_HINT = (
    "Give threshold=: class 1 is where the output is above it. Only behind a sigmoid it is implied, 0.5. "
    "line.extrema and line.level answer questions about a regressor."
)


@dataclass(frozen=True)
class Comparison:
    """The elements of one output tensor that compete for a decision.

    With a ``level`` a single element is compared with that number: the classes are 0, the level, and 1, the element.
    """

    element_count: int  # of the output tensor
    rivals: tuple[int, ...] | None = None  # the elements that are compared; None for all
    level: float | None = None  # before the smooth tail, if there is one
    threshold: float | None = None  # the level as the user states it, behind the smooth tail

    @staticmethod
    def check(network: Network, output: int, threshold: Any, rivals: Any, where: str) -> Comparison:
        """Validate the arguments ``threshold`` and ``rivals`` of a decision.

        Args:
            network: The network that was restricted.
            output: Index among the network's outputs.
            threshold: What a single element is compared with; None implies 0.5 behind a sigmoid.
            rivals: The elements that are compared; None for all.
            where: The public call that error messages name.

        Raises ArgumentError, also for one element without a threshold: it may be a regressor.
        """
        count = prod(network.nodes[network.outputs[output]].shape)
        elements = None if rivals is None else _check_rivals(rivals, count)
        compared = count if elements is None else len(elements)
        if compared != 1:
            if threshold is not None:
                raise ArgumentError(
                    f"threshold= is for one output; {count_noun(compared, 'output')} are compared.",
                    where="argument threshold",
                    hint="Choose one of them with rivals=[index], or leave threshold out.",
                )
            return Comparison(count, elements)
        tail = network.tails[output]
        if threshold is None and (tail is None or tail.name != "sigmoid"):
            raise ArgumentError(
                "A single output has no rival: whether it decides between two classes or is a regressor is not known.",
                where=where,
                hint=NEEDS_THRESHOLD_HINT,
            )
        stated = SIGMOID_THRESHOLD if threshold is None else threshold
        return Comparison(count, elements, _level_before_tail(stated, tail), float(stated))

    @property
    def is_whole(self) -> bool:
        """Whether all elements compete."""
        return self.rivals is None and self.level is None

    @property
    def class_count(self) -> int:
        """The number of possible labels."""
        return self.element_count if self.level is None else 2

    @property
    def element(self) -> int:
        """The element that is compared with the level."""
        return 0 if self.rivals is None else self.rivals[0]

    def select(
        self,
        values: Floats,  # (n, elements)
        scales: Floats | float = 1.0,  # (n,) factors already applied to the values
    ) -> Floats:  # (n, compared)
        """Select the compared elements; with a level, its column comes first."""
        chosen = values if self.rivals is None else values[:, list(self.rivals)]
        if self.level is None:
            return chosen
        return np.stack([self.level * np.broadcast_to(scales, len(values)), chosen[:, 0]], 1)

    def append_to(self, network: Network, node: int) -> tuple[Network, int]:
        """Append `select` to a network as a node after an output; returns the network and the node."""
        if self.is_whole:
            return network, node
        rivals = list(self.rivals or [0])
        index = torch.tensor(rivals if self.level is None else [-1, *rivals], device=network.device)
        constant: Tensor | None = None
        if self.level is not None:
            constant = torch.tensor([self.level, 0.0], dtype=network.dtype, device=network.device)
        shape = (len(index),)
        added = Node("compared", Rearrange(index, constant, shape), (node,), shape)
        extended = replace(
            network,
            nodes=(*network.nodes, added),
            outputs=(len(network.nodes),),
            tails=(None,),
            several_outputs=False,
            output_names=(),
            device_copies={},
        )
        return extended, len(network.nodes)

    def map_labels(self, labels: Ints) -> Ints:
        """Map indices of compared elements to labels."""
        return labels if self.rivals is None or self.level is not None else np.array(self.rivals)[labels]

    def map_tied(self, tied: Bools) -> Bools:  # (intervals, compared) -> (intervals, classes)
        """Spread the marks of tied elements over all labels."""
        if self.rivals is None or self.level is not None:
            return tied
        spread = np.zeros((len(tied), self.class_count), dtype=np.bool_)
        spread[:, list(self.rivals)] = tied
        return spread

    def describe(self, order: str, top: int = 1) -> str:
        """The rule of the decision in words."""
        if self.level is not None:
            side = "above" if order == "max" else "below"
            which = f"output {self.element}" if self.element_count > 1 else "the output"
            return f"class 1 where {which} is {side} {self.threshold:g}"
        which = "largest" if order == "max" else "smallest"
        among = "" if self.rivals is None else f" of {', '.join(map(str, self.rivals))}"
        return f"the {which} output{among} decides" if top == 1 else f"the {top} {which} outputs{among} decide"


def restore_comparison(table: IntervalTable, outputs: tuple[Tensor, ...] | None, output: int) -> Comparison | None:
    """The comparison behind stored intervals; None if all elements competed, or if the values are not known.

    Two classes of a single element are those of a sigmoid at its implied threshold, the only one that stores know.

    Args:
        table: The stored intervals.
        outputs: The stored values of the network, (breaks, *out) each.
        output: The output tensor that was compared.
    """
    if outputs is None or prod(outputs[output].shape[1:]) != 1 or table.tied.shape[1] != 2:
        return None
    return Comparison(1, None, 0.0, SIGMOID_THRESHOLD)


def _check_rivals(rivals: Any, count: int) -> tuple[int, ...]:
    indices = tuple(rivals) if isinstance(rivals, Iterable) and not isinstance(rivals, str) else (rivals,)
    is_index = [isinstance(i, (int, np.integer)) and not isinstance(i, bool) and 0 <= i < count for i in indices]
    if not indices or not all(is_index) or len(set(indices)) < len(indices):
        raise ArgumentError(
            f"rivals is {rivals!r}; the network has {count_noun(count, 'output')}.",
            where="argument rivals",
            hint=f"Give different numbers from 0 to {count - 1}: the outputs that compete for the decision.",
        )
    return tuple(int(i) for i in indices)


def _level_before_tail(threshold: Any, tail: Tail | None) -> float:
    """The value before a smooth tail at which the tail's result is the threshold."""
    is_number = isinstance(threshold, (int, float, np.integer, np.floating)) and not isinstance(threshold, bool)
    level = nan
    if is_number and isfinite(threshold):
        if tail is None:
            level = float(threshold)
        elif tail.name == "sigmoid" and 0 < threshold < 1:
            level = log(threshold) - log(1 - threshold)
        elif tail.name == "tanh" and -1 < threshold < 1:
            level = atanh(threshold)
    if isfinite(level):
        return level
    ranges = {"sigmoid": "a number between 0 and 1", "tanh": "a number between -1 and 1"}
    wanted = "a finite number" if tail is None else ranges.get(tail.name, f"several outputs for a {tail.name}")
    raise ArgumentError(
        f"threshold is {threshold!r}{'' if tail is None else f', behind a {tail.name}'}.",
        where="argument threshold",
        hint=f"Give {wanted}.",
    )
