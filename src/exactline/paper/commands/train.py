"""``exactline train digits``: the bundled digits networks, trained again in one of three ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console.options import AsJson, ShowProgress
from ...console.output import make_folder, print_json, print_note, print_rich, require_writable
from ...console.progress_bar import show_study_progress
from ...errors import FileError
from ...humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ...zoo.robust import RobustNetwork
    from ..training import TrainingResult

NETWORK_SUFFIXES = (".onnx", ".eran", ".safetensors")


def digits(
    method: Annotated[
        str, typer.Option(metavar="NAME", help="normal, pgd (against attacks) or diffai (on interval bounds).")
    ] = "normal",
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="Passes through the 1,347 training digits.", show_default="60; pgd 40")
    ] = None,
    radius: Annotated[float, typer.Option(help="By how much a pixel, from 0 to 1, may change.")] = 0.1,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the network: .onnx, .eran or .safetensors.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save the network before training and after each epoch, as .onnx."),
    ] = None,
    as_json: AsJson = False,
    progress: ShowProgress = True,
) -> None:
    """Train a small convolutional network on 8x8 digits, and measure how robust it is on 450 test digits.

    Example: exactline train digits --method diffai --seed 1 --out diffai.onnx

    Example: exactline train digits --checkpoints epochs
    """
    if out is not None and require_writable(out, "--out").suffix not in NETWORK_SUFFIXES:
        raise FileError(
            f"The file must end in {', '.join(NETWORK_SUFFIXES[:-1])} or {NETWORK_SUFFIXES[-1]}.",
            where=f"--out {out}",
            hint="Choose a name such as digits.onnx.",
        )
    from ..training import train

    with show_study_progress(progress) as report:
        on_epoch = None if checkpoints is None else _make_checkpoint_writer(make_folder(checkpoints))
        result = train(method, seed=seed, epochs=epochs, radius=radius, on_epoch=on_epoch, progress=report)
    if out is not None:
        _save_network(result.network, out, result.facts)
        print_note(f"saved to {out}")
    if checkpoints is not None:
        first, last = format_checkpoint_name(0), format_checkpoint_name(result.epochs)
        print_note(f"{count_noun(result.epochs + 1, 'network')} in {checkpoints}, {first} to {last}")
    if as_json:
        print_json(result.facts | {"seconds": result.seconds, "losses": list(result.losses)})
    else:
        print_rich(_build_table(result))


def format_checkpoint_name(epoch: int) -> str:
    """Return the file name of a checkpoint; names sort in the order of epochs."""
    return f"epoch_{epoch:03d}.onnx"


def _make_checkpoint_writer(folder: Path) -> Callable[[int, RobustNetwork], None]:
    def write(epoch: int, network: RobustNetwork) -> None:
        _save_network(network, folder / format_checkpoint_name(epoch), {})

    return write


def _save_network(network: RobustNetwork, path: Path, facts: dict[str, Any]) -> None:
    if path.suffix == ".safetensors":
        from ...results.storage import write_arrays

        write_arrays(path, dict(network.state_dict()), facts, "exactline.digits.1")
        return
    import torch

    from ...network import as_network

    as_network(network, [torch.zeros(1, 8, 8)]).save(path)


def _build_table(result: TrainingResult) -> Table:
    from rich.table import Table

    facts = result.facts
    title = f"{result.method}, seed {result.seed}, {count_noun(result.epochs, 'epoch')}"
    table = Table(title=title, title_justify="left")
    table.add_column(f"of {facts['test images']} test digits")
    table.add_column("share", justify="right")
    within = f"within {facts['radius']:g} of each pixel"
    rows = {
        "clean accuracy": "classified correctly",
        "pgd accuracy": f"withstand PGD {within}",
        "certified accuracy": f"certified by interval bounds {within}",
    }
    for key, text in rows.items():
        table.add_row(text, f"{facts[key]:.2%}")
    table.add_row("seconds", f"{result.seconds:.1f}")
    return table
