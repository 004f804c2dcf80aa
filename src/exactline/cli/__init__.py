"""The command ``exactline``: one module per command, each a thin layer over the library."""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Annotated

import typer

from ..console.exit import exit_cleanly, reopen_closed_streams, wrap_unexpected_errors
from ..console.output import print_json, print_text
from ..console.root import (
    HELP_COLUMNS,
    PROGRAM,
    GlobalOptions,
    RootGroup,
    UsageError,
    apply_global_options,
    convert_usage_error,
    read_environment,
)
from ..errors import ArgumentError, ExactlineError
from ..paper.commands.groups import study_app, train_app
from .approximate import approximate
from .attribute import attribute
from .compare import compare
from .convert import convert
from .decide import decide
from .demo import demo
from .doctor import doctor
from .falsify import falsify
from .info import info
from .metrics import metrics
from .plane import plane
from .report import report
from .restrict import restrict
from .scale import scale
from .serve import ENVIRONMENT_PREFIX, serve
from .verify import check_proof, verify

GC_THRESHOLDS = (100_000, 20, 20)  # torch and matplotlib bring many objects that live as long as the command

app = typer.Typer(
    name=PROGRAM,
    cls=RootGroup,
    callback=apply_global_options,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, because importing rich would double the start-up time
    context_settings={"max_content_width": HELP_COLUMNS},
)


def main() -> None:
    """Run the command; an error is printed as three lines, with --debug as a traceback, and gives its exit status."""
    gc.set_threshold(*GC_THRESHOLDS)
    reopen_closed_streams()
    options = read_environment()
    try:
        with exit_cleanly(), wrap_unexpected_errors():
            status = _run(options)
    except ExactlineError as error:
        # the last lines of the traceback are the three lines of the error
        sys.stderr.write(traceback.format_exc() if options.debug else f"{error}\n")
        status = error.exit_status
    raise SystemExit(status)


def _run(options: GlobalOptions) -> int:
    try:
        status = app(prog_name=PROGRAM, standalone_mode=False, obj=options)
    except UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            raise convert_usage_error(error) from error
        print_text(str(error))
        return ArgumentError.exit_status
    return status if isinstance(status, int) else 0


@app.command()
def version(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the bare number.")
    ] = False,
) -> None:
    """Print the version."""
    from importlib.metadata import version

    print_json({"version": version(PROGRAM)}) if as_json else print_text(version(PROGRAM))


for command in (info, convert, restrict, approximate, decide, metrics, compare, attribute, plane, falsify, verify):
    app.command()(command)
app.command("check-proof")(check_proof)
for command in (report, demo, doctor):
    app.command()(command)
app.command(context_settings={"auto_envvar_prefix": ENVIRONMENT_PREFIX})(serve)
for group in (scale, study_app, train_app):
    app.add_typer(group)
