"""The command line: what it prints, what it draws, and how it fails."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from runpy import run_path

import pytest

from exactline import cli
from exactline.errors import ERRORS

EXAMPLES = Path(__file__).parents[1] / "examples"
STARTERS = {"client.py", "scale.py"}  # they start processes, which import them again


def run(monkeypatch, *arguments):
    """Run the command in this process; its exit status."""
    monkeypatch.setattr(sys, "argv", ["exactline", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code or 0


def run_python(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_is_the_package_s(monkeypatch, capsys):
    assert run(monkeypatch, "version") == 0
    assert capsys.readouterr().out == version("exactline") + "\n"


def test_python_dash_m_is_the_same_command():
    assert run_python("-m", "exactline", "version") == version("exactline") + "\n"


def test_help_loads_no_more_than_it_needs():
    heavy = {"matplotlib", "safetensors", "onnx", "sklearn"}
    assert run_python("-c", f"import exactline.cli, sys; print({heavy} & {{*sys.modules}})") == "set()\n"


def test_help_names_the_commands(monkeypatch, capsys):
    assert run(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("info", "convert", "restrict", "demo", "version"))


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_prints_three_lines_and_gives_its_status(monkeypatch, capsys, kind):
    def fail(**options):
        raise kind("It broke.", where="here", hint="Mend it.")

    monkeypatch.setattr(cli, "app", fail)
    assert run(monkeypatch) == kind.exit_status != 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "It broke.\n  where: here\n  try:   Mend it.\n"


def test_a_folder_that_cannot_be_made_is_told(monkeypatch, capsys, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    assert run(monkeypatch, "demo", "--out", str(taken)) == 6
    assert f"where: --out {taken}" in capsys.readouterr().err


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(script, monkeypatch, capsys, tmp_path):
    if script.name in STARTERS:
        assert run_python("-W", "error::UserWarning", str(script)) != ""
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out != ""
