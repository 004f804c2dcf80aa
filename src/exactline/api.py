"""The public functions: restrict a network to a line, to many lines, a path or a plane, or stream a line in parts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from .budget import Budget, enforce_budget
from .engines.ambiguity import BreakRows, count_ambiguous
from .engines.assemble import Assembler, BreakTable, count_in_part, link_parts
from .engines.capture import capture_at_points, is_first_use
from .engines.dense.sweep import SweepLimits, SweepPart
from .engines.layer_record import LayerRecorder, LayerTable, Switches, count_layers
from .engines.polygons.assemble import PlaneAssembler
from .engines.polygons.monitor import PlaneMonitor
from .engines.polygons.polygon_input import PolygonInput, check_grid, check_polygon, check_polygon_shapes
from .engines.polygons.state import PlaneFrame
from .engines.polygons.sweep import sweep_plane
from .engines.select import EngineChoice
from .errors import LineError
from .formats.points_range import RangeWarning, compare_ranges
from .fp_context import full_precision
from .lines import Lines, PointLike, as_lines, as_points, check_shapes
from .network import Network, as_network
from .numerics.plan import sweep_plan
from .options import PlaneKeywords, RestrictKeywords, RestrictOptions, SweepKeywords, free_memory
from .progress import ProgressCallback, progress_reporter
from .results.plane import PlaneRestriction
from .results.restriction import Restriction
from .results.restrictions import Restrictions

MAX_PART_POINTS_WITH_BREAK_LIMIT = 256  # points swept together with max_breaks: a limit is noticed after each part
MIN_PART_CORNERS = 256  # corners of a plane that are swept together, however little memory there is


def restrict(model: Any, start: PointLike, end: PointLike, **options: Unpack[RestrictKeywords]) -> Restriction:
    """Compute every break of a piecewise-linear network on the line from start to end, and its values there.

    Between two breaks the line stays in one linear region: the activation pattern is constant and the network affine.

    Args:
        model: A module in eval mode, an exported program or a Network.
        start: The first point, (*in), a tuple of points if the model takes several inputs. A batch dimension of one in
            front is dropped: where the model does not take it, or where it would return it unchanged.
        end: The last point, of the same shape as start.
        dtype: torch.float64, or torch.float32, which is faster on some GPUs and finds false breaks.
        device: Where to compute; by default on the device of the model's weights.
        memory: Bytes of the working set; by default a share of the free memory. It does not change the answer.
        values: False keeps only the breaks and their origins.
        progress: True shows a progress bar; a function is called with the share done and the number of breaks so far.
        rewrite: False sweeps ReLU and maximum one after the other instead of fused, which gives more breaks.
        until: The name of a submodule whose output replaces the model's.
        output: The only output to keep, by its name or index, if the model has several.
        max_breaks: Stop the sweep after this many breaks.
        seconds: Stop the sweep after this many seconds.
        engine: "dense" (values at every break), "patches" (slope jumps in their receptive fields) or "auto";
            ``line.engine`` says which one ran and why.
        record: "layers" also counts crossings, dead and always-on units by layer, for `Restriction.metrics`.

    >>> import exactline as xl
    >>> line = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [3.0, 2.0])
    >>> line.alphas.tolist()
    [0.0, 0.25, 1.0]

    Raises LineError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    lines = as_lines(start, end, ("start", "end"), many=False)
    for pair in zip(lines.starts, lines.ends, strict=True):
        if problem := compare_ranges(*pair, ("start", "end")):
            warnings.warn(f"{problem.capitalize()} Is one of them scaled?", RangeWarning, stacklevel=2)
    return _restrict(model, lines, RestrictOptions.check(model, options, RestrictKeywords))[0]


