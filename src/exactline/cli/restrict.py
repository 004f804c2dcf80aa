"""``exactline restrict``: a network in a file on the line between two points."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import AsJson, Bar, Device, End, File, MaxBreaks, Memory, Normalize, Saved, Seconds, Shape, Start
from ..console.output import PICTURES, dims, ready, remark, say_json, say_rich
from ..console.progress_bar import moving
from ..errors import ArgumentError, LineError

if TYPE_CHECKING:
    from ..network import Network
    from ..results.restriction import Restriction

ROWS = 20  # of the table of nodes
SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def restrict(
    file: File,
    start: Start,
    end: End,
    as_json: AsJson = False,
    values: Annotated[bool, typer.Option(help="Keep the network's values at the breaks.")] = True,
    out: Saved = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the outputs along the line: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: Seconds = None,
    memory: Memory = None,
    until: Annotated[str | None, typer.Option(metavar="LAYER", help="Look at the output of this layer.")] = None,
    device: Device = None,
    engine: Annotated[
        str, typer.Option(metavar="auto|dense|local", help="Values at every break, or changes where breaks reach.")
    ] = "auto",
    progress: Bar = True,
) -> None:
    """Every break of a network on the line between two points, and its values there.

    Example: exactline restrict loan.nnet --from 20,30 --to 30,50
    """
    _ready(out, plot, values)
    limit = None if memory is None else byte_count(memory)
    from ..api import restrict as answer
    from ..formats import load

    network = load(file, normalize=normalize, shape=dims(shape))
    ends = [given_point(texts, network, option) for texts, option in ((start, "--from"), (end, "--to"))]
    wanted = network if until is None else _until(network, until)
    told = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
    with moving(progress and sys.stderr.isatty(), "alpha", told, breaks=0) as move:
        line = answer(
            wanted,
            *ends,
            values=values,
            device=device,
            memory=limit,
            max_breaks=max_breaks,
            seconds=seconds,
            engine=engine,
            progress=False if move is None else lambda share, count: move(share, breaks=count),
        )
    _keep(line, out, plot)
    if as_json:
        say_json(_document(str(file), line))
    else:
        from ..plot.origins_table import births_table

        say_rich(str(line), births_table(line, most=ROWS))


def _ready(out: Path | None, plot: Path | None, values: bool) -> None:
    """Refuse what could not be written before the sweep, which may take long."""
    ready({"--out": (out, (".safetensors",)), "--plot": (plot, PICTURES)})
    if plot is not None and not values:
        raise ArgumentError("A picture needs the values.", where="--plot", hint="Leave out --no-values.")


def byte_count(text: str) -> int:
    found = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(i?b)?", text.strip().lower())
    if found is None:
        raise ArgumentError(f"{text!r} is not an amount of memory.", where="--memory", hint="Give bytes, 512M or 2G.")
    return int(found[1]) * SIZES[found[2]]


def given_point(texts: list[str], network: Network, option: str) -> Any:
    """One end of the line: an array, or a tuple of them where the network takes several inputs."""
    from ..formats.points import read_point

    shapes = [network.nodes[i].shape for i in network.inputs]
    if len(texts) != len(shapes):
        raise LineError(
            f"The network takes {len(shapes)} inputs, {option} is given {len(texts)} times.",
            where=option,
            hint=f"Give {option} once for each input, in their order.",
        )
    read = tuple(read_point(text, shape, option) for text, shape in zip(texts, shapes, strict=True))
    return read if network.several_inputs else read[0]


def _until(network: Network, name: str) -> Network:
    """The network that ends with the output of one of its layers."""
    from ..network.simplify import without_dead

    places = [i for i, node in enumerate(network.nodes) if node.name == name]
    if not places:
        names = ", ".join(node.name for node in network.nodes[-8:])
        raise ArgumentError(
            f"There is no layer {name!r}.", where="--until", hint=f"exactline info shows them; the last are {names}."
        )
    return without_dead(replace(network, outputs=(places[0],), tails=(None,), several_outputs=False, moved={}))


def _keep(line: Restriction, out: Path | None, plot: Path | None) -> None:
    if out is not None:
        line.save(out)
        remark(f"saved to {out}")
    if plot is not None:
        from ..plot.line import plot_line, save_picture

        save_picture(plot_line(line), plot)
        remark(f"drawn to {plot}")


def _document(file: str, line: Restriction) -> dict[str, Any]:
    kept = None if line.stored_values is None else [v.tolist() for v in line.stored_values]
    return {
        "file": file,
        "pieces": len(line),
        "complete": line.complete,
        "stopped": line.stopped,
        "reached": line.reached,
        "ambiguous": line.ambiguous,
        "error": line.error if isfinite(line.error) else None,
        "seconds": line.seconds,
        "engine": line.engine,
        "units": line.units,
        "alphas": line.alphas.tolist(),
        "origins": [b and {"node": b.node, "unit": b.unit, "count": b.count} for b in line.origins],
        **({} if kept is None else {"values": kept if line.several_outputs else kept[0]}),
    }
