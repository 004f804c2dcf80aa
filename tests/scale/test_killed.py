"""Runs that are killed, and disks that are full: what is finished stays, and the rest follows."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import exactline as xl
from tests.scale.same import assert_same, small_network, some_lines

ROOT = Path(__file__).parents[2]
FULL = """
import sys, torch
torch.set_num_threads(1)
import exactline as xl
from tests.scale.same import small_network, some_lines
{limit}
try:
    xl.scale.run(small_network(), zip(*some_lines(2000), strict=True), out=sys.argv[1])
except xl.FileError as error:
    print(error.problem)
"""


def program(*arguments: str, code: str | None = None) -> str:
    start = ["-c", code] if code else ["-m"]
    done = subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def assert_whole(folder: Path, tmp_path: Path, lines: int) -> None:
    """Every line exactly once, each as an undisturbed run gives it, and every checksum right."""
    store = xl.scale.open(folder)
    assert store.complete
    runs = sorted(run[:2] for record in store.index.records.values() for run in record.runs)
    assert runs[0][0] == 0
    assert runs[-1][1] == lines
    assert all(a[1] == b[0] for a, b in pairwise(runs))
    assert {p.name for p in (folder / "shards").iterdir()} == set(store.index.records)
    wanted = xl.scale.run(small_network(), zip(*some_lines(lines), strict=True), out=tmp_path / "undisturbed")
    for found, line in zip(store, wanted, strict=True):
        assert_same(found, line)


@pytest.mark.parametrize(("kills", "lines"), [(2, 1500), pytest.param(20, 20_000, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, kills, lines):
    said = program("tests.scale.killed", str(tmp_path / "store"), str(kills), "5", str(lines))
    assert int(said.split()[0]) == kills
    assert_whole(tmp_path / "store", tmp_path, lines)


def test_a_disk_that_takes_no_more(tmp_path):
    """The system refuses files above a size, as a quota does."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    said = program(str(tmp_path / "store"), code=FULL.format(limit=limit))
    assert "cannot be written" in said
    part = xl.scale.open(tmp_path / "store")
    assert 0 < part.done < 2000
    assert not part.damaged
    xl.scale.run(small_network(), zip(*some_lines(2000), strict=True), out=tmp_path / "store")
    assert_whole(tmp_path / "store", tmp_path, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("size", range(200, 900, 100))
def test_a_disk_that_is_full(tmp_path, size):
    """A small file system of its own, full sooner or later, once perhaps while the index is written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        said = program(str(disk / "store"), code=FULL.format(limit=""))
        assert "No space left" in said
        part = xl.scale.open(disk / "store")
        assert part.done < 2000
        assert not part.damaged
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        xl.scale.run(small_network(), zip(*some_lines(2000), strict=True), out=disk / "store")
        assert_whole(disk / "store", tmp_path, 2000)
    finally:
        subprocess.run(["umount", disk], check=True)
