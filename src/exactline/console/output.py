"""What commands share: text, tables and JSON to standard output, remarks to standard error, a shape as typed."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from ..errors import ArgumentError, FileError, MissingError
from ..humanize import count_noun
from .exit import UNHEARD, hush

PICTURES = (".png", ".pdf", ".svg")


def say(text: str) -> None:
    """One text to standard output, at once."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise typer.Exit(UNHEARD) from None


def say_json(value: Any) -> None:
    """One JSON document to standard output; its numbers read back as the same numbers."""
    say(json.dumps(value, allow_nan=False))


def say_rich(*parts: Any, markup: bool = False) -> None:
    """Texts and tables as wide as the terminal; where the output is no terminal, as wide as they need to be."""
    from rich.console import Console

    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
    with console.capture() as said:
        for part in parts:
            console.print(part, highlight=False, markup=markup)
    say(said.get().rstrip("\n"))


def remark(text: str) -> None:
    """One text to standard error."""
    sys.stderr.write(f"{text}\n")


def writable(path: Path, option: str) -> Path:
    """A path for a new file, refused before the work begins where its folder is missing."""
    if path.is_dir() or not path.parent.is_dir():
        raise FileError(
            "It is a folder." if path.is_dir() else "Its folder does not exist.",
            where=f"{option} {path}",
            hint="Give the name of a file in a folder that is there.",
        )
    return path


def ready(files: dict[str, tuple[Path | None, tuple[str, ...]]]) -> None:
    """Refuse what could not be written before the work begins: by option, a path and the endings it may have."""
    for option, (path, endings) in files.items():
        if path is None:
            continue
        writable(path, option)
        if path.suffix.lower() not in endings:
            raise ArgumentError(
                f"Files are {_either(endings)} here.", where=f"{option} {path}", hint="Name the file so."
            )
        if option == "--plot" and find_spec("matplotlib") is None:
            raise MissingError("Pictures need matplotlib.", where=option, hint='pip install "exactline[plot]"')


def _either(words: tuple[str, ...]) -> str:
    """One of several: .png, .pdf or .svg."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def listed(labels: str | None, count: int) -> list[str] | None:
    """The names of so many outputs, as they are typed: no,maybe,yes."""
    names = None if labels is None else [name.strip() for name in labels.split(",")]
    if names is not None and len(names) != count:
        raise ArgumentError(
            f"That is {count_noun(len(names), 'name')} for {count_noun(count, 'output')}.",
            where="--labels",
            hint="Give one name for each output, with commas between.",
        )
    return names


WIDE = 2000  # columns where nobody says how many there are


def dims(text: str | None) -> tuple[int, ...] | None:
    """A shape as it is typed: 12,12,3."""
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        found = ()
    if not found or any(d < 1 for d in found):
        raise ArgumentError(f"{text!r} is not a shape.", where="option --shape", hint="Give sizes such as 12,12,3.")
    return found
