"""Exact integrated gradients with captum's calling conventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Unpack, overload

import torch
from torch import Tensor

from ..engines.dense.gradients import LayerHook
from ..errors import ArgumentError, UnsupportedError
from ..lines import Lines, as_points
from ..network import Network, as_network
from ..progress import progress_reporter
from ..smooth.api import check_tolerance
from ..smooth.integrals import LineIntegrals
from .inputs import (
    AttributionCall,
    AttributionOptions,
    CaptureFunction,
    ExampleGroup,
    IntegratedGradientsKeywords,
    IntegratedGradientsOptions,
    ModelLike,
    Tensors,
    evaluate_targets,
    flatten_targets,
    parse_call,
    single_output_shape,
    warn_unused,
)
from .path_integrals import PathIntegral, path_integral
from .to_tolerance import (
    ENDING_TOL,
    SmoothGroup,
    certify_inputs,
    convergence_delta,
    has_known_ending,
    integrate_inputs,
    is_exact,
    parse_targets,
    prepare_for,
    smooth_groups,
)

TensorsT = TypeVar("TensorsT", bound=Tensors)


@dataclass(frozen=True)
class AttributionReport:
    """Facts about one attribution: its pieces, and how much of it depends on the choice of subgradients.

    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> _ = ig.attribute(torch.tensor([[3.0, 1.0]]), baselines=-1.0, target=0)
    >>> ig.report
    AttributionReport(pieces=3, ambiguous=0, subgradient_range=tensor([0.], dtype=torch.float64), status='exact')
    """

    pieces: int  # of all lines together
    ambiguous: int  # pairs of a piece and a unit that stays on a knot along it, where its gradient is a convention
    subgradient_range: Tensor  # (n,) how much attribution changes if each of them is taken on its other side
    # "estimated" for models that are not piecewise linear; with certified=True "certified", "certified up to rounding"
    # if only the error of the quadrature is proven, or "not certified"
    status: str = "exact"
    # (n,) estimated or proven L1 error of each example relative to the L1 norm of its attribution; None if exact
    error: Tensor | None = field(default=None, repr=False)
    gradients: int = field(default=0, repr=False)  # evaluations of the gradient, for all examples; 0 if exact


@dataclass
class ReportTotals:
    """Sums up the report over the groups of examples of one call."""

    subgradient_range: Tensor  # (n,)
    pieces: int = 0
    ambiguous: int = 0
    status: str = "exact"
    error: Tensor | None = None  # (n,)
    gradients: int = 0

    @staticmethod
    def for_examples(count: int) -> ReportTotals:
        """Start with ``count`` examples."""
        return ReportTotals(torch.zeros(count, dtype=torch.float64))

    def add(self, integral: PathIntegral, rows: Tensor, subgradient_range: Tensor) -> None:  # (rows,) twice
        """Add the integrals of some examples."""
        self.pieces += integral.pieces
        self.ambiguous += integral.ambiguous
        self.subgradient_range[rows] = subgradient_range

    def add_estimate(self, found: LineIntegrals, rows: Tensor, status: str = "estimated") -> None:  # (rows,)
        """Add integrals of some examples that were computed to a tolerance."""
        self.status = status
        self.pieces += found.panels
        self.gradients += int(found.gradients.sum())
        self.error = torch.zeros_like(self.subgradient_range) if self.error is None else self.error
        self.error[rows] = found.errors

    @property
    def report(self) -> AttributionReport:
        """The report on all examples."""
        return AttributionReport(
            self.pieces, self.ambiguous, self.subgradient_range, self.status, self.error, self.gradients
        )


class Attribution:
    """Base class of all attribution methods: a model, and the report on the last call."""

    def __init__(self, forward_func: ModelLike, multiply_by_inputs: bool = True, tol: float | None = None) -> None:
        self.forward_func = forward_func
        self.tol = None if tol is None else check_tolerance(tol)  # None: exact, or refused
        self.report: AttributionReport | None = None
        self.output: str | int | None = None  # which output is attributed, if the model returns several
        self._multiply = multiply_by_inputs

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by inputs minus baselines."""
        return self._multiply

    def has_convergence_delta(self) -> bool:
        """Whether the attributions add up to the change of the output, so that a convergence delta exists."""
        return True

    def compute_convergence_delta(
        self,
        attributions: Any,
        start_point: Any,
        end_point: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        *,
        output: str | int | None = None,
    ) -> Tensor:
        """Compute the sum of the attributions minus the change of the output, (n,).

        Args:
            attributions: The result of ``attribute``, (n, *shape), or a tuple.
            start_point: The baselines.
            end_point: The inputs, (n, *in), or a tuple.
            target: The target, as for ``attribute``.
            additional_forward_args: The additional arguments, as for ``attribute``.
            output: Which output was attributed, if the model returns several; by default that of the constructor.

        Raises ArgumentError if the attributions or the target do not fit.
        """
        call = parse_call(end_point, start_point, additional_forward_args, None)
        tensors = as_points(attributions if isinstance(attributions, tuple) else (attributions,), "attributions")
        count = len(call.lines)
        if any(not a.dim() or len(a) != count for a in tensors):
            raise ArgumentError(
                f"The attributions are not those of {count} examples.",
                where="argument attributions",
                hint="Give what attribute returned for these inputs.",
            )
        delta = torch.zeros(count, dtype=torch.float64)
        chosen = self.output if output is None else output
        smooth, exact = self._find_groups(call, chosen)
        for group in smooth:
            targets = parse_targets(group, target, count)
            delta[group.rows] = convergence_delta(group, [a[group.rows] for a in tensors], targets)
        for group in exact:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            delta[group.rows] = _convergence_delta([a[group.rows] for a in tensors], group, targets)
        return call.cast_like_input(delta)

    def _groups_without_exact(self, call: AttributionCall, output: str | int | None = None) -> list[SmoothGroup] | None:
        """The groups of examples if attributions are computed to a tolerance; None if they are exact."""
        if self.tol is None or not len(call.lines) or isinstance(self.forward_func, Network):
            return None
        groups = list(smooth_groups(call, self.forward_func, prepare_for(call, output)))
        return None if all(is_exact(group.model) for group in groups) else groups

    def _find_groups(
        self, call: AttributionCall, output: str | int | None
    ) -> tuple[list[SmoothGroup], list[ExampleGroup]]:
        """The groups of examples to compute to a tolerance, and those with exact attributions.

        A model that is piecewise linear up to a known ending, such as ``sigmoid(m(x)).squeeze(1)``, needs no tolerance.
        """
        smooth = self._groups_without_exact(call, output)
        if smooth is not None:
            return smooth, []
        try:
            return [], list(call.groups(self.forward_func, capture_output(output)))
        except UnsupportedError:
            if not len(call.lines) or isinstance(self.forward_func, Network):
                raise
            groups = list(smooth_groups(call, self.forward_func, prepare_for(call, output)))
            if not all(has_known_ending(group.model) for group in groups):
                raise
            return groups, []