def restrict_many(model: Any, starts: PointLike, ends: PointLike, **options: Unpack[RestrictKeywords]) -> Restrictions:
    """Restrict a network to many lines that are swept together, which is faster than one after the other.

    Args:
        model: A module in eval mode, an exported program or a Network.
        starts: The first points, (lines, *in); a tuple of such tensors if the model takes several inputs.
        ends: The last points, of the same shape as starts.
        **options: The options of `restrict`.

    >>> import exactline as xl
    >>> [len(line) for line in xl.restrict_many(torch.nn.ReLU(), [[-1.0], [1.0]], [[1.0], [2.0]])]
    [2, 1]

    Raises LineError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    return _restrict(model, lines, RestrictOptions.check(model, options, RestrictKeywords))


def restrict_parts(
    model: Any, starts: PointLike, ends: PointLike, **options: Unpack[RestrictKeywords]
) -> tuple[EngineChoice, Iterator[SweepPart]]:
    """Stream the answer of `restrict_many` in parts, each as soon as it is final, in bounded memory.

    Concatenated, the parts are the answer of `restrict_many`. After the last part, the engine choice names the engine
    that ran and its limits the reason why the sweep was stopped early, if it was.

    Args:
        model: A module in eval mode, an exported program or a Network.
        starts: The first points, (lines, *in); a tuple of such tensors if the model takes several inputs.
        ends: The last points, of the same shape as starts.
        **options: The options of `restrict`.

    >>> choice, parts = restrict_parts(torch.nn.ReLU(), [[-1.0], [1.0]], [[1.0], [2.0]], memory=1)
    >>> [(part.line.tolist(), part.alphas.tolist()) for part in parts], choice.limits.stopped
    ([([0, 0], [0.0, 0.5]), ([0], [1.0]), ([1, 1], [0.0, 1.0])], '')
    """
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    checked = RestrictOptions.check(model, options, RestrictKeywords)
    network, choice, lines, _ = _prepare(model, lines, checked)
    return choice, _in_full_precision(
        _assembler(network, lines, checked, choice).stream(_sweep(choice, lines, checked))
    )


def restrict_path(model: Any, points: PointLike, **options: Unpack[RestrictKeywords]) -> Restrictions:
    """Restrict a network to a polyline: the lines between neighbouring points, swept together.

    Args:
        model: A module in eval mode, an exported program or a Network.
        points: The corners of the polyline, (points, *in), at least two; a tuple of such tensors if the model takes
            several inputs.
        **options: The options of `restrict`.

    >>> import exactline as xl
    >>> [len(line) for line in xl.restrict_path(torch.nn.ReLU(), [[-1.0], [1.0], [2.0]])]
    [2, 1]

    Raises LineError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    corners = as_points(points, "points")
    if any(c.dim() == 0 or len(c) < 2 for c in corners):
        raise LineError(
            "A path needs at least two points.", where="argument points", hint="Give a tensor of shape (points, *in)."
        )
    starts, ends = tuple(c[:-1] for c in corners), tuple(c[1:] for c in corners)
    return restrict_many(model, starts, ends, **options)


def sweep(model: Any, start: PointLike, end: PointLike, **options: Unpack[SweepKeywords]) -> Iterator[Restriction]:
    """Stream a line in parts, in order of alpha, each as soon as it is final, in bounded memory.

    Each part is the Restriction of a segment of the line and begins at the alpha where the previous one ended.

    Args:
        model: A module in eval mode, an exported program or a Network.
        start: The first point, (*in), a tuple of points if the model takes several inputs. A batch dimension of one in
            front is dropped: where the model does not take it, or where it would return it unchanged.
        end: The last point, of the same shape as start.
        **options: The options of `restrict` except progress and max_breaks.

    >>> import exactline as xl
    >>> [part.alphas.tolist() for part in xl.sweep(torch.nn.ReLU(), [-1.0], [1.0], memory=1)]
    [[0.0, 0.5], [0.5, 1.0]]

    Raises LineError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    lines = as_lines(start, end, ("start", "end"), many=False)
    return _stream(model, lines, RestrictOptions.check(model, options, SweepKeywords))


def restrict_plane(model: Any, vertices: Any, **options: Unpack[PlaneKeywords]) -> PlaneRestriction:
    """Cut a convex polygon of input space along all its linear regions, into polygons on which the network is affine.

    Args:
        model: A module in eval mode, an exported program or a Network.
        vertices: Three or more corners, (k, *in), in order and in one plane; a tuple of such tensors if the model takes
            several inputs.
        max_polygons: Raise LimitError as soon as there are more polygons; the sweep keeps no partial answer.
        seconds: Raise LimitError if it takes longer.
        progress: True shows a progress bar; a function is called with the share of the work done and the number of
            polygons so far, which the answer has at least.
        **options: dtype, device, memory, values, rewrite, until and output, as in `restrict`.

    >>> import exactline as xl
    >>> len(xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]]))
    4

    Raises PlaneError, LimitError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    return _restrict_polygon(model, check_polygon(vertices), RestrictOptions.check(model, options, PlaneKeywords))


