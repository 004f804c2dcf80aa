"""The command run in this process, in a folder with some networks, and Python in another."""

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


def called(monkeypatch, capsys, *arguments):
    """Exit status, standard output and error."""
    monkeypatch.setattr(sys, "argv", ["exactline", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    said = capsys.readouterr()
    return done.value.code or 0, said.out, said.err


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command in a folder with some networks; exit status, standard output and error without a traceback."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments):
        found = called(monkeypatch, capsys, *arguments)
        assert "Traceback" not in found[2]
        return found

    return run


def python(*arguments, **options):
    """Another interpreter; what it printed and how it ended."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)
