"""What stands above the commands: their list in whole sentences, ``--debug`` anywhere, usage errors as ours."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ArgumentError, ExactlineError

NAME = "exactline"
DEBUG = "--debug"
WIDTH = 100  # columns of a help text, where the terminal has so many

# The errors of the command line's own parser: newer typers bring one of their own, so it is found by descent.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[1]


@dataclass
class Asked:
    """What was asked of the program as a whole."""

    debug: bool = False


class Commands(TyperGroup):
    """A group that lists its commands with their first sentences, not with as much as fits on a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Root(Commands):
    """All commands; ``--debug`` may stand behind the command too, where people add it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        if DEBUG in args[:end]:
            args = [DEBUG, *(word for word in args[:end] if word != DEBUG), *args[end:]]
        return super().parse_args(ctx, args)


def options(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show where in the code an error arose, as EXACTLINE_DEBUG=1 does.")
    ] = False,
) -> None:
    """What a piecewise-linear neural network does on every point of a line, exactly."""
    if isinstance(ctx.obj, Asked):
        ctx.obj.debug = ctx.obj.debug or debug


def asked() -> Asked:
    """What the environment asks for."""
    return Asked(debug=os.environ.get("EXACTLINE_DEBUG", "") not in ("", "0"))


def as_ours(problem: Any) -> ExactlineError:
    """A usage error in three lines, as all errors."""
    command = NAME if problem.ctx is None else problem.ctx.command_path
    return ArgumentError(" ".join(problem.format_message().split()), where=command, hint=f"{command} --help")
