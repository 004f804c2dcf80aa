"""``exactline info``: what a network file contains, and whether the network can be restricted exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.exit import wrap_unexpected_errors
from ..console.inputs import parse_shapes
from ..console.options import Normalize, Shape
from ..console.output import print_json, print_rich, print_text
from ..errors import ExactlineError, FileError, UnsupportedError
from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ..formats.onnx.inputs import PointShapes
    from ..network import Network
    from ..network.listing import LayerSummary

PLAIN_SUFFIXES = (".onnx", ".nnet", ".eran", ".tf", ".pyt")
FILE_SUFFIXES = (*PLAIN_SUFFIXES, ".nnet.gz", ".eran.gz", ".tf.gz", ".pyt.gz")


@dataclass(frozen=True)
class FileSummary:
    """One file: its network, or the error that it could not be loaded with."""

    file: str
    network: Network | None
    error: ExactlineError | None

    @property
    def verdict(self) -> str:
        """Whether the network can be restricted exactly."""
        if self.error is None:
            return "can be restricted exactly"
        return f"cannot: {self.error.problem[:1].lower()}{self.error.problem[1:]}"


def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Network files, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list with an entry for each file.")] = False,
    normalize: Normalize = True,
    shape: Shape = None,
) -> None:
    """Show the layers of a network, or one row for each of several files.

    The exit status is 0 if every file can be restricted exactly, else that of the first that cannot: 3 for operators
    that are not piecewise linear, 6 for damaged files.

    Example: exactline info acas.nnet
    """
    paths = [file for path in files for file in _find_files(path)]
    is_single = len(files) == 1 and not files[0].is_dir()
    summaries = [_summarize_file(path, normalize, parse_shapes(shape)) for path in paths]
    if as_json:
        print_json([_build_entry(summary) for summary in summaries])
    elif is_single:
        _print_file(summaries[0])
    else:
        print_rich(_build_file_table(summaries))
    if errors := [summary.error for summary in summaries if summary.error is not None]:
        raise typer.Exit(errors[0].exit_status)


def _find_files(path: Path) -> list[Path]:
    """Return the file itself, or all networks in a folder and its subfolders."""
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.rglob("*") if f.name.lower().endswith(FILE_SUFFIXES) and f.is_file())
    if not files:
        raise FileError(
            "The folder contains no networks.", where=str(path), hint=f"Their names end in {', '.join(PLAIN_SUFFIXES)}."
        )
    return files


def _summarize_file(path: Path, normalize: bool, shape: PointShapes | None) -> FileSummary:
    from ..formats import load_network

    try:
        with wrap_unexpected_errors():
            return FileSummary(str(path), load_network(path, normalize=normalize, shape=shape), None)
    except ExactlineError as error:
        return FileSummary(str(path), None, error)


def _print_file(summary: FileSummary) -> None:
    """Print all about one file; errors other than unsupported operators are raised."""
    if isinstance(summary.error, UnsupportedError):
        nodes = (f"  not supported: {node}" for node in summary.error.nodes)
        print_text("\n".join([summary.file, *nodes, summary.verdict]))
    elif summary.network is None:
        raise summary.error or ExactlineError("The file was not loaded.", where=summary.file)
    else:
        from ..network.listing import count_weights, format_shape, list_layers

        network = summary.network
        shapes = f"{format_shape(network.input_shape)} -> {format_shape(network.output_shape)}"
        weights = count_noun(count_weights(network), "weight")
        head = f"{summary.file}: {shapes}, {_format_units(network)}, {weights}"
        print_rich(head, _build_layer_table(list_layers(network)), *network.notes, summary.verdict)


def _build_layer_table(layers: list[LayerSummary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..network.listing import format_shape

    table = Table()
    for name in ("layer", "operator", "kind", "output", "units"):
        table.add_column(name, justify="right" if name == "units" else "left")
    for layer in layers:
        units = f"{layer.units:,}" if layer.units else ""
        table.add_row(Text(layer.name), layer.operator, layer.kind, format_shape(layer.shape), units)
    return table


def _build_file_table(summaries: list[FileSummary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..network.listing import format_shape

    table = Table()
    for name in ("file", "in", "out", "nodes", "units", "verdict"):
        table.add_column(name, justify="right" if name in ("nodes", "units") else "left")
    for summary in summaries:
        cells = ["", "", "", ""]
        if (network := summary.network) is not None:
            shapes = format_shape(network.input_shape), format_shape(network.output_shape)
            cells = [*shapes, f"{len(network.nodes):,}", f"{sum(network.units.values()):,}"]
        table.add_row(Text(summary.file), *cells, Text(summary.verdict))
    return table


def _build_entry(summary: FileSummary) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": summary.file, "exact": summary.error is None, "verdict": summary.verdict}
    if (network := summary.network) is not None:
        from ..network.listing import count_weights, list_layers

        entry |= {
            "input_shape": network.input_shape,
            "output_shape": network.output_shape,
            "units": network.units,
            "weights": count_weights(network),
            "layers": [asdict(layer) for layer in list_layers(network)],
            "notes": network.notes,
        }
    if (error := summary.error) is not None:
        entry["error"] = {"code": error.code, "problem": error.problem, "where": error.where, "hint": error.hint}
        entry["unsupported"] = error.nodes if isinstance(error, UnsupportedError) else ()
    return entry


def _format_units(network: Network) -> str:
    if not network.units:
        return "no units"
    return " and ".join(f"{count:,} {name}" for name, count in network.units.items()) + " units"
