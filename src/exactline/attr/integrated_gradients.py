"""Integrated gradients without steps: the integral itself, for whoever calls captum today."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..engines.dense.gradients import Watcher
from ..errors import ArgumentError
from ..lines import Lines, as_points
from ..network import Network, as_network
from ..options import check_count
from ..progress import ProgressCallback, progress_reporter
from .inputs import Asked, Group, Model, asked, flat_targets, needless, one_output, outputs_at
from .path_integrals import PathIntegral, path_integral


@dataclass(frozen=True)
class AttributionReport:
    """How an attribution came about, and how sure one can be of it.

    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> _ = ig.attribute(torch.tensor([[3.0, 1.0]]), baselines=-1.0, target=0)
    >>> ig.report
    AttributionReport(pieces=3, stuck=0, hanging=tensor([0.], dtype=torch.float64))
    """

    pieces: int  # of all lines together
    stuck: int  # pairs of a piece and a unit that is on a knot all along it: its gradient there is a convention
    hanging: Tensor  # (n,) how much attribution hangs on those conventions


@dataclass
class Tally:
    """What the groups of one call come to."""

    hanging: Tensor  # (n,)
    pieces: int = 0
    stuck: int = 0

    @staticmethod
    def of(count: int) -> Tally:
        """Of so many examples, none of them looked at yet."""
        return Tally(torch.zeros(count, dtype=torch.float64))

    def add(self, found: PathIntegral, rows: Tensor, hanging: Tensor) -> None:  # (rows,) both
        """The integrals of some examples, and how much of each hangs on conventions."""
        self.pieces, self.stuck = self.pieces + found.pieces, self.stuck + found.stuck
        self.hanging[rows] = hanging

    @property
    def report(self) -> AttributionReport:
        return AttributionReport(self.pieces, self.stuck, self.hanging)


class Attribution:
    """What all attribution methods share: a model, and a report on the last call."""

    def __init__(self, forward_func: Model, multiply_by_inputs: bool = True) -> None:
        self.forward_func = forward_func
        self.report: AttributionReport | None = None
        self._multiply = multiply_by_inputs

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by inputs less baselines."""
        return self._multiply

    def has_convergence_delta(self) -> bool:
        """Whether the method can tell by how much completeness is missed."""
        return True

    def compute_convergence_delta(
        self,
        attributions: Any,
        start_point: Any,
        end_point: Any,
        target: Any = None,
        additional_forward_args: Any = None,
    ) -> Tensor:
        """Sum of the attributions less the change of the output from start to end, (n,).

        Raises ArgumentError where the target does not fit the output.
        """
        call = asked(end_point, start_point, additional_forward_args, None)
        found = as_points(attributions if isinstance(attributions, tuple) else (attributions,), "attributions")
        count = len(call.lines)
        if any(not a.dim() or len(a) != count for a in found):
            raise ArgumentError(
                f"The attributions are not of {count} examples.",
                where="argument attributions",
                hint="Give what attribute returned for the same inputs.",
            )
        total = torch.zeros(count, dtype=torch.float64)
        for group in call.groups(self.forward_func, plain_capture):
            targets = flat_targets(target, one_output(group.network), count)[group.rows]
            total[group.rows] = _missed([a[group.rows] for a in found], group, targets)
        return call.given_back(total)


class IntegratedGradients(Attribution):
    """Integrated gradients, exact but for rounding, with captum's calling conventions.

    ``model_or_forward`` is a module in eval mode, any callable of batches, or a Network. Where it ends in softmax,
    log_softmax, sigmoid or tanh, attributions are of what that makes of the outputs.

    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> ig.attribute(torch.tensor([[3.0]]), baselines=-1.0, target=0)
    tensor([[3.]])
    """

    def __init__(
        self,
        model_or_forward: Model | None = None,
        multiply_by_inputs: bool = True,
        *,
        forward_func: Model | None = None,  # captum's name for the first argument
    ) -> None:
        given = forward_func if model_or_forward is None else model_or_forward
        if given is None:
            raise ArgumentError(
                "There is no model.", where="argument model_or_forward", hint="Give a module, a callable or a Network."
            )
        super().__init__(given, multiply_by_inputs)

    def attribute(
        self,
        inputs: Any,  # (n, *in), or a tuple of such
        baselines: Any = None,  # numbers or tensors (n, *in) or (1, *in); a tuple for several inputs
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        *,
        device: torch.device | str | None = None,
        memory: int | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """Attributions of the shape of the inputs, and with ``return_convergence_delta`` also the delta (n,).

        Additional tensors whose first dim is the batch are held fixed along the line, all else is taken as it is.
        The delta is of gradients times inputs less baselines, whether or not these are what is returned.
        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        needless(n_steps=n_steps, method=method)
        call = asked(inputs, baselines, additional_forward_args, device)
        count = len(call.lines)
        sums = [torch.zeros_like(x) for x in call.lines.ends]
        delta, tally = torch.zeros(count, dtype=torch.float64), Tally.of(count)
        for group in call.groups(self.forward_func, plain_capture):
            targets = flat_targets(target, one_output(group.network), count)[group.rows]
            found = integral(group.network, group.lines, targets, memory, progress)
            tally.add(found, group.rows, hanging_on(found, group.lines))
            for total, gradient in zip(sums, found.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
            if return_convergence_delta:
                change = call.change
                delta[group.rows] = _missed(
                    [g[group.rows] * c[group.rows] for g, c in zip(sums, change, strict=True)], group, targets
                )
        self.report = tally.report
        made = [g * c for g, c in zip(sums, call.change, strict=True)] if self._multiply else sums
        out = as_given(call, made)
        return (out, call.given_back(delta)) if return_convergence_delta else out


def integral(
    network: Network,
    lines: Lines,
    targets: Tensor,  # (lines,)
    memory: int | None,
    progress: bool | ProgressCallback,
    watch: dict[int, Watcher] | None = None,
    rival: dict[int, Watcher] | None = None,
) -> PathIntegral:
    """A path integral of the first output after its tail."""
    memory = check_count("memory", memory)
    with progress_reporter(progress) as report:
        told: Callable[[int, int], None] | None = None
        if report is not None:
            told = lambda done, pieces: report(done / len(lines), pieces)  # noqa: E731
        return path_integral(network, lines, targets, tail=True, watch=watch, rival=rival, memory=memory, progress=told)


def hanging_on(found: PathIntegral, lines: Lines) -> Tensor:
    """How much attribution hangs on conventions, (lines,)."""
    total = torch.zeros(len(lines), dtype=torch.float64)
    for swing, start, end in zip(found.swing or (), lines.starts, lines.ends, strict=False):
        total += (swing * (end - start).abs()).reshape(len(lines), -1).sum(1).cpu()
    return total


def plain_capture(model: Model, points: Sequence[Tensor], device: torch.device) -> Network:
    """The network of a model, as it is."""
    return as_network(model, points, device=device)


def as_given(call: Asked, made: Sequence[Tensor]) -> Any:
    """Results as the inputs were given: one tensor or a tuple, in their precision and on their device."""
    out = tuple(call.given_back(a, i) for i, a in enumerate(made))
    return out[0] if call.single else out


def _missed(attributions: Sequence[Tensor], group: Group, targets: Tensor) -> Tensor:
    """By how much attributions miss the change of the output, (rows,)."""
    ends = (outputs_at(group.network, xs, targets).cpu() for xs in (group.lines.ends, group.lines.starts))
    total = torch.stack([a.reshape(len(a), a.shape[1:].numel()).sum(1) for a in attributions]).sum(0)
    return total - (next(ends) - next(ends))
