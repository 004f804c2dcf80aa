"""``exactline attribute``: how much each input speaks for an output, by exact integrated gradients."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import POINT, AsJson, Device, File, Memory, Normalize, Shape
from ..console.output import PICTURES, dims, ready, remark, say_json, say_rich
from ..errors import ArgumentError, NumberError
from ..humanize import count_noun
from .restrict import byte_count, given_point

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..lines import Lines
    from ..network import Network

ROWS = 10  # of the table of attributions


@dataclass(frozen=True)
class Answer:
    """Attributions of one output at one point, and how sure one can be of them."""

    of: str  # what they are of, in words
    target: int
    tail: str | None  # the smooth tail they go through
    lines: Lines  # one: from the baseline to the input
    attributions: tuple[Tensor, ...]  # (*in) each
    at_input: float
    at_baseline: float
    pieces: int
    stuck: int  # pairs of a piece and a unit whose gradient there is a convention
    swing: float  # how much attribution changes hands if each of those is taken on its other side
    seconds: float

    @property
    def total(self) -> float:
        """What the attributions add up to."""
        return float(sum(a.sum() for a in self.attributions))

    @property
    def delta(self) -> float:
        """How far that is from F(x) - F(baseline)."""
        return self.total - (self.at_input - self.at_baseline)


def attribute(
    file: File,
    given: Annotated[list[str], typer.Option("--input", metavar="POINT", help=f"The point to explain: {POINT}")],
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINT", help="What to compare it with, in the same ways, or one number; zeros if left out."
        ),
    ] = None,
    target: Annotated[
        int | None, typer.Option(metavar="K", help="Which output, from 0; the largest at the input if left out.")
    ] = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Save the attributions as .npz.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the attributions: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    tail: Annotated[bool, typer.Option(help="Explain the probability where the network ends in a softmax.")] = True,
    memory: Memory = None,
    device: Device = None,
    progress: Annotated[bool, typer.Option(help="A clock on standard error, where that is a terminal.")] = True,
) -> None:
    """How much each input speaks for an output: integrated gradients without samples, exact but for rounding.

    Example: exactline attribute loan.nnet --input 20,30 --baseline 30,50 --target 0
    """
    ready({"--out": (out, (".npz",)), "--plot": (plot, PICTURES)})
    limit = None if memory is None else byte_count(memory)
    from ..formats import load

    network = load(file, normalize=normalize, shape=dims(shape))
    lines = _line(network, given, baseline or ["0"])
    with _clock(progress and sys.stderr.isatty()):
        answer = _answer(network, lines, target, tail, limit, device)
    if out is not None:
        _save(answer, out)
        remark(f"saved to {out}")
    if plot is not None:
        _draw(answer, plot)
        remark(f"drawn to {plot}{', the first input only' if len(answer.attributions) > 1 else ''}")
    if as_json:
        say_json(_document(str(file), answer, network.several_inputs))
    else:
        say_rich(*_report(answer), _table(answer))


def _line(network: Network, given: list[str], baseline: list[str]) -> Lines:
    """The line from the baseline to the input; a single number is a baseline for every coordinate."""
    import numpy as np

    from ..formats.points import is_number, read_point
    from ..lines import as_lines

    end = given_point(given, network, "--input")
    if len(baseline) == 1 and is_number(baseline[0]):
        (number,) = read_point(baseline[0], (1,), "--baseline")  # refuses NaN
        ends = end if isinstance(end, tuple) else (end,)
        filled = tuple(np.full_like(e, number) for e in ends)
        start = filled if isinstance(end, tuple) else filled[0]
    else:
        start = given_point(baseline, network, "--baseline")
    return as_lines(start, end, ("--baseline", "--input"), many=False)


def _answer(
    network: Network, lines: Lines, target: int | None, tail: bool, memory: int | None, device: str | None
) -> Answer:
    import torch

    from ..attr import path_integral
    from ..fp_context import full_precision
    from ..network import as_network
    from ..options import select_device

    began = perf_counter()
    moved = as_network(network, [], device=select_device(network, device))
    line = lines.to(moved.device, moved.dtype)
    made = network.tails[0] if tail else None
    with full_precision():
        values = [_outputs(moved, side, made is not None) for side in (line.ends, line.starts)]
    place = _target(values[0], target)
    found = path_integral(moved, line, torch.tensor([place]), tail=made is not None, memory=memory)
    steps = [(e - s)[0] for s, e in zip(lines.starts, lines.ends, strict=True)]
    shares = tuple(g[0].cpu() * step for g, step in zip(found.gradients, steps, strict=True))
    swings = [s[0].cpu() * step.abs() for s, step in zip(found.swing or (), steps, strict=found.swing is not None)]
    at_input, at_baseline = (float(v[place]) for v in values)
    answer = Answer(
        f"output {place}" if made is None else f"{made.name} of output {place}",
        place,
        made and made.name,
        lines,
        shares,
        at_input,
        at_baseline,
        found.pieces,
        found.stuck,
        float(sum(s.sum() for s in swings)),
        perf_counter() - began,
    )
    if not all(bool(torch.isfinite(s).all()) for s in shares) or not torch.tensor(answer.delta).isfinite():
        raise NumberError("The attributions overflow.", where=answer.of, hint="Give an input nearer to the baseline.")
    return answer


def _outputs(network: Network, points: tuple[Tensor, ...], tail: bool) -> Tensor:  # (outputs,)
    """The first output at one point, flat."""
    found = network(*points, tail=tail)
    return (found[0] if isinstance(found, tuple) else found)[0].reshape(-1)


def _target(values: Tensor, target: int | None) -> int:
    count = len(values)
    if not count or (target is not None and not 0 <= target < count):
        raise ArgumentError(
            f"There is no output {target or 0}: the network has {count_noun(count, 'output')}.",
            where="--target",
            hint=f"Give a number from 0 to {count - 1}." if count else "Give a network with outputs.",
        )
    return int(values.argmax()) if target is None else target


@contextlib.contextmanager
def _clock(shown: bool) -> Generator[None]:
    """Something that moves while one waits: a single line has no parts to count."""
    if not shown:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("integrating gradients"), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        bar.add_task("", total=None)
        yield


def _save(answer: Answer, path: Path) -> None:
    """Arrays as a .npz, whole or not at all; with several inputs their names end in .0, .1 ..."""
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


def _draw(answer: Answer, path: Path) -> None:
    """The first input's attributions: a picture has one input."""
    from ..plot.heat import plot_attribution
    from ..plot.line import save_picture

    save_picture(
        plot_attribution(answer.attributions[0], answer.lines.ends[0][0], title=f"attribution to {answer.of}"), path
    )


