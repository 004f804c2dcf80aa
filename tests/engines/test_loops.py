"""Loops are compiled only where that pays: a short first command does without them."""

import subprocess
import sys

import pytest

from exactline.engines import loops
from exactline.engines.loops import MIN_NUMBERS_TO_COMPILE, CompiledLoops

PROGRAM = """
import sys, torch
import exactline as xl
from exactline.engines.dense.fused_relu import RELU_LOOPS
from exactline.engines.polygons.compiled import CUT_LOOPS

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 300), torch.nn.ReLU(), torch.nn.Linear(300, 2)).double()
if sys.argv[1] == "compile":
    RELU_LOOPS.load()
    CUT_LOOPS.load()
square = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64) * 2
xl.restrict_many(model, square.repeat(200, 1), -square.repeat(200, 1) + 0.1)
xl.restrict_plane(model, square)
print(RELU_LOOPS.is_ready, CUT_LOOPS.is_ready)
"""


def test_loops_are_compiled_only_on_request_and_used_once_they_are_on_disk(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="the extra fast is not installed")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def run(mode):
        command = [sys.executable, "-c", PROGRAM, mode]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    assert run("wait") == ["False", "False"]
    assert not list(tmp_path.rglob("*.nbc"))  # nothing was compiled
    assert run("compile") == ["True", "True"]
    assert list(tmp_path.rglob("*.nbc"))
    assert run("wait") == ["True", "True"]


def test_loops_are_compiled_when_the_work_pays_for_them():
    found = CompiledLoops(lambda: "loops", ())
    found._are_compiled = lambda: False  # pyright: ignore[reportAttributeAccessIssue]
    half = MIN_NUMBERS_TO_COMPILE // 2
    assert [found.request(n) for n in (1, half, half, 1)] == [None, None, "loops", "loops"]
    assert found.is_ready


def test_loops_that_are_not_installed_are_looked_for_once():
    tries = []

    def load():
        tries.append(1)
        raise ImportError

    found = CompiledLoops(load, ())
    assert [found.request(MIN_NUMBERS_TO_COMPILE) for _ in range(3)] == [None] * 3
    assert tries == [1]
    assert not found.is_ready


def test_loops_are_not_loaded_before_a_deadline(monkeypatch):
    monkeypatch.setattr(loops, "seconds_left", lambda: loops.MIN_SECONDS_TO_LOAD / 2)
    found = CompiledLoops(lambda: "loops", ())
    assert found.request(MIN_NUMBERS_TO_COMPILE) is None
    assert found.load() == "loops"
