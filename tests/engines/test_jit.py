"""Compiled loops are kept on disk where that is possible, and compiled again where it is not."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

numba = pytest.importorskip("numba")

PROGRAM = """
import resource, sys
from exactline.engines.jit import compile_loop
if sys.argv[1] == "no files":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

def add(a: float, b: float) -> float:
    return a + b

print(compile_loop(add)(1.5, 2.0))
"""


@pytest.mark.parametrize(("limit", "kept"), [("no limit", True), ("no files", False)])
def test_a_loop_is_compiled_whether_or_not_it_can_be_kept(tmp_path, monkeypatch, limit, kept):
    pytest.importorskip("resource")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    found = subprocess.run([sys.executable, str(script), limit], capture_output=True, text=True, check=True)
    assert found.stdout == "3.5\n"
    assert any(path.stat().st_size for path in Path(tmp_path).rglob("*.nbi")) == kept


def test_an_index_of_another_version_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), "no limit"]
    subprocess.run(command, check=True, capture_output=True)
    (index,) = tmp_path.rglob("*.nbi")
    version = pickle.dumps(numba.__version__)
    gone = pickle.dumps(os.path.join).replace(b"join", b"gone")  # a name that its module does not have
    index.write_bytes(version + gone)
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert found.stdout == "3.5\n"
    assert gone not in index.read_bytes()
