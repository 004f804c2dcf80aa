"""The command itself: what it imports to start, and how it ends."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from exactline import cli
from exactline.errors import ERRORS
from tests.cli.running import python


def test_version_is_that_of_the_package(run):
    assert run("version") == (0, version("exactline") + "\n", "")


def test_python_dash_m_is_the_same_command():
    assert python("-m", "exactline", "version").stdout == version("exactline") + "\n"


def test_help_imports_no_heavy_packages():
    heavy = {"torch", "numpy", "rich.table", "matplotlib", "safetensors", "onnx", "sklearn"}
    done = python("-c", f"import exactline.cli, sys; print({heavy} & {{*sys.modules}})")
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_prints_three_lines_and_gives_its_status(run, monkeypatch, kind):
    def fail(**options):
        raise kind("It broke.", where="here", hint="Mend it.")

    monkeypatch.setattr(cli, "app", fail)
    assert kind.exit_status != 0
    assert run() == (kind.exit_status, "", "It broke.\n  where: here\n  try:   Mend it.\n")


def test_a_folder_that_cannot_be_created_is_named(run, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    status, _, err = run("demo", "--out", taken)
    assert status == 6
    assert f"where: --out {taken}" in err


def test_unexpected_errors_print_no_traceback(run, monkeypatch):
    def fail(path, **options):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr("exactline.formats.load", fail)
    status, _, err = run("convert", "loan.nnet", "new.onnx")
    assert status == 1
    assert err.startswith("An unexpected error occurred: RuntimeError: out of\n")
    assert json.loads(run("info", "--json", "loan.nnet")[1])[0]["exact"] is False


def test_an_interrupt_ends_quietly(run, monkeypatch):
    def fail(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("exactline.formats.load", fail)
    assert run("convert", "loan.nnet", "new.onnx") == (130, "", "")


def test_a_closed_pipe_ends_quietly():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "exactline", "version"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
