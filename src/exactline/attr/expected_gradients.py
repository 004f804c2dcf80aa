"""Expected gradients: integrated gradients averaged over a background set, exact and repeatable."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, Unpack

import torch
from torch import Tensor

from ..lines import as_points
from ..options import free_memory
from .argument_errors import AttributionArgumentError, AttributionLineError
from .attribution import Attribution
from .captum_classes import counterpart_of
from .captum_interface import expose_wrapped
from .inputs import AttributionKeywords, AttributionOptions, parse_call
from .integrated_gradients import IntegratedGradients
from .report import AttributionReport, ReportTotals
from .sampling_options import ignore_sampling

MEMORY_SHARE = 8  # attributions of one batch of lines take at most this fraction of the memory budget
FLOAT64_BYTES = 8


@counterpart_of("GradientAttribution")
class ExpectedGradients(Attribution):
    """Integrated gradients averaged over all baselines of a background set: the limit of captum's GradientShap.

    GradientShap draws random baselines and random points between them and the input. Here every baseline counts once,
    and every integral is exact, so that two calls give the same values. The attributions of an example add up to its
    output minus the mean output of the background set.

    Args:
        model_or_forward: A module in eval mode, any callable of batches, or a Network.
        multiply_by_inputs: False returns the mean gradients without the factor inputs minus baselines.
        forward_func: captum's name for the first argument.
        output: Which output to attribute, by name or index, if the model returns several.
        tol: For models that are not piecewise linear; see `IntegratedGradients`.

    >>> background = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    >>> ExpectedGradients(torch.nn.ReLU()).attribute(torch.tensor([[3.0, 1.0]]), background, target=0)
    tensor([[2., 0.]])
    """

    def __init__(
        self,
        model_or_forward: Any = None,
        multiply_by_inputs: bool = True,
        *,
        forward_func: Any = None,
        output: str | int | None = None,
        tol: float | None = None,
    ) -> None:
        method = IntegratedGradients(
            model_or_forward, multiply_by_inputs, forward_func=forward_func, output=output, tol=tol
        )
        super().__init__(method.forward_func, multiply_by_inputs, tol)
        self.output, self._method = output, method

    @expose_wrapped
    def attribute(
        self,
        inputs: Any,
        baselines: Any,
        n_samples: int | None = None,
        stdevs: float | tuple[float, ...] = 0.0,
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        **options: Unpack[AttributionKeywords],
    ) -> Any:
        """Compute attributions of the shape of the inputs.

        Args:
            inputs: A tensor (n, *in), or a tuple of tensors.
            baselines: The background set: a tensor (m, *in), a tuple of them for several inputs, or a function that
                returns it, of no argument or of the inputs.
            n_samples: Ignored, with a warning: every baseline is used.
            stdevs: Only 0. captum adds noise of this standard deviation to the inputs; see its NoiseTunnel.
            target: The output element, as for `IntegratedGradients`.
            additional_forward_args: Further arguments of the model, fixed along the line.
            return_convergence_delta: True also returns the delta, (n,): the sum of the attributions minus the output's
                difference from its mean over the background set. captum returns one for each sample instead.
            **options: device, memory, progress and output; see `AttributionKeywords`.

        Raises LineError, ArgumentError, UnsupportedError, NumberError.
        """
        ignore_sampling(None, None, n_samples=n_samples)
        if any(s != 0 for s in (stdevs if isinstance(stdevs, tuple) else (stdevs,))):
            raise AttributionArgumentError(
                "stdevs is not 0: noise would make the attributions random.",
                where="argument stdevs",
                hint="Use captum.attr.NoiseTunnel(IntegratedGradients(model)) for noise.",
            )
        settings = AttributionOptions(**options)
        call = parse_call(inputs, None, additional_forward_args, settings.device)
        backgrounds = _parse_background(baselines, inputs, call.lines.ends)
        count, size = len(call.lines), len(backgrounds[0])
        sums = [torch.zeros_like(x) for x in call.lines.ends]
        delta, totals = torch.zeros(count, dtype=torch.float64), ReportTotals.for_examples(count)
        for first, last in _batches(call.lines.ends, size, settings.memory):
            rows = torch.arange(first, last)  # examples, each with all baselines
            found, deltas = self._method.attribute(
                tuple(x[rows].repeat_interleave(size, 0) for x in call.lines.ends),
                tuple(b.repeat(len(rows), *[1] * (b.dim() - 1)) for b in backgrounds),
                _repeat_targets(target, rows, count, size),
                _repeat_arguments(additional_forward_args, rows, count, size),
                return_convergence_delta=True,
                **options,
            )
            for total, part in zip(sums, found, strict=True):
                total[rows] = part.reshape(len(rows), size, *part.shape[1:]).mean(1).to(total.device)
            delta[rows] = deltas.reshape(len(rows), size).mean(1).cpu()
            _add_report(totals, self._method.report, rows, found, [s[rows] for s in sums])
        self.report = totals.report
        attributions = call.shape_like_inputs(sums)
        return (attributions, call.cast_like_input(delta)) if return_convergence_delta else attributions


def _parse_background(baselines: Any, inputs: Any, ends: Sequence[Tensor]) -> tuple[Tensor, ...]:  # (m, *in) each
    if callable(baselines):
        takes_inputs = len(signature(baselines).parameters) > 0
        baselines = baselines(inputs) if takes_inputs else baselines()
    several: tuple[Any, ...] = baselines if isinstance(baselines, tuple) else (baselines,)
    if len(several) != len(ends) or any(not isinstance(b, Tensor) for b in several):
        raise AttributionArgumentError(
            f"The background set is not one tensor for each of {len(ends)} inputs.",
            where="argument baselines",
            hint="Give a tensor (m, *in), a tuple of them for several inputs.",
        )
    points = as_points(several, "baselines")
    for point, x in zip(points, ends, strict=True):
        if point.dim() != x.dim() or point.shape[1:] != x.shape[1:] or not len(point) or len(point) != len(points[0]):
            raise AttributionLineError(
                f"A background set has shape {tuple(point.shape)}, its input {tuple(x.shape)}.",
                where="argument baselines",
                hint=f"Give at least one baseline, (m, {', '.join(map(str, x.shape[1:]))}).",
            )
    return points


def _batches(ends: Sequence[Tensor], size: int, memory: int | None) -> list[tuple[int, int]]:
    """Ranges of examples whose attributions to all baselines fit into a share of the memory."""
    budget = (free_memory(torch.device("cpu")) if memory is None else memory) // MEMORY_SHARE
    features = sum(x.shape[1:].numel() for x in ends)
    step = max(1, budget // max(1, FLOAT64_BYTES * size * features))
    return [(first, min(first + step, len(ends[0]))) for first in range(0, len(ends[0]), step)]


def _repeat_targets(target: Any, rows: Tensor, count: int, size: int) -> Any:
    """The targets of some examples, once for each baseline; a target for all examples stays as it is."""
    if isinstance(target, Tensor) and target.numel() != 1 and tuple(target.shape) == (count,):
        return target[rows].repeat_interleave(size)
    if isinstance(target, list) and len(target) == count:
        return [target[i] for i in rows.tolist() for _ in range(size)]
    return target


def _repeat_arguments(extra: Any, rows: Tensor, count: int, size: int) -> Any:
    if extra is None:
        return None
    values: tuple[Any, ...] = extra if isinstance(extra, tuple) else (extra,)
    is_batched = [isinstance(v, Tensor) and v.dim() > 0 and len(v) == count for v in values]
    return tuple(
        v[rows.to(v.device)].repeat_interleave(size, 0) if b else v for v, b in zip(values, is_batched, strict=True)
    )


def _add_report(
    totals: ReportTotals,
    report: AttributionReport | None,  # on the lines of some examples
    rows: Tensor,  # (rows,) the examples
    found: Sequence[Tensor],  # (rows * size, *in) each
    means: Sequence[Tensor],  # (rows, *in) each
) -> None:
    """Add the report on all lines of some examples; an error becomes relative to the mean over the baselines."""
    if report is None:
        return
    totals.pieces += report.pieces
    totals.ambiguous += report.ambiguous
    totals.gradients += report.gradients
    totals.status = report.status
    totals.subgradient_range[rows] = report.subgradient_range.reshape(len(rows), -1).mean(1)
    if report.error is not None:
        totals.error = torch.zeros_like(totals.subgradient_range) if totals.error is None else totals.error
        absolute = (report.error * _l1_norms(found)).reshape(len(rows), -1).mean(1)
        totals.error[rows] = absolute / _l1_norms(means).clamp(min=torch.finfo(torch.float64).tiny)


def _l1_norms(tensors: Sequence[Tensor]) -> Tensor:  # (n, *in) each -> (n,)
    return torch.stack([t.reshape(len(t), -1).abs().sum(1).cpu() for t in tensors]).sum(0)
