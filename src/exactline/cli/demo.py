"""``exactline demo``: two small networks, printed and drawn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import MissingError
from .output import say_json
from .study import made

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor, nn

    from ..restriction import Restriction


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures; made if missing.")] = Path("demo-out"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text and tables.")] = False,
) -> None:
    """Restrict two small networks to a line each, print what comes out and draw it.

    Example: exactline demo --out demo-out
    """
    from rich.console import Console

    made(out)
    console, lines = Console(soft_wrap=True, quiet=as_json), list[dict[str, Any]]()
    for name, show in (("loan", _loan), ("digits", _digits)):
        line, path = show(console), out / f"{name}.png"
        problem = _draw(line, path)
        console.print(problem or f"drawn to {path}", end="\n\n", highlight=False, markup=False)
        drawn = None if problem else str(path)
        lines.append({"network": name, "pieces": len(line), "alphas": line.alphas.tolist(), "picture": drawn})
    if as_json:
        say_json({"out": str(out), "lines": lines})


def _loan(console: Console) -> Restriction:
    from .. import zoo
    from ..view.table import pieces_table

    console.print("[bold]Loan score and premium[/] of one applicant, from age 20 to 30 and income 30 to 50:")
    line = _timed(zoo.loan_network(), *zoo.loan_line())
    console.print(str(line), pieces_table(line), sep="\n", highlight=False)
    return line


def _digits(console: Console, start: int = 9, end: int = 6) -> Restriction:
    from .. import zoo
    from ..view.table import births_table

    images, labels = zoo.digits_images()
    network = zoo.digits_network()
    read = network(images[[start, end]]).argmax(1).tolist()
    ends = [f"a {labels[i]} (read as {seen})" for i, seen in zip((start, end), read, strict=True)]
    console.print(f"[bold]Digits[/]: from {ends[0]} to {ends[1]}:")
    line = _timed(network, images[start], images[end])
    console.print(str(line), births_table(line), sep="\n", highlight=False)
    console.print(f"The class changes {_changes(line)}.", highlight=False)
    return line


def _timed(network: nn.Module, start: Tensor, end: Tensor) -> Restriction:
    """The second of two calls: the first also captures the network, and the time shown should not hold that."""
    from .. import restrict

    restrict(network, start, end)
    return restrict(network, start, end)


def _changes(line: Restriction) -> str:
    """Between which neighbouring breaks the largest output changes."""
    scores = line.values[0] if isinstance(line.values, tuple) else line.values
    classes, alphas = scores.argmax(1).tolist(), line.alphas.tolist()
    found = [
        f"from {before} to {after} between alpha {left:.4f} and {right:.4f}"
        for (before, after), (left, right) in zip(pairwise(classes), pairwise(alphas), strict=True)
        if before != after
    ]
    return ", then ".join(found) or "nowhere"


def _draw(line: Restriction, path: Path) -> str:
    """Draw a line; why not, where that cannot be."""
    from ..view.plot import plot_line, save_picture

    try:
        axes = plot_line(line)
    except MissingError as error:
        return f"not drawn: {error.problem} Try: {error.hint}"
    save_picture(axes, path)
    return ""
