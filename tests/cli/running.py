"""Run the command in this process, in a folder with some networks, or Python in another process."""

import subprocess
import sys

import pytest

from exactline import cli

LOAN = """// the paper's example
2,2,2,2,
2,2,2,
0,
0,0,
100,100,
0,0,0,
1,1,1,
-1.7,1,
2,-1.3,
3,
3,
1,0,
0,1,
0,
0,
"""
SCALED = LOAN.replace("0,0,0,\n1,1,1,", "10,20,5,\n2,4,3,")
TAILED = "ReLU\n[[1, -1]]\n[0]\nSigmoid\n[[2]]\n[1]\n"
SMOOTH = "Sigmoid\n[[1, -1]]\n[0]\nTanh\n[[2]]\n[1]\nAffine\n[[1]]\n[0]\n"
FILES = {"loan.nnet": LOAN, "scaled.nnet": SCALED, "tailed.eran": TAILED, "smooth.eran": SMOOTH, "torn.nnet": LOAN[:60]}


def call_command(monkeypatch, capsys, *arguments):
    """Run the command; returns exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["exactline", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    captured = capsys.readouterr()
    return done.value.code or 0, captured.out, captured.err


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """A function that runs the command in a folder with some networks and checks that it prints no traceback."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments):
        result = call_command(monkeypatch, capsys, *arguments)
        assert "Traceback" not in result[2]
        return result

    return run


def python(*arguments, **options):
    """Run another interpreter."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)
