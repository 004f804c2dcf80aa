"""Killed runs and full disks: finished lines stay, and the next run computes the rest."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import exactline as xl
from tests.scale.examples import assert_same, random_lines, small_network

ROOT = Path(__file__).parents[2]
FULL = """
import sys, torch
torch.set_num_threads(1)
import exactline as xl
from tests.scale.examples import small_network, random_lines
{limit}
try:
    xl.scale.run(small_network(), zip(*random_lines(2000), strict=True), out=sys.argv[1])
except xl.FileError as error:
    print(error.problem)
"""


def run_program(*arguments: str, code: str | None = None) -> str:
    start = ["-c", code] if code else ["-m"]
    done = subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def assert_whole(folder: Path, tmp_path: Path, lines: int) -> None:
    """Every line exactly once, each as an undisturbed run gives it, and every checksum matches."""
    store = xl.scale.open(folder)
    assert store.complete
    ranges = sorted(part for record in store.index.records.values() for part in record.ranges)
    assert ranges[0].first == 0
    assert ranges[-1].stop == lines
    assert all(a.stop == b.first for a, b in pairwise(ranges))
    assert {p.name for p in (folder / "shards").iterdir()} == set(store.index.records)
    wanted = xl.scale.run(small_network(), zip(*random_lines(lines), strict=True), out=tmp_path / "undisturbed")
    for found, line in zip(store, wanted, strict=True):
        assert_same(found, line)


@pytest.mark.parametrize(("kills", "lines"), [(2, 1500), pytest.param(20, 20_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, kills, lines):
    output = run_program("tests.scale.kill_runs", str(tmp_path / "store"), str(kills), "5", str(lines))
    assert int(output.split()[0]) == kills
    assert_whole(tmp_path / "store", tmp_path, lines)


@pytest.mark.slow
def test_a_file_size_limit(tmp_path):
    """The system refuses files above a size limit, as a quota does."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    output = run_program(str(tmp_path / "store"), code=FULL.format(limit=limit))
    assert "cannot be written" in output
    part = xl.scale.open(tmp_path / "store")
    assert 0 < part.done < 2000
    assert not part.damaged
    xl.scale.run(small_network(), zip(*random_lines(2000), strict=True), out=tmp_path / "store")
    assert_whole(tmp_path / "store", tmp_path, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("size", range(200, 900, 100))
def test_a_full_disk(tmp_path, size):
    """Small file systems of several sizes, full at different moments."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        output = run_program(str(disk / "store"), code=FULL.format(limit=""))
        assert "No space left" in output
        part = xl.scale.open(disk / "store")
        assert part.done < 2000
        assert not part.damaged
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        xl.scale.run(small_network(), zip(*random_lines(2000), strict=True), out=disk / "store")
        assert_whole(disk / "store", tmp_path, 2000)
    finally:
        subprocess.run(["umount", disk], check=True)
