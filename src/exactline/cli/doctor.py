"""``exactline doctor``: versions, devices, extras, and a self-test on networks whose answers are known."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from ..console.options import AsJsonTables
from ..console.output import say_json, say_rich

if TYPE_CHECKING:
    from rich.table import Table

    from .selftest import Health

UNSOUND = 1  # the exit status where the self-test fails


def doctor(
    as_json: AsJsonTables = False,
) -> None:
    """Look at this installation and test it: versions, devices, extras, networks whose answers are known.

    The exit status is 0 where the self-test passes, else 1.

    Example: exactline doctor
    """
    from .selftest import examine

    found = examine()
    if as_json:
        say_json({"sound": found.sound, **asdict(found)})
    else:
        say_rich(_versions(found), _devices(found), _extras(found), _checks(found), _verdict(found))
    if not found.sound:
        raise typer.Exit(UNSOUND)


def _verdict(found: Health) -> str:
    failed = sum(not check.passed for check in found.checks)
    return "all is well" if not failed else f"{failed} of {len(found.checks)} parts of the self-test failed"


def _versions(found: Health) -> Table:
    return _table("versions", ("package", "version"), [(k, v or "missing") for k, v in found.versions.items()])


def _devices(found: Health) -> Table:
    rows = [(d.name, d.title, "" if d.memory is None else f"{d.memory / 2**30:.1f} GiB") for d in found.devices]
    return _table("devices", ("device", "what it is", "memory"), rows)


def _extras(found: Health) -> Table:
    rows: list[tuple[str, ...]] = []
    for extra, packages in found.extras.items():
        present = ", ".join(f"{name} {number}" for name, number in packages.items() if number is not None)
        absent = any(number is None for number in packages.values())
        rows.append((extra, present, f'pip install "exactline[{extra}]"' if absent else ""))
    return _table("extras", ("extra", "present", "to complete it"), rows)


def _checks(found: Health) -> Table:
    rows = [(c.name, "passed" if c.passed else "FAILED", c.detail, f"{c.seconds:.2f} s") for c in found.checks]
    return _table("self-test", ("part", "", "what came out", "time"), rows)


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich.table import Table
    from rich.text import Text  # messages may hold brackets, which are markup elsewhere

    table = Table(title=title, title_justify="left")
    for name in head:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
