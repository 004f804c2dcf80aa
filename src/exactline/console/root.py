"""The command above all commands: its help, ``--debug`` anywhere on the command line, and usage errors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ArgumentError, ExactlineError

PROGRAM = "exactline"
DEBUG_OPTION = "--debug"
DEBUG_VARIABLE = "EXACTLINE_DEBUG"
HELP_COLUMNS = 100  # the largest width of a help text

# The usage errors of the option parser: newer versions of typer bundle their own, so the class is found by inheritance.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


@dataclass
class GlobalOptions:
    """Options of the program as a whole."""

    debug: bool = False


class CommandGroup(TyperGroup):
    """A group whose help lists its commands with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class RootGroup(CommandGroup):
    """All commands; ``--debug`` may also stand after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        if DEBUG_OPTION in args[:end]:
            args = [DEBUG_OPTION, *(word for word in args[:end] if word != DEBUG_OPTION), *args[end:]]
        return super().parse_args(ctx, args)


def make_group(name: str, help_text: str) -> typer.Typer:
    """Create a group of commands, such as ``exactline study``."""
    group = typer.Typer(name=name, cls=CommandGroup, help=help_text, no_args_is_help=True, rich_markup_mode=None)
    group.callback(help=help_text)(lambda: None)  # a callback makes a group of a single command
    return group


def apply_global_options(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option(DEBUG_OPTION, help=f"Show the traceback of an error, as {DEBUG_VARIABLE}=1 does.")
    ] = False,
) -> None:
    """Compute what a piecewise-linear neural network does on every point of a line, exactly."""
    if isinstance(ctx.obj, GlobalOptions):
        ctx.obj.debug = ctx.obj.debug or debug


def read_environment() -> GlobalOptions:
    """Read the global options from environment variables."""
    return GlobalOptions(debug=os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"))


def convert_usage_error(error: Any) -> ExactlineError:
    """Convert a usage error of the option parser to an ArgumentError."""
    command = PROGRAM if error.ctx is None else error.ctx.command_path
    return ArgumentError(" ".join(error.format_message().split()), where=command, hint=f"{command} --help")
