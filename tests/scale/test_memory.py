"""The driver's memory does not grow with the number of lines."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["local", "ray"])
def test_a_million_lines_in_half_a_gibibyte(tmp_path, backend):
    if backend == "ray":
        pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale.million_lines", tmp_path, "1000000", backend],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mebibytes, lines, errors = (float(word) for word in done.stdout.split()[:3])
    print(f"{backend}: {mebibytes:.0f} MiB for {lines:,.0f} lines")
    assert (lines, errors) == (1_000_000, 0)
    assert mebibytes < 500
