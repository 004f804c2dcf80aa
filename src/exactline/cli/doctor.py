"""``exactline doctor``: versions, devices, extras, and a self-test on networks whose answers are known."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from ..console.options import AsJsonTables
from ..console.output import print_json, print_rich

if TYPE_CHECKING:
    from rich.table import Table

    from .selftest import InstallationReport

SELFTEST_FAILED_STATUS = 1


def doctor(as_json: AsJsonTables = False) -> None:
    """Examine this installation: versions, devices, extras, and checks on networks whose answers are known.

    The exit status is 0 if the self-test passes, else 1.

    Example: exactline doctor
    """
    from .selftest import examine_installation

    report = examine_installation()
    if as_json:
        print_json({"sound": report.is_sound, **asdict(report)})
    else:
        print_rich(
            _build_versions_table(report),
            _build_devices_table(report),
            _build_extras_table(report),
            _build_checks_table(report),
            _format_verdict(report),
        )
    if not report.is_sound:
        raise typer.Exit(SELFTEST_FAILED_STATUS)


def _format_verdict(report: InstallationReport) -> str:
    failed = sum(not check.passed for check in report.checks)
    return f"{failed} of {len(report.checks)} checks of the self-test failed" if failed else "the self-test passed"


def _build_versions_table(report: InstallationReport) -> Table:
    rows = [(name, version or "missing") for name, version in report.versions.items()]
    return _build_table("versions", ("package", "version"), rows)


def _build_devices_table(report: InstallationReport) -> Table:
    rows = [
        (d.name, d.description, "" if d.memory_bytes is None else f"{d.memory_bytes / 2**30:.1f} GiB")
        for d in report.devices
    ]
    return _build_table("devices", ("device", "description", "memory"), rows)


def _build_extras_table(report: InstallationReport) -> Table:
    rows: list[tuple[str, ...]] = []
    for extra, packages in report.extras.items():
        installed = ", ".join(f"{name} {version}" for name, version in packages.items() if version is not None)
        is_complete = None not in packages.values()
        rows.append((extra, installed, "" if is_complete else f'pip install "exactline[{extra}]"'))
    return _build_table("extras", ("extra", "installed", "to complete it"), rows)


def _build_checks_table(report: InstallationReport) -> Table:
    rows = [(c.name, "passed" if c.passed else "FAILED", c.detail, f"{c.seconds:.2f} s") for c in report.checks]
    return _build_table("self-test", ("check", "", "result", "time"), rows)


def _build_table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich.table import Table
    from rich.text import Text  # brackets in messages are not markup

    table = Table(title=title, title_justify="left")
    for name in head:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
