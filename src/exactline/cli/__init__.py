"""The command ``exactline``: thin doors onto the library's functions, one file for each command."""

from __future__ import annotations

import sys

import typer

from ..errors import ExactlineError
from .attribute import attribute
from .convert import convert
from .decide import decide
from .demo import demo
from .density import Greedy, density
from .ending import dressed, flushed
from .falsify import falsify
from .info import info
from .output import say
from .paper import PAPER
from .plane import plane
from .report import report
from .restrict import restrict
from .serve import serve
from .study import study
from .train import train

app = typer.Typer(
    name="exactline",
    help="What a piecewise-linear neural network does on every point of a line, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; an error of ours becomes its three lines and its exit status."""
    try:
        with flushed(), dressed():
            app()
    except ExactlineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_status) from None


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version

    say(version("exactline"))


for command in (info, convert, restrict, decide, attribute, plane, falsify, report, serve, demo):
    app.command()(command)
study.command(cls=Greedy)(density)
for name, experiment in PAPER.items():
    study.command(name)(experiment)
app.add_typer(study)
app.add_typer(train)
