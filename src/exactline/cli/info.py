"""``exactline info``: what is in a file, and whether it can be restricted exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.exit import dressed
from ..console.options import Normalize, Shape
from ..console.output import dims, say, say_json, say_rich
from ..errors import ExactlineError, FileError, UnsupportedError
from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ..network import Network
    from ..network.listing import Layer

ENDINGS = (".onnx", ".nnet", ".eran", ".tf", ".pyt", ".nnet.gz", ".eran.gz", ".tf.gz", ".pyt.gz")


@dataclass(frozen=True)
class Facts:
    """What one file holds."""

    file: str
    network: Network | None
    error: ExactlineError | None

    @property
    def verdict(self) -> str:
        """Whether the network can be restricted exactly, in words."""
        return "can be restricted exactly" if self.error is None else f"cannot: {_inner(self.error.problem)}"


def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Network files, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list with an entry for each file.")] = False,
    normalize: Normalize = True,
    shape: Shape = None,
) -> None:
    """Show the layers of a network, or one row for each of many files.

    The exit status is 0 where every file can be restricted exactly, else that of the first that cannot: 3 for
    operators that are not piecewise linear, 6 for damaged files.

    Example: exactline info acas.nnet
    """
    found = [f for given in files for f in _files(given)]
    single = len(files) == 1 and not files[0].is_dir()
    every = [_facts(file, normalize, dims(shape)) for file in found]
    if as_json:
        say_json([_entry(facts) for facts in every])
    elif single:
        _show(every[0])
    else:
        say_rich(_summary(every))
    if failed := [f.error for f in every if f.error is not None]:
        raise typer.Exit(failed[0].exit_status)


def _files(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    found = sorted(f for f in given.rglob("*") if f.name.lower().endswith(ENDINGS) and f.is_file())
    if not found:
        raise FileError(
            "The folder holds no networks.", where=str(given), hint=f"Names end in {', '.join(ENDINGS[:5])}."
        )
    return found


def _facts(file: Path, normalize: bool, shape: tuple[int, ...] | None) -> Facts:
    from ..formats import load

    try:
        with dressed():
            return Facts(str(file), load(file, normalize=normalize, shape=shape), None)
    except ExactlineError as error:
        return Facts(str(file), None, error)


def _show(facts: Facts) -> None:
    """All about one file; errors other than refused operators go the way of all errors."""
    if isinstance(facts.error, UnsupportedError):
        say("\n".join([facts.file, *(f"  not supported: {node}" for node in facts.error.nodes), facts.verdict]))
    elif facts.network is None:
        raise facts.error or ExactlineError("Nothing was read.", where=facts.file)
    else:
        from ..network.listing import layers, shaped, weights

        network = facts.network
        held = count_noun(weights(network), "weight")
        head = (
            f"{facts.file}: {shaped(network.input_shape)} -> {shaped(network.output_shape)}, {_units(network)}, {held}"
        )
        say_rich(head, _table(layers(network)), *network.notes, facts.verdict)


def _table(rows: list[Layer]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..network.listing import shaped

    table = Table()
    for name in ("layer", "operator", "kind", "output", "units"):
        table.add_column(name, justify="right" if name == "units" else "left")
    for row in rows:
        units = f"{row.units:,}" if row.units else ""
        table.add_row(Text(row.name), row.operator, row.kind, shaped(row.shape), units)
    return table


def _summary(every: list[Facts]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..network.listing import shaped

    table = Table()
    for name in ("file", "in", "out", "nodes", "units", "verdict"):
        table.add_column(name, justify="right" if name in ("nodes", "units") else "left")
    for facts in every:
        cells = ["", "", "", ""]
        if (network := facts.network) is not None:
            shapes = shaped(network.input_shape), shaped(network.output_shape)
            cells = [*shapes, f"{len(network.nodes):,}", f"{sum(network.units.values()):,}"]
        table.add_row(Text(facts.file), *cells, Text(facts.verdict))
    return table


def _entry(facts: Facts) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": facts.file, "exact": facts.error is None, "verdict": facts.verdict}
    if (network := facts.network) is not None:
        from ..network.listing import layers, weights

        entry |= {
            "input_shape": network.input_shape,
            "output_shape": network.output_shape,
            "units": network.units,
            "weights": weights(network),
            "layers": [asdict(layer) for layer in layers(network)],
            "notes": network.notes,
        }
    if (error := facts.error) is not None:
        entry["error"] = {"code": error.code, "problem": error.problem, "where": error.where, "hint": error.hint}
        entry["unsupported"] = error.nodes if isinstance(error, UnsupportedError) else ()
    return entry


def _units(network: Network) -> str:
    return (
        " and ".join(f"{count:,} {name}" for name, count in network.units.items()) + " units"
        if network.units
        else "no units"
    )


def _inner(problem: str) -> str:
    """A sentence as the rest of one."""
    return problem[:1].lower() + problem[1:]
