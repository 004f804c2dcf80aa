"""The command ``exactline``: thin doors onto the library's functions, one file for each command."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from ..console.exit import dressed, flushed, heard
from ..console.output import say, say_json
from ..console.root import NAME, WIDTH, Asked, Root, UsageProblem, as_ours, asked, options
from ..errors import ArgumentError, ExactlineError
from ..paper.command_acas import study
from ..paper.command_density import Greedy, density
from ..paper.command_tables import PAPER
from ..paper.command_train import train
from .attribute import attribute
from .convert import convert
from .decide import decide
from .demo import demo
from .doctor import doctor
from .falsify import falsify
from .info import info
from .plane import plane
from .report import report
from .restrict import restrict
from .scale import scale
from .serve import serve

app = typer.Typer(
    name=NAME,
    cls=Root,
    callback=options,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would take as long to import as all the rest
    context_settings={"max_content_width": WIDTH},
)


def main() -> None:
    """Run the command; an error becomes its three lines and its exit status, with --debug after its traceback."""
    heard()
    wish = asked()
    try:
        with flushed(), dressed():
            status = _run(wish)
    except ExactlineError as error:
        told = traceback.format_exc() if wish.debug else f"{error}\n"  # which ends with the same lines
        sys.stderr.write(told)
        status = error.exit_status
    raise SystemExit(status)


def _run(wish: Asked) -> int:
    try:
        status = app(prog_name=NAME, standalone_mode=False, obj=wish)
    except UsageProblem as problem:
        if type(problem).__name__ != "NoArgsIsHelpError":
            raise as_ours(problem) from problem
        say(str(problem))
        return ArgumentError.exit_status
    return status if isinstance(status, int) else 0


@app.command()
def version(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the bare number.")] = False,
) -> None:
    """Print the version."""
    from importlib.metadata import version

    say_json({"version": version(NAME)}) if as_json else say(version(NAME))


for command in (info, convert, restrict, decide, attribute, plane, falsify, report, serve, demo, doctor):
    app.command()(command)
study.command(cls=Greedy)(density)
for name, experiment in PAPER.items():
    study.command(name)(experiment)
app.add_typer(scale)
app.add_typer(study)
app.add_typer(train)
