"""The command line: what it prints, what it draws, and how it fails."""

import json
import re
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
PNG = b"\x89PNG\r\n\x1a\n"


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


def test_demo_prints_and_draws_both_networks(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    out = tmp_path / "pictures"
    assert run(monkeypatch, "demo", "--out", str(out)) == 0
    for name in ("loan.png", "digits.png"):
        assert (out / name).read_bytes().startswith(PNG)
    loan, digits = capsys.readouterr().out.split("Digits")
    for expected in (
        "0 to 0.333333",
        "0.333333 to 0.666667",
        "[[0, 0], [2, -1.3]] x + [0, 3]",
        "[[-1.7, 1], [2, -1.3]] x + [3, 3]",
        "[[-1.7, 1], [0, 0]] x + [3, 0]",
    ):
        assert expected in loan
    assert "from a 4 (read as 4) to a 3 (read as 3)" in digits
    assert "The class changes from 4 to 8 between alpha 0.4" in digits
    pieces = re.search(r"([\d,]+) pieces, ", digits)
    assert pieces is not None
    counts = [int(count.replace(",", "")) for count in re.findall(r"│\s+([\d,]+)\s+│$", digits, re.MULTILINE)]
    assert sum(counts) == int(pieces[1].replace(",", "")) - 1  # every break within the line has its node


def test_demo_says_the_same_as_json(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "demo", "--out", str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["network"] for line in found["lines"]] == ["loan", "digits"]
    assert found["lines"][0]["alphas"] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [Path(line["picture"]).read_bytes()[:8] for line in found["lines"]] == [PNG, PNG]


def test_demo_works_without_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert run(monkeypatch, "demo", "--out", str(tmp_path)) == 0
    assert 'not drawn: Pictures need matplotlib. Try: pip install "exactline[plot]"' in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(script, monkeypatch, capsys, tmp_path):
    if script.name in STARTERS:
        assert run_python("-W", "error::UserWarning", str(script)) != ""
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out != ""
