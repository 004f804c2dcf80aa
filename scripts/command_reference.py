"""Write docs/commands.md from the commands themselves: usage, options, examples, and what exit statuses mean.

Run it after changing a command: python scripts/command_reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from exactline.cli import app
from exactline.cli.doctor import UNSOUND
from exactline.console.exit import INTERRUPTED, UNHEARD
from exactline.console.root import NAME
from exactline.errors import ERRORS, ExactlineError

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"

HEAD = """# Commands

<!-- made by scripts/command_reference.py from the commands themselves -->

Every command answers `--help`. Answers go to standard output, remarks and errors to standard error; with `--json` the
answer is one JSON document whose numbers read back as the same numbers. A bar is shown only where standard error is a
terminal, and `--no-progress` hides it there.

## Errors and exit statuses

An error is three lines: what the problem is, where it is, and what to try.

```console
$ exactline info missing.nnet
The file cannot be read: No such file or directory.
  where: missing.nnet
  try:   Check its name.
```

There is no traceback unless you ask for one: `--debug`, before or behind the command, or `EXACTLINE_DEBUG=1` in the
environment shows where in the code an error arose. The exit status stays the same.

"""

COMPLETION = """## Completion

```sh
exactline --install-completion   # for the shell you are in: bash, zsh, fish or PowerShell
exactline --show-completion      # only print the script
```

Open a new shell, then the tab key completes commands, options and file names.
"""


def statuses() -> list[tuple[str, str]]:
    """What each exit status means, from the table of errors."""
    rows = [("0", "All went well.")]
    for status in sorted({error.exit_status for error in ERRORS}):
        kinds = [error for error in ERRORS if error.exit_status == status and error is not ExactlineError]
        said = [f"{_first(kind)} (`{kind.code}`)" for kind in kinds]
        if status == UNSOUND:
            said.append("Something went wrong that should not; or the self-test of `exactline doctor` failed.")
        rows.append((str(status), "<br>".join(said)))
    rows.append((str(INTERRUPTED), "Interrupted from the keyboard."))
    return [*rows, (str(UNHEARD), f"Whoever read the output has gone: {_code('exactline info nets | head -1')}.")]


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command with its full name, as the help lists them."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def section(name: str, command: Any) -> str:
    """One command."""
    texts = [" ".join(text.split()) for text in (command.help or "").split("\n\n")]
    said = [text for text in texts if not text.startswith("Example: ")]
    examples = [text.removeprefix("Example: ") for text in texts if text.startswith("Example: ")]
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    given = [p for p in shown if p.param_type_name == "argument"]
    words = " ".join([name, *(_meta(p) if p.required else f"[{_meta(p)}]" for p in given), "[OPTIONS]"])
    parts = [f"### {name}", *said, f"```\n{words}\n```"]
    if examples:
        parts.append("For example:\n\n```sh\n" + "\n".join(examples) + "\n```")
    rows = [(f"`{_meta(p)}`", _meaning(p)) for p in given]
    rows += [(_names(p), _meaning(p)) for p in shown if p.param_type_name == "option"]
    return "\n\n".join([*parts, _table(("option", "meaning"), rows)])


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    every = list(commands(root, NAME))
    listed = [(f"[`{name}`](#{name.replace(' ', '-')})", _sentence(command.help)) for name, command in every]
    parts = [
        HEAD + _table(("status", "meaning"), statuses()),
        COMPLETION.rstrip("\n"),
        "## All commands",
        _table(("command", "what it does"), listed),
        *(section(name, command) for name, command in every),
    ]
    return "\n\n".join(parts) + "\n"


def _first(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")


def _meta(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _names(option: Any) -> str:
    takes = "" if getattr(option, "is_flag", False) else f" {option.metavar or _kind(option)}"
    return ", ".join(_code(name) for name in (*(f"{name}{takes}" for name in option.opts), *option.secondary_opts))


def _code(text: str) -> str:
    """Code in a table, where a bar needs another way of saying it on GitHub and on the site."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _kind(option: Any) -> str:
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    kind = getattr(annotation, "__name__", None) or getattr(option.type, "name", "value")
    return {"int": "N", "integer": "N", "float": "X", "Path": "FILE", "path": "FILE"}.get(kind, "TEXT")


def _meaning(parameter: Any) -> str:
    said = str(getattr(parameter, "help", None) or "").replace("|", "\\|")
    default = _default(parameter)
    if parameter.required:
        return f"{said} **Required.**"
    return f"{said} Default: {default}." if default else said


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    value = parameter.default
    if getattr(parameter, "is_flag", False):
        if not parameter.secondary_opts or value is None or shown is False:
            return ""
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    return "" if value is None or value == [] or value == () or callable(value) else f"`{value}`"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
