"""Exact integrated gradients with captum's calling conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack, overload

import torch
from torch import Tensor

from ..engines.dense.gradients import LayerHook
from ..errors import ArgumentError
from ..lines import Lines
from ..network import Network
from ..progress import ProgressCallback, progress_reporter
from .attribution import Attribution, iterate_tensors
from .captum_classes import counterpart_of
from .captum_interface import expose_wrapped
from .inputs import AttributionKeywords, AttributionOptions, ModelLike, Tensors, flatten_targets, single_output_shape
from .path_integrals import PathIntegral, path_integral
from .report import ReportTotals
from .sampling_options import ignore_sampling
from .to_tolerance import ENDING_TOL, certify_inputs, integrate_inputs, parse_targets

TensorsT = TypeVar("TensorsT", bound=Tensors)


@counterpart_of("IntegratedGradients")
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
        **options: Unpack[AttributionKeywords],
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
        **options: Unpack[AttributionKeywords],
    ) -> tuple[TensorsT, Tensor]: ...
    @expose_wrapped
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
        **options: Unpack[AttributionKeywords],
    ) -> Any:
        """Compute attributions of the shape of the inputs.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            baselines: Numbers or tensors (n, *in) or (1, *in), a tuple for several inputs; zero by default.
            target: The output element: an int, a tuple of ints, or a list or tensor with one for each example. If the
                model returns a dict or a tuple, the first entry of the tuple is its name or index.
            additional_forward_args: Further arguments of the model. Tensors whose first dim is the batch stay fixed
                along the line; other values are passed on as they are.
            n_steps: Ignored, with a warning.
            method: Ignored, with a warning.
            internal_batch_size: Ignored; use memory.
            return_convergence_delta: True also returns the delta, (n,): the sum of the attributions minus the change
                of the output. As in captum it is near 0 only with ``multiply_by_inputs``.
            **options: device, memory, progress and output; see `AttributionKeywords`.

        >>> ig = IntegratedGradients(torch.nn.ReLU())
        >>> ig.attribute(torch.tensor([[3.0, 1.0]]), baselines=-1.0, target=0, return_convergence_delta=True)
        (tensor([[3., 0.]]), tensor([0.]))

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(n_steps, method)
        settings = AttributionOptions(**options)
        call, target = self._parse(inputs, baselines, additional_forward_args, settings.device, target, settings.output)
        count = len(call.lines)
        gradients = [torch.zeros_like(x) for x in call.lines.ends]
        totals = ReportTotals.for_examples(count)
        smooth, exact = groups = self._find_groups(call)
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
        for group in exact:
            targets = flatten_targets(target, single_output_shape(group.network), count)[group.rows]
            integral = integrate_output(
                group.network, group.lines, targets, settings, ignores_fixed_inputs=self._multiply
            )
            totals.add(integral, group.rows, attribution_range(integral, group.lines))
            for total, gradient in zip(gradients, integral.gradients, strict=False):
                total[group.rows] = gradient.to(total.device)
        self.report = totals.report
        if self._multiply:
            gradients = [g * c for g, c in zip(gradients, call.change, strict=True)]
        attributions = call.shape_like_inputs(gradients)
        if not return_convergence_delta:
            return attributions
        returned = list(iterate_tensors(attributions))
        return attributions, call.cast_like_input(self._compute_delta(call, returned, target, groups))


def integrate_output(
    network: Network,
    lines: Lines,
    targets: Tensor,  # (lines,)
    options: AttributionOptions,
    hooks: dict[int, LayerHook] | None = None,
    other_side_hooks: dict[int, LayerHook] | None = None,
    *,
    ignores_fixed_inputs: bool = False,
    layers_only: bool = False,
) -> PathIntegral:
    """Integrate the gradient of the first output, behind its smooth tail if it has one; see `path_integral`."""
    with progress_reporter(options.progress) as report:
        report_lines: Callable[[float, int], None] | None = None
        if report is not None:
            report_lines = _rescale_progress(report, len(lines))
        return path_integral(
            network,
            lines,
            targets,
            tail=True,
            hooks=hooks,
            other_side_hooks=other_side_hooks,
            memory=options.memory,
            progress=report_lines,
            ignores_fixed_inputs=ignores_fixed_inputs,
            layers_only=layers_only,
        )


def _rescale_progress(report: ProgressCallback, lines: int) -> Callable[[float, int], None]:
    """Report the share of all lines; it never goes back, as when one engine gives up and another starts over."""
    reached, most = 0.0, 0

    def report_lines(done: float, pieces: int) -> None:
        nonlocal reached, most
        reached, most = max(reached, done / lines), max(most, pieces)
        report(reached, most)

    return report_lines


def attribution_range(integral: PathIntegral, lines: Lines) -> Tensor:  # (lines,)
    """Return how much attribution depends on the choice of subgradients, summed over all inputs."""
    total = torch.zeros(len(lines), dtype=torch.float64)
    for change, start, end in zip(integral.subgradient_range or (), lines.starts, lines.ends, strict=False):
        total += (change * (end - start).abs()).reshape(len(lines), -1).sum(1).cpu()
    return total