def grid(
    model: Any,
    base: Any,
    axes: tuple[Any, Any] = (0, 1),
    box: Any = ((0.0, 1.0), (0.0, 1.0)),
    **options: Unpack[PlaneKeywords],
) -> PlaneRestriction:
    """Restrict a network to a rectangle in which two features of an input vary and all others keep their values.

    The plane coordinates of the result are the two features.

    Args:
        model: A module in eval mode, an exported program or a Network.
        base: The input, (*in), that gives all other features their values.
        axes: The two features: indices of the input, as tuples if the input has several dims.
        box: The ranges of the two features, ((low, high), (low, high)).
        **options: The options of `restrict_plane`.

    >>> import exactline as xl
    >>> plane = xl.grid(torch.nn.ReLU(), [0.0, 3.0, 0.0], axes=(0, 2), box=((-1, 1), (-2, 2)))
    >>> len(plane), plane.at([[0.5, -1.0]]).tolist()
    (4, [[0.5, 3.0, 0.0]])

    Raises PlaneError, LimitError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    polygon = check_grid(base, axes, box)
    return _restrict_polygon(model, polygon, RestrictOptions.check(model, options, PlaneKeywords))


def _restrict(model: Any, lines: Lines, options: RestrictOptions) -> Restrictions:
    network, choice, lines, setup_seconds = _prepare(model, lines, options)
    began = time.perf_counter()
    assembler = _assembler(network, lines, options, choice)
    with progress_reporter(options.progress) as report, full_precision():
        table = assembler.collect(_report_progress(_sweep(choice, lines, options), report, len(lines)))
        if choice.recorder is not None:
            table = replace(table, layers=_count_layers(choice, lines, options, table))
    seconds = time.perf_counter() - began
    return _make_restrictions(table, lines, network, (seconds, setup_seconds), options, choice)


def _stream(model: Any, lines: Lines, options: RestrictOptions) -> Iterator[Restriction]:
    network, choice, lines, setup_seconds = _prepare(model, lines, options)
    parts = link_parts(_sweep(choice, lines, options), choice.recorder)
    pending: Restriction | None = None
    while True:
        began = time.perf_counter()
        with full_precision():
            part = next(parts, None)
        if pending is not None:
            # with a deadline a part is held back until the next one is known, so that the last can say it was stopped
            yield replace(pending, stopped=choice.limits.stopped) if part is None else pending
        if part is None:
            return
        part = count_in_part(partial(_count_ambiguous, choice, lines, options), part)
        table = _break_table(part, options.values)
        if choice.recorder is not None:
            table = replace(table, layers=_count_layers(choice, lines, options, table, is_stream=True))
        durations = (time.perf_counter() - began, setup_seconds)
        pending = _make_restrictions(table, lines, network, durations, options, choice)[0]
        setup_seconds = 0.0  # belongs to the first part alone
        if options.seconds is None:
            yield pending
            pending = None


def _prepare(model: Any, lines: Lines, options: RestrictOptions) -> tuple[Network, EngineChoice, Lines, float]:
    """Capture the model.

    Returns the network for the results, the engine, the lines without a batch dimension, and the seconds that the
    capture took, 0 if an earlier one was used.
    """
    began = time.perf_counter()
    points = [t[0] if len(t) else t.new_zeros(t.shape[1:]) for t in lines.starts]
    with full_precision(kernels=False):
        network, has_batch_dimension = capture_at_points(model, points, options)
        if has_batch_dimension:
            lines = Lines(*(tuple(t.squeeze(1) for t in side) for side in (lines.starts, lines.ends)))
            points = [p[0] for p in points]
        check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
        swept = as_network(network, points, device=options.device, dtype=options.dtype)
    limits = _limits(swept, options)
    choice = EngineChoice(
        swept,
        options.engine,
        limits,
        options.memory_budget,
        values=options.values,
        is_memory_given=options.memory is not None,
        recorder=None if options.record is None else LayerRecorder(),
    )
    choice.require_memory()
    is_new = is_first_use(model, network)
    return network, choice, lines, time.perf_counter() - began if is_new else 0.0


def _limits(network: Network, options: RestrictOptions) -> SweepLimits:
    deadline = float("inf") if options.seconds is None else time.monotonic() + options.seconds
    points = sweep_plan(network).max_points(options.memory_budget)
    if options.max_breaks is not None:
        points = min(points, MAX_PART_POINTS_WITH_BREAK_LIMIT)
    return SweepLimits(points, deadline, memory=options.memory_budget, max_breaks=options.max_breaks)


def _sweep(choice: EngineChoice, lines: Lines, options: RestrictOptions) -> Iterator[SweepPart]:
    """Sweep all lines, part by part; float32 patches are summed in float64."""
    if choice.uses_patches and options.dtype == torch.float32:
        float32 = choice.network
        choice.network = float32.to(dtype=torch.float64)
        return choice.sweep(lines.to(options.device, torch.float64), float32)
    return choice.sweep(lines.to(options.device, options.dtype), None)


def _assembler(network: Network, lines: Lines, options: RestrictOptions, choice: EngineChoice) -> Assembler:
    shapes = [network.nodes[i].shape for i in network.outputs] if options.values else None
    return Assembler(
        len(lines),
        shapes,
        options.max_breaks,
        choice.limits,
        choice.recorder,
        partial(_count_ambiguous, choice, lines, options),
    )


def _count_ambiguous(choice: EngineChoice, lines: Lines, options: RestrictOptions, rows: BreakRows) -> Tensor:
    """The number of ambiguous units on the piece that starts at each break."""
    if not bool((rows.candidates != 0).any()):
        return rows.candidates
    moved = lines.to(options.device, choice.network.dtype)
    with full_precision():
        return count_ambiguous(choice.network, moved, rows, choice.limits)


def _count_layers(
    choice: EngineChoice, lines: Lines, options: RestrictOptions, table: BreakTable, *, is_stream: bool = False
) -> LayerTable | None:
    """What the units of every layer do on the lines, or on one part of a line."""
    if choice.recorder is None:
        return None
    choice.recorder.commit()
    reached = float(table.alphas[-1]) if is_stream and len(table.alphas) else 0.0
    switches = choice.recorder.take_until(reached) if is_stream else Switches.join(choice.recorder.switches)
    moved = lines.to(options.device, choice.network.dtype)
    with full_precision():
        return count_layers(choice.network, moved, table.offsets, table.alphas, switches, is_stream=is_stream)


def _in_full_precision(parts: Iterator[SweepPart]) -> Iterator[SweepPart]:
    while True:
        with full_precision():
            part = next(parts, None)
        if part is None:
            return
        yield part


def _report_progress(parts: Iterator[SweepPart], report: ProgressCallback | None, lines: int) -> Iterator[SweepPart]:
    breaks = 0
    for part in parts:
        yield part
        if report is not None:
            breaks += len(part.alphas) - int(part.continues)
            report((int(part.line[-1]) + float(part.alphas[-1])) / max(lines, 1), breaks)


def _break_table(part: SweepPart, values: bool) -> BreakTable:
    alphas, origins, ambiguous = (t.cpu().contiguous() for t in (part.alphas, part.origins, part.ambiguous))
    return BreakTable(
        offsets=torch.tensor([0, len(part.alphas)]),
        alphas=alphas,
        origins=origins,
        ambiguous=ambiguous,
        values=tuple(v.cpu() for v in part.values) if values else None,
        stopped="",
    )


def _make_restrictions(
    table: BreakTable,
    lines: Lines,
    network: Network,
    durations: tuple[float, float],  # seconds of the sweep, and of the capture before it
    options: RestrictOptions,
    choice: EngineChoice,
) -> Restrictions:
    return Restrictions(
        table,
        lines,
        network,
        durations[0],
        network.units,
        setup_seconds=durations[1],
        dtype=options.dtype,
        rewrite=options.rewrite,
        until=options.until,
        engine=choice.description,
    )


def _restrict_polygon(model: Any, polygon: PolygonInput, options: RestrictOptions) -> PlaneRestriction:
    began = time.perf_counter()
    points = [c[0] for c in polygon.corners]
    with full_precision(kernels=False):
        network, has_batch_dimension = capture_at_points(model, points, options)
        if has_batch_dimension:
            polygon = replace(polygon, corners=tuple(c.squeeze(1) for c in polygon.corners))
            points = [p[0] for p in points]
        check_polygon_shapes(polygon.corners, [network.nodes[i].shape for i in network.inputs])
        swept = as_network(network, points, device=options.device, dtype=options.dtype)
    setup_seconds = time.perf_counter() - began if is_first_use(model, network) else 0.0
    began = time.perf_counter()
    # in units of the extent; dividing before subtracting, because the last bit depends on the order
    extent = float(np.ptp(polygon.coordinates, axis=0).max())
    coordinates = polygon.coordinates / extent - polygon.coordinates[0] / extent
    frame = PlaneFrame(tuple(c.to(options.device, options.dtype) for c in polygon.corners), coordinates)
    assembler = PlaneAssembler(network, options.values)
    # the mesh is in host memory, whatever the device of the network
    memory = free_memory(torch.device("cpu")) if options.memory is None else options.memory
    max_corners = max(MIN_PART_CORNERS, sweep_plan(swept).max_points(memory))
    deadline = nullcontext() if options.seconds is None else enforce_budget(Budget(time.monotonic() + options.seconds))
    with progress_reporter(options.progress, "area", "polygons") as report, full_precision(), deadline:
        monitor = PlaneMonitor(len(swept.nodes), options.seconds, options.max_polygons, report)
        for part in sweep_plane(swept, frame, max_corners, monitor):
            assembler.add(part)
        cells = assembler.assemble(frame.coordinates)
    geometry = (polygon.coordinates, polygon.origin, polygon.axes)
    mesh = (cells.weights, cells.ends, cells.origins, cells.sides, cells.offsets, cells.rings)
    return PlaneRestriction(
        polygon.corners,
        *map(torch.from_numpy, (*geometry, *mesh)),
        stored_values=cells.values,
        names=tuple(n.name for n in network.nodes),
        network=network,
        units=network.units,
        several_inputs=network.several_inputs,
        several_outputs=network.several_outputs,
        dtype=options.dtype,
        seconds=time.perf_counter() - began,
        setup_seconds=setup_seconds,
        ambiguous=cells.ambiguous,
        rewrite=options.rewrite,
        until=options.until,
    )
