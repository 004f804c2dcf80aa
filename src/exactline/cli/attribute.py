"""``exactline attribute``: how much each input contributes to an output, by exact integrated gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import PointReader, parse_bytes, parse_output, parse_shapes
from ..console.options import (
    POINT_HELP,
    AsJson,
    Device,
    Memory,
    NetworkFile,
    Normalize,
    OutputName,
    PointConversions,
    Shape,
    ShowProgress,
    expand_options,
)
from ..console.output import PICTURE_SUFFIXES, check_output_files, print_json, print_note, print_rich
from ..console.progress_bar import show_clock
from ..errors import ArgumentError, NumberError
from ..humanize import count_noun
from .smooth_file import Tolerance, needs_tolerance, print_tolerance_warnings

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..attr import AttributionReport
    from ..lines import Lines
    from ..network import Network

MAX_SHOWN_ATTRIBUTIONS = 10  # rows of the table


@dataclass(frozen=True)
class AttributionAnswer:
    """The attributions of one output at one point."""

    target: int  # flat position in the output
    output: str | None  # name of the output, if the network has several
    tail: str | None  # name of the smooth tail, if the attributions are those of its result
    lines: Lines  # one line, from the baseline to the input
    attributions: tuple[Tensor, ...]  # (*in) each
    at_input: float  # the output there
    at_baseline: float  # the output there
    delta: float  # sum of the attributions minus the difference of the outputs
    report: AttributionReport
    seconds: float

    @property
    def title(self) -> str:
        """The explained output in words."""
        name = f"output {self.target}" if self.output is None else f"element {self.target} of output {self.output}"
        return name if self.tail is None else f"{self.tail} of {name}"

    @property
    def total(self) -> float:
        """The sum of the attributions."""
        return float(sum(a.sum() for a in self.attributions))

    @property
    def subgradient_range(self) -> float:
        """How much attribution depends on the choice of subgradients."""
        return float(self.report.subgradient_range[0])


@expand_options(PointConversions)
def attribute(
    file: NetworkFile,
    options: PointConversions,
    given: Annotated[list[str], typer.Option("--input", metavar="POINT", help=f"The point to explain: {POINT_HELP}")],
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINT", help="The point to compare it with, in one of these forms, or one number (default: 0)."
        ),
    ] = None,
    target: Annotated[
        int | None, typer.Option(metavar="K", help="Number of the output, from 0 (default: the largest at the input).")
    ] = None,
    output: OutputName = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Save the attributions as .npz.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the attributions: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    tail: Annotated[bool, typer.Option(help="Explain the probability if the network ends in a softmax.")] = True,
    memory: Memory = None,
    device: Device = None,
    progress: ShowProgress = True,
    tol: Tolerance = None,
) -> None:
    """Show how much each input contributes to an output: integrated gradients, exact up to rounding.

    With --tol the network need not be piecewise linear: the attributions then have an error estimate.

    Example: exactline attribute loan.nnet --input 20,30 --baseline 30,50 --target 0
    """
    check_output_files({"--out": (out, (".npz",)), "--plot": (plot, PICTURE_SUFFIXES)})
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..formats import load
    from ..network.smooth_network import require_piecewise_linear

    network = load(file, normalize=normalize, shape=parse_shapes(shape))
    is_smooth = needs_tolerance(network, tol)
    reader = PointReader.make(network, options)
    lines = _read_line(reader, given, baseline or ["0"])
    with show_clock(progress, "integrating gradients"), print_tolerance_warnings():
        if is_smooth:
            chosen = parse_output(output)
            answer = _attribute_smooth(network, chosen, lines, target, tol, memory=memory_bytes, device=device)
        else:
            explained, name = _choose_output(require_piecewise_linear(network), parse_output(output), tail=tail)
            answer = _attribute(explained, name, lines, target, memory=memory_bytes, device=device)
    if out is not None:
        _save(answer, out)
        print_note(f"saved to {out}")
    if plot is not None:
        _draw(answer, plot)
        print_note(f"drawn to {plot}{', the first input only' if len(answer.attributions) > 1 else ''}")
    if as_json:
        print_json(_build_document(str(file), answer, network.several_inputs) | reader.report())
    else:
        print_rich(*_summarize(answer), _build_table(answer))


def _choose_output(network: Network, output: str | int | None, *, tail: bool) -> tuple[Network, str | None]:
    """Return the network with one output, by default the first, and its name if there are others."""
    from ..network.outputs import describe_outputs

    names, one = network.list_output_names(), network.output(0 if output is None else output)
    if not tail:
        one = replace(one, tails=(None,), device_copies={})
    if not network.several_outputs:
        return one, None
    if output is None:
        print_note(f"The network has {describe_outputs(names)}. Explaining 0; choose another with --output.")
    return one, one.list_output_names()[0]


def _read_line(reader: PointReader, given: list[str], baseline: list[str]) -> Lines:
    """Read the line from the baseline to the input; a single number is a baseline for every coordinate."""
    import numpy as np

    from ..formats.points import is_number, read_point
    from ..lines import as_lines

    end = reader.read(given, "--input")
    if len(baseline) == 1 and is_number(baseline[0]):
        (number,) = read_point(baseline[0], (1,), "--baseline")  # refuses NaN
        ends = end if isinstance(end, tuple) else (end,)
        filled = tuple(np.full_like(e, number) for e in ends)
        start = filled if isinstance(end, tuple) else filled[0]
    else:
        start = reader.read(baseline, "--baseline")
        reader.compare_ranges(start, end, ("--baseline", "--input"))
    return as_lines(start, end, ("--baseline", "--input"), many=False)


def _attribute(
    network: Network, name: str | None, lines: Lines, target: int | None, *, memory: int | None, device: str | None
) -> AttributionAnswer:
    import numpy as np
    import torch

    from ..attr import AttributionReport, IntegratedGradients
    from ..attr.inputs import single_output_shape
    from ..network import as_network
    from ..options import select_device

    start_time = perf_counter()
    target_device = select_device(network, device)
    explained = as_network(network, [], device=target_device)
    position, at_input, at_baseline = _evaluate_target(partial(explained, tail=True), lines, target)
    method = IntegratedGradients(explained)
    attributions, delta = method.attribute(
        lines.ends,
        lines.starts,
        tuple(int(i) for i in np.unravel_index(position, single_output_shape(explained))),
        return_convergence_delta=True,
        device=target_device,
        memory=memory,
    )
    answer = AttributionAnswer(
        target=position,
        output=name,
        tail=explained.tails[0] and explained.tails[0].name,
        lines=lines,
        attributions=tuple(a[0] for a in attributions),
        at_input=at_input,
        at_baseline=at_baseline,
        delta=float(delta[0]),
        report=method.report or AttributionReport(0, 0, torch.zeros(1)),
        seconds=perf_counter() - start_time,
    )
    if not all(bool(torch.isfinite(a).all()) for a in answer.attributions) or not isfinite(answer.delta):
        raise NumberError(
            "The attributions overflow.", where=answer.title, hint="Give an input nearer to the baseline."
        )
    return answer


def _attribute_smooth(
    network: Any,
    output: str | int | None,
    lines: Lines,
    target: int | None,
    tol: float | None,
    *,
    memory: int | None,
    device: str | None,
) -> AttributionAnswer:
    """Attribute one output of a network that is not piecewise linear, to a tolerance."""
    import numpy as np
    import torch

    from ..attr import AttributionReport, IntegratedGradients
    from ..options import select_device
    from ..smooth.model import prepare_model

    start_time = perf_counter()
    which = 0 if output is None and network.several_outputs else output
    model = prepare_model(network, [t[0] for t in lines.ends], select_device(network, device), which)

    def evaluate(*xs: Tensor) -> Tensor:
        return model.evaluate(xs)[0]

    position, at_input, at_baseline = _evaluate_target(evaluate, lines, target)
    shape = evaluate(*lines.ends).shape[1:]
    method = IntegratedGradients(network, output=which, tol=tol)
    attributions, delta = method.attribute(
        lines.ends,
        lines.starts,
        tuple(int(i) for i in np.unravel_index(position, tuple(shape))),
        return_convergence_delta=True,
        device=device,
        memory=memory,
    )
    name = network.output_names[which] if isinstance(which, int) else which
    return AttributionAnswer(
        target=position,
        output=name if network.several_outputs else None,
        tail=None,
        lines=lines,
        attributions=tuple(a[0].detach() for a in attributions),
        at_input=at_input,
        at_baseline=at_baseline,
        delta=float(delta[0]),
        report=method.report or AttributionReport(0, 0, torch.zeros(1)),
        seconds=perf_counter() - start_time,
    )


def _evaluate_target(network: Any, lines: Lines, target: int | None) -> tuple[int, float, float]:
    """Return the target, by default the largest output at the input, with its values at the input and the baseline."""
    from ..fp_context import full_precision

    with full_precision():
        at_input, at_baseline = (network(*side)[0].reshape(-1) for side in (lines.ends, lines.starts))
    count = len(at_input)
    if not count or (target is not None and not 0 <= target < count):
        raise ArgumentError(
            f"There is no output {target or 0}: the network has {count_noun(count, 'output')}.",
            where="--target",
            hint=f"Give a number from 0 to {count - 1}." if count else "Give a network with outputs.",
        )
    position = int(at_input.argmax()) if target is None else target
    return position, float(at_input[position]), float(at_baseline[position])


def _save(answer: AttributionAnswer, path: Path) -> None:
    """Write the arrays as .npz, atomically; with several inputs their names end in .0, .1 ..."""
    import io

    import numpy as np

    from ..files import write_atomically

    groups = {
        "attributions": answer.attributions,
        "input": tuple(t[0] for t in answer.lines.ends),
        "baseline": tuple(t[0] for t in answer.lines.starts),
    }
    arrays: dict[str, Any] = {"target": np.array(answer.target), "delta": np.array(answer.delta)}
    for name, group in groups.items():
        arrays |= {name if len(group) == 1 else f"{name}.{i}": t.numpy() for i, t in enumerate(group)}
    data = io.BytesIO()
    np.savez(data, **arrays)
    write_atomically(path, data.getvalue())


def _draw(answer: AttributionAnswer, path: Path) -> None:
    """Draw the attributions of the first input."""
    from ..plot.attribution import plot_attribution
    from ..plot.figure import save_picture

    save_picture(
        plot_attribution(answer.attributions[0], answer.lines.ends[0][0], title=f"attribution to {answer.title}"), path
    )


def _summarize(answer: AttributionAnswer) -> list[str]:
    change = answer.at_input - answer.at_baseline
    rows = [
        f"{answer.title}: {_describe_report(answer.report)}, {answer.seconds:.2f} s",
        f"  at the input       {answer.at_input:.10g}",
        f"  at the baseline    {answer.at_baseline:.10g}",
        f"  difference         {change:.10g}",
        f"  attributions sum   {answer.total:.10g}",
        f"  convergence delta  {answer.delta:.2g}",
    ]
    if answer.report.status != "exact":
        return rows
    if ambiguous := answer.report.ambiguous:
        times = "once" if ambiguous == 1 else f"{ambiguous:,} times"
        effect = f"{answer.subgradient_range:.4g} of attribution" if answer.subgradient_range else "nothing"
        rows.append(f"  {times} a unit stays on a kink along a piece: the choice of its subgradient changes {effect}")
    else:
        rows.append("  no unit stays on a kink: no attribution depends on the choice of a subgradient")
    return rows


def _describe_report(report: AttributionReport) -> str:
    if report.error is None:
        return count_noun(report.pieces, "piece")
    gradients = count_noun(report.gradients, "gradient")
    return f"{report.status}, relative error {float(report.error.max()):.0e}, {gradients}"


def _build_table(answer: AttributionAnswer) -> Table:
    """Build the table of the largest attributions of all inputs."""
    import torch
    from rich.table import Table

    flat = torch.cat([a.reshape(-1) for a in answer.attributions])
    order = flat.abs().argsort(descending=True, stable=True)[:MAX_SHOWN_ATTRIBUTIONS].tolist()
    table = Table(title="largest attributions", title_justify="left")
    for name in ("index", "input", "baseline", "attribution"):
        table.add_column(name, justify="left" if name == "index" else "right")
    ends, starts = (torch.cat([t.reshape(-1) for t in side]) for side in (answer.lines.ends, answer.lines.starts))
    for i in order:
        table.add_row(_format_index(answer, i), f"{ends[i]:.6g}", f"{starts[i]:.6g}", f"{flat[i]:+.6g}")
    if rest := len(flat) - len(order):
        table.add_row(f"{rest:,} others", "", "", f"{flat.sum() - flat[order].sum():+.6g}")
    return table


def _format_index(answer: AttributionAnswer, flat: int) -> str:
    """Format a flat position among all inputs, such as x[1] of input 0."""
    from ..plot.style import format_index

    for number, part in enumerate(answer.attributions):
        if flat < part.numel():
            name = format_index(flat, tuple(part.shape))
            return name if len(answer.attributions) == 1 else f"{name} of input {number}"
        flat -= part.numel()
    raise IndexError(flat)


def _build_document(file: str, answer: AttributionAnswer, several: bool) -> dict[str, Any]:
    attributions = [a.tolist() for a in answer.attributions]
    return {
        "file": file,
        "target": answer.target,
        "output": answer.output,
        "tail": answer.tail,
        "at_input": answer.at_input,
        "at_baseline": answer.at_baseline,
        "sum": answer.total,
        "delta": answer.delta,
        "status": answer.report.status,
        "error": None if answer.report.error is None else float(answer.report.error.max()),
        "gradients": answer.report.gradients,
        "pieces": answer.report.pieces,
        "ambiguous": answer.report.ambiguous,
        "subgradient_range": answer.subgradient_range,
        "seconds": answer.seconds,
        "attributions": attributions if several else attributions[0],
    }