class IntegratedGradients(Attribution):
    """Integrated gradients, exact up to rounding, with captum's calling conventions.

    If the model ends in softmax, log_softmax, sigmoid or tanh, the attributions are those of its result. With ``tol``
    the model may be any differentiable one: its gradients are then integrated to a tolerance, with an error estimate.

    Args:
        model_or_forward: A module in eval mode, any callable of batches, or a Network.
        multiply_by_inputs: False returns the integrated gradients without the factor inputs minus baselines.
        forward_func: captum's name for the first argument.
        output: Which output to attribute, by name or index, if the model returns several.
        tol: For models that are not piecewise linear: the largest L1 error of an example's attribution, relative to its
            L1 norm. ``report.error`` estimates what was reached; a ToleranceWarning says so if it is more.
        certified: True proves the bound instead of estimating it, for small modules with common operators.

    >>> ig = IntegratedGradients(torch.nn.ReLU())
    >>> ig.attribute(torch.tensor([[3.0]]), baselines=-1.0, target=0)
    tensor([[3.]])
    >>> ig = IntegratedGradients(torch.nn.Sigmoid(), tol=1e-9)  # exact all the same: a sigmoid at the end is known
    >>> ig.attribute(torch.tensor([[2.0]]), target=0), ig.report.status
    (tensor([[0.3808]]), 'exact')
    >>> ig = IntegratedGradients(torch.nn.GELU(), tol=1e-9)
    >>> ig.attribute(torch.tensor([[2.0]]), target=0), ig.report.status
    (tensor([[1.9545]]), 'estimated')
    >>> IntegratedGradients(lambda x: (x, x.relu()), output=1).attribute(torch.tensor([[3.0]]), -1.0, target=0)
    tensor([[3.]])
    """

    def __init__(
        self,
        model_or_forward: ModelLike | None = None,
        multiply_by_inputs: bool = True,
        *,
        forward_func: ModelLike | None = None,
        output: str | int | None = None,
        tol: float | None = None,
        certified: bool = False,
    ) -> None:
        model = forward_func if model_or_forward is None else model_or_forward
        if model is None:
            raise ArgumentError(
                "There is no model.", where="argument model_or_forward", hint="Give a module, a callable or a Network."
            )
        if certified and (tol is None or not multiply_by_inputs or output is not None):
            raise ArgumentError(
                "certified=True needs tol, multiply_by_inputs=True and a model with one output.",
                where="argument certified",
                hint="Give tol=1e-6, for instance.",
            )
        super().__init__(model, multiply_by_inputs, tol)
        self.output, self.certified = output, certified

    @overload
    def attribute(
        self,
        inputs: TensorsT,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: Literal[False] = False,
        **options: Unpack[IntegratedGradientsKeywords],
    ) -> TensorsT: ...
    @overload
    def attribute(
        self,
        inputs: TensorsT,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        *,
        return_convergence_delta: Literal[True],
        **options: Unpack[IntegratedGradientsKeywords],
    ) -> tuple[TensorsT, Tensor]: ...
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        **options: Unpack[IntegratedGradientsKeywords],
    ) -> Any:
        """Compute attributions of the shape of the inputs.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example.
            additional_forward_args: Further arguments of the model. Tensors whose first dim is the batch stay fixed
                along the line; other values are passed on as they are.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            return_convergence_delta: True also returns the delta, (n,): the sum of the attributions minus the change
                of the output. It is that of gradients times inputs minus baselines, whatever ``multiply_by_inputs``.
            **options: device, memory and progress, see `AttributionKeywords`; and output, in place of that of the
                constructor.

        >>> ig = IntegratedGradients(torch.nn.ReLU())
        >>> ig.attribute(torch.tensor([[3.0, 1.0]]), baselines=-1.0, target=0, return_convergence_delta=True)
        (tensor([[3., 0.]]), tensor([0.]))

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        warn_unused(n_steps=n_steps, method=method)
        settings = IntegratedGradientsOptions(**options)
        output = self.output if settings.output is None else settings.output
        call = parse_call(inputs, baselines, additional_forward_args, settings.device)
        count = len(call.lines)
        gradients = [torch.zeros_like(x) for x in call.lines.ends]
        delta, totals = torch.zeros(count, dtype=torch.float64), ReportTotals.for_examples(count)
        smooth, exact = self._find_groups(call, output)
        for group in smooth:
            targets, rows = parse_targets(group, target, count), group.rows
            status, tol = "estimated", self.tol or ENDING_TOL
            if self.certified:
                parts, found, status = certify_inputs(group, targets, settings, tol)
            else:
                parts, found = integrate_inputs(group, targets, self._multiply, settings, tol)
            totals.add_estimate(found, rows, status)
            for total, part in zip(gradients, parts, strict=False):
                total[rows] = part
            if return_convergence_delta:
                products = [g[rows] * c[rows] for g, c in zip(gradients, call.change, strict=True)]
                delta[rows] = convergence_delta(group, products, targets)
        for group in exact:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            integral = integrate_output(group.network, group.lines, targets, settings)
            totals.add(integral, group.rows, attribution_range(integral, group.lines))
            for total, gradient in zip(gradients, integral.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
            if return_convergence_delta:
                products = [g[group.rows] * c[group.rows] for g, c in zip(gradients, call.change, strict=True)]
                delta[group.rows] = _convergence_delta(products, group, targets)
        self.report = totals.report
        if self._multiply:
            gradients = [g * c for g, c in zip(gradients, call.change, strict=True)]
        attributions = call.shape_like_inputs(gradients)
        return (attributions, call.cast_like_input(delta)) if return_convergence_delta else attributions


def integrate_output(
    network: Network,
    lines: Lines,
    targets: Tensor,  # (lines,)
    options: AttributionOptions,
    hooks: dict[int, LayerHook] | None = None,
    other_side_hooks: dict[int, LayerHook] | None = None,
) -> PathIntegral:
    """Integrate the gradient of the first output, behind its smooth tail if it has one."""
    with progress_reporter(options.progress) as report:
        report_lines: Callable[[int, int], None] | None = None
        if report is not None:
            report_lines = lambda done, pieces: report(done / len(lines), pieces)  # noqa: E731
        return path_integral(
            network,
            lines,
            targets,
            tail=True,
            hooks=hooks,
            other_side_hooks=other_side_hooks,
            memory=options.memory,
            progress=report_lines,
        )


def attribution_range(integral: PathIntegral, lines: Lines) -> Tensor:  # (lines,)
    """Return how much attribution depends on the choice of subgradients, summed over all inputs."""
    total = torch.zeros(len(lines), dtype=torch.float64)
    for change, start, end in zip(integral.subgradient_range or (), lines.starts, lines.ends, strict=False):
        total += (change * (end - start).abs()).reshape(len(lines), -1).sum(1).cpu()
    return total


def capture_output(output: str | int | None) -> CaptureFunction:
    """Make the function that captures a model, and selects one of its outputs unless ``output`` is None."""

    def capture(model: ModelLike, points: Sequence[Tensor], device: torch.device) -> Network:
        network = as_network(model, points, device=device)
        return network if output is None else network.output(output)

    return capture


def _convergence_delta(attributions: Sequence[Tensor], group: ExampleGroup, targets: Tensor) -> Tensor:  # (rows,)
    at_inputs = evaluate_targets(group.network, group.lines.ends, targets).cpu()
    at_baselines = evaluate_targets(group.network, group.lines.starts, targets).cpu()
    total = torch.stack([a.reshape(len(a), a.shape[1:].numel()).sum(1) for a in attributions]).sum(0)
    return total - (at_inputs - at_baselines)
