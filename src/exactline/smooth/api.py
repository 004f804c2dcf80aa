"""The public function of the package: follow any network along a line to a tolerance."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from ..api import restrict
from ..arrays import Floats
from ..errors import ArgumentError
from ..formats.points_range import RangeWarning, compare_ranges
from ..fp_context import full_precision
from ..lines import Lines, PointLike, as_lines, check_shapes
from ..network import Network
from ..network.sklearn_models import as_module, is_estimator
from ..network.smooth_network import SmoothNetwork
from ..options import check_count, check_seconds, free_memory, select_device
from ..progress import ProgressCallback, progress_reporter
from ..results.restriction import Restriction
from .approximation import Approximation
from .batch_dimension import drop_batch_dimension
from .certified import NetworkModule, certify_curve
from .line_function import LineFunction, SamplingLimits
from .model import SmoothModel
from .pieces import AdaptiveInterpolation, ChebyshevPiece
from .tolerances import UNRESOLVED_START, UNRESOLVED_WIDTH

DEFAULT_TOL = 1e-8
MAX_EVALUATIONS = 200_000  # of the model, by default


class ToleranceWarning(UserWarning):
    """The tolerance was not reached; the message says what was.

    >>> import exactline as xl
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", xl.ToleranceWarning)
    ...     curve = xl.approximate(torch.nn.GELU(), [0.0], [1.0], tol=1e-30)
    >>> curve.error > 1e-30
    True
    """


class ApproximateKeywords(TypedDict, total=False):
    """Keyword arguments of `approximate`."""

    tol: float  # the largest absolute error over all outputs; default 1e-8
    certified: bool  # True asks for a proven error bound
    max_evaluations: int | None  # stop after about so many evaluations of the model
    seconds: float | None  # stop after so many seconds
    progress: bool | ProgressCallback  # True shows a bar; a function gets the share done and the number of pieces
    memory: int | None  # bytes of the working set; default: a share of the free memory
    device: torch.device | str | None  # where to compute; default: the device of the model's weights
    output: str | int | None  # the only output to keep, by name or index, if the model has several


@dataclass(frozen=True)
class ApproximateOptions:
    """All options of an approximation, after validation."""

    tol: float = DEFAULT_TOL
    certified: bool = False
    max_evaluations: int | None = MAX_EVALUATIONS
    seconds: float | None = None
    progress: bool | ProgressCallback = False
    memory: int | None = None
    device: torch.device | str | None = None
    output: str | int | None = None

    @staticmethod
    def check(given: Mapping[str, Any], keywords: type) -> ApproximateOptions:
        """Check options, of which only those of some keywords are allowed; raises ArgumentError."""
        unknown = [name for name in given if name not in keywords.__annotations__]
        if unknown:
            raise ArgumentError(
                f"There is no option {unknown[0]!r}.",
                where=f"argument {unknown[0]}",
                hint=f"Options are {', '.join(keywords.__annotations__)}.",
            )
        return ApproximateOptions(**given)

    def __post_init__(self) -> None:
        check_tolerance(self.tol)
        object.__setattr__(self, "max_evaluations", check_count("max_evaluations", self.max_evaluations))
        object.__setattr__(self, "memory", check_count("memory", self.memory))
        object.__setattr__(self, "seconds", check_seconds(self.seconds))


def check_tolerance(tol: Any) -> float:
    """Validate a tolerance: a positive finite number; raises ArgumentError."""
    is_number = isinstance(tol, (int, float)) and not isinstance(tol, bool)
    if not is_number or not 0 < tol < float("inf"):
        raise ArgumentError(
            f"tol must be a positive number, not {tol!r}.", where="argument tol", hint="The default is 1e-8."
        )
    return float(tol)


def approximate(model: Any, start: PointLike, end: PointLike, **options: Unpack[ApproximateKeywords]) -> Approximation:
    """Follow any network along the line from start to end by polynomials, to a tolerance and with an error estimate.

    The model may have any smooth operators: GELU, LayerNorm, attention, products of branches. Its piecewise-linear part
    before the first smooth operator is restricted exactly, kinks behind smooth operators are located, and between them
    each piece gets a Chebyshev interpolant. A model that is piecewise linear throughout gives status "exact".
    Values are those of the whole model, including a softmax at its end.

    Args:
        model: A module in eval mode, any callable of batches, an exported program, or a network from a file.
        start: The first point, (*in), a tuple of points if the model takes several inputs.
        end: The last point, of the same shape as start.
        tol: The largest absolute error over all outputs, 1e-8 by default. If rounding errors or a limit do not permit
            it, a ToleranceWarning says what was reached.
        certified: True asks for a proven bound instead of an estimate; for small modules and files only.
        max_evaluations: Stop after about so many evaluations of the model.
        seconds: Stop after so many seconds.
        progress: True shows a progress bar; a function is called with the share done and the number of pieces.
        memory: Bytes of the working set; by default a share of the free memory.
        device: Where to compute; by default on the device of the model's weights.
        output: The only output to keep, by its name or index, if the model has several.

    >>> import exactline as xl
    >>> curve = xl.approximate(torch.nn.GELU(), [-2.0, 0.0], [2.0, 1.0], tol=1e-10)
    >>> curve.status, curve.error <= 1e-10, curve.at(0.5).shape
    ('estimated', True, torch.Size([2]))

    Raises LineError, ArgumentError, CaptureError, TrainingModeError, UnsupportedError, NumberError.
    """
    checked = ApproximateOptions.check(options, ApproximateKeywords)
    lines = as_lines(start, end, ("start", "end"), many=False)
    for pair in zip(lines.starts, lines.ends, strict=True):
        if problem := compare_ranges(*pair, ("start", "end")):
            warnings.warn(f"{problem.capitalize()} Is one of them scaled?", RangeWarning, stacklevel=2)
    curve = _approximate(model, lines, checked)
    if curve.error > curve.tol:
        warnings.warn(explain_tolerance(curve), ToleranceWarning, stacklevel=2)
    return curve


def explain_tolerance(curve: Approximation) -> str:
    """Say why a curve has not reached its tolerance."""
    worst = int(curve.errors.argmax())
    left, right = curve.breakpoints[worst : worst + 2].tolist()
    reason = f"{curve.stopped} was reached" if curve.stopped else "rounding errors do not permit more"
    is_unresolved = right - left <= UNRESOLVED_WIDTH * right or right <= UNRESOLVED_START
    if not curve.stopped and curve.status == "estimated" and is_unresolved:
        reason = f"the network jumps, or is too steep to follow, near alpha {left:.6g}"
    if curve.status == "estimated" and curve.error == float("inf"):
        reason = f"no bound was found near alpha {left:.6g}"
    verb = "proven to be at most" if curve.status == "certified" else "estimated as"
    return f"The error is {verb} {curve.error:.1e}, not {curve.tol:.1e}: {reason}."


def _approximate(model: Any, lines: Lines, options: ApproximateOptions) -> Approximation:
    if options.certified:
        return _certify(model, lines, options)
    began = time.perf_counter()
    deadline = float("inf") if options.seconds is None else time.monotonic() + options.seconds
    device = select_device(model, options.device)
    if isinstance(model, (Network, SmoothNetwork)):
        lines = _fit_lines(model, lines)
    prepared, has_batch_dimension = drop_batch_dimension(model, [t[0] for t in lines.starts], device, options.output)
    if has_batch_dimension:
        lines = Lines(*(tuple(t.squeeze(1) for t in side) for side in (lines.starts, lines.ends)))
    if prepared.prefix.is_whole:
        line = restrict(model, *_end_points(lines), output=options.output, device=device, memory=options.memory,
                        seconds=options.seconds, progress=options.progress)  # fmt: skip
        return replace(_from_restriction(line, options.tol), seconds=time.perf_counter() - began)
    memory = free_memory(device) if options.memory is None else options.memory
    limits = SamplingLimits(options.max_evaluations or float("inf"), deadline)
    function = LineFunction(prepared, lines, memory, limits=limits)
    breaks = find_prefix_breaks(prepared, lines, options.memory)
    with progress_reporter(options.progress) as report, full_precision():
        work = AdaptiveInterpolation(function, options.tol, report)
        work.run(breaks)
    curve = _assemble(work, lines, function, options.tol)
    kinks = np.union1d(breaks[1:-1], work.kinks)
    return replace(curve, kinks=torch.from_numpy(kinks), seconds=time.perf_counter() - began)


def _fit_lines(model: Network | SmoothNetwork, lines: Lines) -> Lines:
    """The lines without a batch dimension of one, if the network takes such points; raises LineError if it does not."""
    shapes = [model.nodes[i].shape for i in model.inputs] if isinstance(model, Network) else list(model.shapes)
    squeezed = Lines(*(tuple(t.squeeze(1) for t in side) for side in (lines.starts, lines.ends)))
    fits = [tuple(t.shape[1:]) for t in squeezed.starts] == [tuple(s) for s in shapes]
    check_shapes(squeezed if fits else lines, shapes)
    return squeezed if fits else lines


def _certify(model: Any, lines: Lines, options: ApproximateOptions) -> Approximation:
    """The curve with a proven error bound; where no bound was found, the error is infinite."""
    began = time.perf_counter()
    if isinstance(model, (Network, SmoothNetwork)):
        lines, model = _fit_lines(model, lines), NetworkModule(model, options.output)
    elif is_estimator(model):
        model = as_module(model)
    elif not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            "A proven bound needs a torch module or a network from a file.",
            where="argument certified",
            hint="Leave certified out for an error estimate.",
        )
    found = certify_curve(model, *_end_points(lines), options.tol, seconds=options.seconds)
    coeffs = [piece.coefficients for piece in found.pieces]
    errors = torch.tensor([float(piece.error.max()) for piece in found.pieces], dtype=torch.float64)
    is_bounded = bool(torch.isfinite(errors).all())
    return Approximation(
        breakpoints=torch.from_numpy(found.breakpoints),
        degrees=torch.tensor([len(c) - 1 for c in coeffs]),
        coefficients=torch.from_numpy(np.concatenate(coeffs)),
        errors=errors,
        lines=lines,
        status="certified" if is_bounded else "estimated",
        tol=options.tol,
        output_shapes=(found.output_shape,),
        evaluations=found.evaluations,
        seconds=time.perf_counter() - began,
        stopped="" if is_bounded or options.seconds is None else "seconds",
        several_inputs=len(lines.starts) > 1,
    )


def find_prefix_breaks(model: SmoothModel, lines: Lines, memory: int | None = None) -> Floats:  # (n,) from 0 to 1
    """The breaks of the piecewise-linear part of a model before its first smooth operator."""
    if model.prefix.network is None:
        return np.array([0.0, 1.0])
    line = restrict(model.prefix.network, *_end_points(lines), values=False, memory=memory)
    return line.alphas.numpy()


def _end_points(lines: Lines) -> tuple[Any, Any]:
    starts, ends = (tuple(t[0] for t in side) for side in (lines.starts, lines.ends))
    return (starts, ends) if len(starts) != 1 else (starts[0], ends[0])


def _assemble(work: AdaptiveInterpolation, lines: Lines, function: LineFunction, tol: float) -> Approximation:
    pieces: list[ChebyshevPiece] = work.done
    coeffs = [p.coeffs for p in pieces]
    return Approximation(
        breakpoints=torch.tensor([pieces[0].left, *(p.right for p in pieces)], dtype=torch.float64),
        degrees=torch.tensor([len(c) - 1 for c in coeffs]),
        coefficients=torch.from_numpy(np.concatenate(coeffs)),
        errors=torch.tensor([p.error for p in pieces], dtype=torch.float64),
        lines=lines,
        status="estimated",
        tol=tol,
        output_shapes=function.shapes,
        evaluations=function.evaluations,
        stopped=work.stopped,
        several_inputs=len(lines.starts) > 1,
        several_outputs=len(function.shapes) > 1,
        output_names=function.model.output_names if len(function.shapes) > 1 else (),
        source=function.model.kind,
    )


def _from_restriction(line: Restriction, tol: float) -> Approximation:
    """The curve of a piecewise-linear network: polynomials of degree 1 between its breaks."""
    outputs = line.values if isinstance(line.values, tuple) else (line.values,)
    rows = torch.cat([v.reshape(len(v), -1) for v in outputs], 1).double()
    means, slopes = (rows[1:] + rows[:-1]) / 2, (rows[1:] - rows[:-1]) / 2
    errors = line.errors
    return Approximation(
        breakpoints=line.alphas,
        degrees=torch.ones(len(line), dtype=torch.int64),
        coefficients=torch.stack([means, slopes], 1).reshape(-1, rows.shape[1]),
        errors=torch.maximum(errors[1:], errors[:-1]),
        lines=line.lines,
        status="exact",
        tol=tol,
        output_shapes=tuple(tuple(v.shape[1:]) for v in outputs),
        kinks=line.alphas[1:-1],
        stopped=line.stopped,
        several_inputs=line.several_inputs,
        several_outputs=line.several_outputs,
    )
