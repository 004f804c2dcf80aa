"""On a Ray cluster of two workers: the same answers as here, whoever is killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import exactline as xl
from exactline.zoo import tent_network
from tests.scale.same import assert_same, small_network, some_lines

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.usefixtures("cluster"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves files and sockets open when it ends
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def poisoned(count: int):
    lines: list = list(zip(*some_lines(count), strict=True))
    lines[7] = (torch.full((5,), float("nan"), dtype=torch.float64), lines[7][1])
    lines[150] = (lines[150][0][:4], lines[150][1][:4])
    return lines


def test_ray_answers_as_this_process_does(tmp_path):
    here = xl.scale.run(small_network(), poisoned(400), out=tmp_path / "here")
    there = xl.scale.run(small_network(), poisoned(400), out=tmp_path / "there", engine="ray", workers=2)
    assert there.complete
    assert len(there.index.records) > 2
    assert list(here.errors) == list(there.errors) == [7, 150]
    for (a, one), (b, two) in zip(here.items(), there.items(), strict=True):
        assert a == b
        assert_same(one, two)
    before = (tmp_path / "there" / "index").read_bytes()
    xl.scale.run(small_network(), poisoned(400), out=tmp_path / "there")  # finished: any engine does nothing
    assert (tmp_path / "there" / "index").read_bytes() == before


def tired(line):
    if os.environ.get("EXACTLINE_NOWHERE") is None and len(line) % 7 == 0:
        raise RuntimeError("tired")
    return len(line)


@pytest.mark.slow
def test_a_function_of_ones_own_travels_and_fails_alone(tmp_path):
    model = small_network()
    pieces = xl.restrict_many(model, *some_lines(300)).pieces.tolist()
    store = xl.scale.run(model, zip(*some_lines(300), strict=True), tired, out=tmp_path, engine="ray", workers=2)
    assert list(store.errors) == [n for n, p in enumerate(pieces) if p % 7 == 0]
    assert {note.tries for note in store.notes().values()} == {3}
    assert dict(store.items()) == {n: p for n, p in enumerate(pieces) if p % 7}


@pytest.mark.slow
def test_workers_that_do_not_share_the_folder_send_their_shards(tmp_path, monkeypatch):
    from exactline.scale import cluster

    monkeypatch.setattr(cluster.Path, "resolve", lambda path: cluster.Path("/nowhere-at-all"))
    here = xl.scale.run(small_network(), zip(*some_lines(300), strict=True), out=tmp_path / "here")
    there = xl.scale.run(
        small_network(), zip(*some_lines(300), strict=True), out=tmp_path / "there", engine="ray", workers=2
    )
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_acas_lines_are_equal_one_by_one(tmp_path, data):
    network = xl.load(next((data / "acasxu").rglob("*1_1_batch*.nnet")))
    generator = torch.Generator().manual_seed(0)
    starts, ends = torch.rand(2, 20_000, 5, dtype=torch.float64, generator=generator) - 0.5
    here, there = (
        xl.scale.run(network, zip(starts, ends, strict=True), out=tmp_path / name, **options)
        for name, options in (("here", {}), ("there", {"engine": "ray", "workers": 2}))
    )
    assert len(here) == len(there) == 20_000
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)


def work_processes() -> list[int]:
    """The processes of our workers on this machine."""
    import psutil

    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        title = " ".join(process.info["cmdline"] or [])
        if title.startswith("ray::ScaleWorker"):
            found.append(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_workers_are_killed(tmp_path):
    """Each time another worker takes over; nothing is lost, nothing twice, and every bit is as it was."""
    count = 60_000
    stop, killed, rng = threading.Event(), [], random.Random(3)

    def kill() -> None:
        while len(killed) < 10 and not stop.wait(rng.uniform(0.1, 1.0)):
            if victims := [p for p in work_processes() if p not in killed]:
                killed.append(rng.choice(victims))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        lines = zip(*some_lines(count), strict=True)
        there = xl.scale.run(small_network(), lines, out=tmp_path / "there", engine="ray", workers=2)
    finally:
        stop.set()
        killer.join()
    assert len(killed) == 10
    assert there.complete
    assert not there.errors
    assert there.numbers.tolist() == list(range(count))
    here = xl.scale.run(small_network(), zip(*some_lines(count), strict=True), out=tmp_path / "here")
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)


def deadly(line):
    if abs(float(line.lines.starts[0][0, 0]) - 77.0) < 1e-9:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(line)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_line_that_kills_every_worker_is_recorded(tmp_path):
    lines = list(zip(*some_lines(40), strict=True))
    lines[11][0][0] = 77.0
    store = xl.scale.run(small_network(), lines, deadly, out=tmp_path, engine="ray", workers=2)
    assert list(store.errors) == [11]
    assert "died 3 times" in store.errors[11].problem
    assert len(list(store.items())) == 39


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_line_of_a_million_breaks_is_the_same_cut_over_two_workers():
    from exactline.scale.split_line import restrict

    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    whole = xl.restrict(tent_network(20), start, end, engine="dense")
    began = time.perf_counter()
    cut = restrict(tent_network(20), start, end, workers=2)
    print(f"cut in {time.perf_counter() - began:.1f} s")
    assert len(cut) == len(whole) == 2**20
    assert torch.allclose(cut.alphas, whole.alphas, rtol=0, atol=1e-12)
    assert torch.equal(cut.origin_table, whole.origin_table)
    assert torch.equal(cut.ambiguous_per_piece, whole.ambiguous_per_piece)
    assert torch.equal(cut.values, whole.values)


DRIVER = """
import sys, torch
import exactline as xl
from tests.scale.same import small_network, some_lines
torch.set_num_threads(1)
lines = zip(*some_lines(40_000), strict=True)
def tell(now):
    print(now.done, flush=True)
xl.scale.run(small_network(), lines, out=sys.argv[1], engine="ray", workers=2, address=sys.argv[2], progress=tell)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_drivers_are_killed_while_their_workers_work(tmp_path):
    """Workers of a dead driver may still write a shard: it is nobody's, and the next run removes it."""
    import ray

    address, folder, rng = ray.get_runtime_context().gcs_address, tmp_path / "there", random.Random(1)
    for turn in range(4):
        command = [sys.executable, "-c", DRIVER, str(folder), address]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            if turn < 3:
                for _ in range(rng.randint(2, 6)):
                    driver.stdout.readline()
                driver.kill()
            else:
                driver.stdout.read()
                assert driver.wait() == 0
    there = xl.scale.open(folder)
    assert there.complete
    assert there.numbers.tolist() == list(range(40_000))
    assert not there.damaged
    here = xl.scale.run(small_network(), zip(*some_lines(40_000), strict=True), out=tmp_path / "here")
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)
