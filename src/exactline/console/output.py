"""Results on standard output, notes on standard error, and files that are checked before the work begins."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from ..errors import ArgumentError, FileError, MissingError
from ..humanize import count_noun
from .exit import CLOSED_PIPE_STATUS, silence_stdout

PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
PIPE_COLUMNS = 2000  # width of the output where it is not a terminal


def print_text(text: str) -> None:
    """Print a text to standard output and flush it."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        raise typer.Exit(CLOSED_PIPE_STATUS) from None


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; floats are read back bit for bit."""
    print_text(json.dumps(value, allow_nan=False))


def print_rich(*parts: Any, markup: bool = False) -> None:
    """Print texts and tables as wide as the terminal, or as wide as they need to be if there is none."""
    from rich.console import Console

    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    with console.capture() as captured:
        for part in parts:
            console.print(part, highlight=False, markup=markup)
    print_text(captured.get().rstrip("\n"))


def print_note(text: str) -> None:
    """Print a text to standard error."""
    sys.stderr.write(f"{text}\n")


def print_files(folder: Path, names: Sequence[str]) -> None:
    """Print which files were written into a folder."""
    print_rich(f"{count_noun(len(names), 'file')} in {folder}: {', '.join(names)}")


def require_writable(path: Path, option: str) -> Path:
    """Return the path of a new file.

    Raises FileError if it is a folder, or if its folder does not exist.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise FileError(
            "It is a folder." if path.is_dir() else "Its folder does not exist.",
            where=f"{option} {path}",
            hint="Give the name of a file in an existing folder.",
        )
    return path


def check_output_files(paths: dict[str, tuple[Path | None, tuple[str, ...]]]) -> None:
    """Check before the work begins that files can be written.

    Args:
        paths: By option, the path or None, and the suffixes it may have.

    Raises FileError for a folder that does not exist, ArgumentError for another suffix, MissingError for a picture if
    matplotlib is not installed.
    """
    for option, (path, suffixes) in paths.items():
        if path is None:
            continue
        require_writable(path, option)
        if path.suffix.lower() not in suffixes:
            raise ArgumentError(
                f"The file must end in {_join_with_or(suffixes)}.",
                where=f"{option} {path}",
                hint="Choose another file name.",
            )
        if option == "--plot":
            require_matplotlib(option)


def require_matplotlib(where: str, alternative: str = "") -> None:
    """Raise MissingError if matplotlib is not installed; ``alternative`` is added to its hint."""
    if find_spec("matplotlib") is None:
        raise MissingError("Pictures need matplotlib.", where=where, hint=f'pip install "exactline[plot]"{alternative}')


def make_folder(folder: Path) -> Path:
    """Create the folder of the option --out if it is missing.

    Raises FileError if it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"The folder cannot be created: {error.strerror}.",
            where=f"--out {folder}",
            hint="Choose another folder with --out.",
        ) from error
    return folder


def _join_with_or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
