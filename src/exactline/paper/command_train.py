"""``exactline train``: the digits networks that ship with exactline, trained again in one of three ways."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import AsJson, Bar
from ..console.output import remark, say_json, say_rich, writable
from ..console.root import Commands
from ..errors import FileError
from ..humanize import count_noun
from .command_acas import bar, made

if TYPE_CHECKING:
    from rich.table import Table

    from ..zoo.robust import RobustNetwork
    from .training import Trained

ENDINGS = (".onnx", ".eran", ".safetensors")

train = typer.Typer(
    name="train",
    cls=Commands,
    help="Train small networks here, the same for the same seed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@train.callback()
def _several() -> None:
    """Train small networks here, the same for the same seed."""


@train.command()
def digits(
    method: Annotated[
        str, typer.Option(metavar="NAME", help="normal, pgd (against attacks) or diffai (on interval bounds).")
    ] = "normal",
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="Times through the 1,347 digits.", show_default="60; pgd 40")
    ] = None,
    radius: Annotated[float, typer.Option(help="How far a pixel may be changed, of its range 0 to 1.")] = 0.1,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Save it: .onnx, .eran or .safetensors.")] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save it before training and after each epoch, as .onnx.")
    ] = None,
    as_json: AsJson = False,
    progress: Bar = True,
) -> None:
    """Train a small convolutional network on 8x8 digits, and measure how robust it is on 450 it never saw.

    Example: exactline train digits --method diffai --seed 1 --out diffai.onnx

    Example: exactline train digits --checkpoints epochs
    """
    if out is not None and writable(out, "--out").suffix not in ENDINGS:
        raise FileError(
            f"Files are {', '.join(ENDINGS)} here.", where=f"--out {out}", hint="Name the file digits.onnx."
        )
    from .training import train as trained

    with bar(progress and sys.stderr.isatty()) as report:
        each = None if checkpoints is None else _keeper(made(checkpoints))
        found = trained(method, seed=seed, epochs=epochs, radius=radius, each=each, progress=report)
    if out is not None:
        _save(found.network, out, found.facts)
        remark(f"saved to {out}")
    if checkpoints is not None:
        remark(f"{count_noun(found.epochs + 1, 'network')} in {checkpoints}, {name(0)} to {name(found.epochs)}")
    if as_json:
        say_json(found.facts | {"seconds": found.seconds, "losses": list(found.losses)})
    else:
        say_rich(_table(found))


def name(epoch: int) -> str:
    """Of the file after so many epochs; names sort as epochs do."""
    return f"epoch_{epoch:03d}.onnx"


def _keeper(folder: Path) -> Callable[[int, RobustNetwork], None]:
    def keep(epoch: int, network: RobustNetwork) -> None:
        _save(network, folder / name(epoch), {})

    return keep


def _save(network: RobustNetwork, path: Path, facts: dict[str, Any]) -> None:
    if path.suffix == ".safetensors":
        from ..results.storage import write_arrays

        write_arrays(path, dict(network.state_dict()), facts, "exactline.digits.1")
        return
    import torch

    from ..network import as_network

    as_network(network, [torch.zeros(1, 8, 8)]).save(path)


def _table(found: Trained) -> Table:
    from rich.table import Table

    facts = found.facts
    table = Table(title=f"{found.method}, seed {found.seed}, {count_noun(found.epochs, 'epoch')}", title_justify="left")
    table.add_column(f"of {facts['test images']} test digits")
    table.add_column("share", justify="right")
    within = f"within {facts['radius']:g} of each pixel"
    rows = {
        "clean accuracy": "read correctly",
        "pgd accuracy": f"withstand PGD {within}",
        "certified accuracy": f"certified by interval bounds {within}",
    }
    for key, words in rows.items():
        table.add_row(words, f"{facts[key]:.2%}")
    table.add_row("seconds", f"{found.seconds:.1f}")
    return table
