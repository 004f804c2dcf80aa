"""The scripts in examples/ run, and say something."""

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTERS = {"client.py", "scale.py"}  # they start processes, which import them again


def said_by(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
@pytest.mark.every(9)
def test_an_example_runs(script, monkeypatch, capsys, tmp_path):
    if script.name in STARTERS:
        assert said_by("-W", "error::UserWarning", str(script)) != ""
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out != ""
