"""``exactline restrict``: a network in a file on the line between two points."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ArgumentError, LineError
from .bars import moving
from .output import PICTURES, SHAPE, dims, ready, remark, say_json, say_rich

if TYPE_CHECKING:
    from ..network import Network
    from ..restriction import Restriction

ROWS = 20  # of the table of nodes
SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
POINT = "20,30 or a file: .npy, .npz:key, .csv, .csv:row, .png, .jpg; once for each input of the network."


def restrict(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A network: .onnx, .nnet, .eran, .tf, .pyt.")],
    start: Annotated[list[str], typer.Option("--from", metavar="POINT", help=f"Where the line begins: {POINT}")],
    end: Annotated[list[str], typer.Option("--to", metavar="POINT", help="Where it ends, in the same ways.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the table.")] = False,
    values: Annotated[bool, typer.Option(help="Keep the network's values at the breaks.")] = True,
    out: Annotated[Path | None, typer.Option(help="Save the answer as .safetensors.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the outputs along the line: .png, .pdf, .svg.")] = None,
    normalize: Annotated[bool, typer.Option(help="Follow what a .nnet says of its inputs and outputs.")] = True,
    shape: Annotated[str | None, typer.Option(metavar="12,12,3", help=SHAPE)] = None,
    max_breaks: Annotated[int | None, typer.Option(help="Stop after so many breaks.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    memory: Annotated[str | None, typer.Option(help="Bound the working set: bytes, or 512M, 2G.")] = None,
    until: Annotated[str | None, typer.Option(metavar="LAYER", help="Look at the output of this layer.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda.")] = None,
    progress: Annotated[bool, typer.Option(help="A bar on standard error, where that is a terminal.")] = True,
) -> None:
    """Every break of a network on the line between two points, and its values there.

    Example: exactline restrict loan.nnet --from 20,30 --to 30,50
    """
    _ready(out, plot, values)
    limit = None if memory is None else byte_count(memory)
    from .. import restrict as answer
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
            progress=False if move is None else lambda share, count: move(share, breaks=count),
        )
    _keep(line, out, plot)
    if as_json:
        say_json(_document(str(file), line))
    else:
        from ..view.table import births_table

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
    from ..points import read_point

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
        from ..view.plot import plot_line, save_picture

        save_picture(plot_line(line), plot)
        remark(f"drawn to {plot}")


def _document(file: str, line: Restriction) -> dict[str, Any]:
    kept = None if line.kept is None else [v.tolist() for v in line.kept]
    return {
        "file": file,
        "pieces": len(line),
        "complete": line.complete,
        "stopped": line.stopped,
        "reached": line.reached,
        "unresolved": line.unresolved,
        "error": line.error if isfinite(line.error) else None,
        "seconds": line.seconds,
        "units": line.units,
        "alphas": line.alphas.tolist(),
        "births": [b and {"node": b.node, "unit": b.unit, "count": b.count} for b in line.born],
        **({} if kept is None else {"values": kept if line.several_outputs else kept[0]}),
    }