def _report(answer: Answer) -> list[str]:
    change = answer.at_input - answer.at_baseline
    rows = [
        f"{answer.of}: {count_noun(answer.pieces, 'piece')}, {answer.seconds:.2f} s",
        f"  at the input       {answer.at_input:.10g}",
        f"  at the baseline    {answer.at_baseline:.10g}",
        f"  difference         {change:.10g}",
        f"  attributions sum   {answer.total:.10g}",
        f"  convergence delta  {answer.delta:.2g}",
    ]
    if answer.stuck:
        hangs = f"{answer.swing:.4g} of attribution hangs" if answer.swing else "nothing hangs"
        times = "once" if answer.stuck == 1 else f"{answer.stuck:,} times"
        rows.append(f"  {times} a unit stays on a kink along a piece, its gradient a convention: {hangs} on it")
    else:
        rows.append("  no unit stays on a kink: no gradient is a convention")
    return rows


def _table(answer: Answer) -> Table:
    """The largest attributions, of all inputs together."""
    import torch
    from rich.table import Table

    flat = torch.cat([a.reshape(-1) for a in answer.attributions])
    order = flat.abs().argsort(descending=True, stable=True)[:ROWS].tolist()
    table = Table(title="largest attributions", title_justify="left")
    for name in ("place", "input", "baseline", "attribution"):
        table.add_column(name, justify="left" if name == "place" else "right")
    ends, starts = (torch.cat([t.reshape(-1) for t in side]) for side in (answer.lines.ends, answer.lines.starts))
    for i in order:
        table.add_row(_name(answer, i), f"{ends[i]:.6g}", f"{starts[i]:.6g}", f"{flat[i]:+.6g}")
    if rest := len(flat) - len(order):
        table.add_row(f"{rest:,} others", "", "", f"{flat.sum() - flat[order].sum():+.6g}")
    return table


def _name(answer: Answer, flat: int) -> str:
    """A place among all inputs together, as people write it."""
    from ..plot.heat import place_name

    for number, part in enumerate(answer.attributions):
        if flat < part.numel():
            name = place_name(flat, tuple(part.shape))
            return name if len(answer.attributions) == 1 else f"{name} of input {number}"
        flat -= part.numel()
    raise IndexError(flat)


def _document(file: str, answer: Answer, several: bool) -> dict[str, Any]:
    shares = [a.tolist() for a in answer.attributions]
    return {
        "file": file,
        "target": answer.target,
        "tail": answer.tail,
        "at_input": answer.at_input,
        "at_baseline": answer.at_baseline,
        "sum": answer.total,
        "delta": answer.delta,
        "pieces": answer.pieces,
        "stuck": answer.stuck,
        "swing": answer.swing,
        "seconds": answer.seconds,
        "attributions": shares if several else shares[0],
    }
