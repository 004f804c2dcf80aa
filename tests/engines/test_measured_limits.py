"""`seconds=` and `memory=` as they are measured: peak memory and time of limited calls in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "limits.py"
MIB = 1 << 20
CASES = ["max over 320 x 320", "image to image", "100,000 outputs", "conv net with ties", "wide MLP"]
# Memory that is not taken by the sweep: for ambiguous units, for the adjoint sweep, and for estimated errors.
CASES_BESIDE_SWEEPS = ["MLP with ties", "wide MLP gradients", "error of image to image"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")]


def _measure(case, engine, limits):
    arguments = [sys.executable, str(BENCHMARK), "--one", json.dumps([case, engine, limits])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("case", [*CASES, *CASES_BESIDE_SWEEPS])
def test_the_process_grows_by_the_memory_at_most(case, engine):
    found = _measure(case, engine, {"memory": 256 * MIB})
    assert found["growth"] <= 1.1 * 256 * MIB


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("case", CASES)
def test_the_call_ends_at_the_deadline(case, engine):
    found = _measure(case, engine, {"seconds": 2.0})
    spent = min(found["seconds"], found["processor"])  # other processes may take the machine's time
    assert spent <= max(2.2, 2.0 + found["chunk"])
