"""A Ray cluster of two workers gives the answers of this process, whichever worker is killed."""

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
from tests.scale.examples import assert_same, random_lines, small_network

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.usefixtures("cluster"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves files and sockets open when it ends
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def lines_with_errors(count: int):
    lines: list = list(zip(*random_lines(count), strict=True))
    lines[7] = (torch.full((5,), float("nan"), dtype=torch.float64), lines[7][1])
    lines[150] = (lines[150][0][:4], lines[150][1][:4])
    return lines


@pytest.mark.slow
def test_ray_answers_as_this_process_does(tmp_path):
    here = xl.scale.run(small_network(), lines_with_errors(400), out=tmp_path / "here")
    there = xl.scale.run(small_network(), lines_with_errors(400), out=tmp_path / "there", backend="ray", workers=2)
    assert there.complete
    assert len(there.index.records) > 2
    assert list(here.errors) == list(there.errors) == [7, 150]
    for (a, one), (b, two) in zip(here.items(), there.items(), strict=True):
        assert a == b
        assert_same(one, two)
    before = (tmp_path / "there" / "index").read_bytes()
    xl.scale.run(small_network(), lines_with_errors(400), out=tmp_path / "there")  # finished: any backend does nothing
    assert (tmp_path / "there" / "index").read_bytes() == before


def fail_sometimes(line):
    if os.environ.get("EXACTLINE_NOWHERE") is None and len(line) % 7 == 0:
        raise RuntimeError("failed")
    return len(line)


@pytest.mark.slow
def test_a_user_function_is_sent_to_workers_and_fails_alone(tmp_path):
    model = small_network()
    pieces = xl.restrict_many(model, *random_lines(300)).pieces.tolist()
    store = xl.scale.run(
        model, zip(*random_lines(300), strict=True), fail_sometimes, out=tmp_path, backend="ray", workers=2
    )
    assert list(store.errors) == [n for n, p in enumerate(pieces) if p % 7 == 0]
    assert {failure.tries for failure in store.failures().values()} == {3}
    assert dict(store.items()) == {n: p for n, p in enumerate(pieces) if p % 7}


@pytest.mark.slow
def test_workers_that_do_not_share_the_folder_send_their_shards(tmp_path, monkeypatch):
    from exactline.scale import ray_backend

    monkeypatch.setattr(ray_backend.Path, "resolve", lambda path: ray_backend.Path("/nowhere-at-all"))
    here = xl.scale.run(small_network(), zip(*random_lines(300), strict=True), out=tmp_path / "here")
    there = xl.scale.run(
        small_network(), zip(*random_lines(300), strict=True), out=tmp_path / "there", backend="ray", workers=2
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
        for name, options in (("here", {}), ("there", {"backend": "ray", "workers": 2}))
    )
    assert len(here) == len(there) == 20_000
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)


def worker_processes() -> list[int]:
    """The processes of the workers on this machine."""
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
    """Another worker takes over each time; no line is lost or computed twice, and every bit stays the same."""
    count = 60_000
    stop, killed, rng = threading.Event(), [], random.Random(3)

    def kill() -> None:
        while len(killed) < 10 and not stop.wait(rng.uniform(0.1, 1.0)):
            if victims := [p for p in worker_processes() if p not in killed]:
                killed.append(rng.choice(victims))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        lines = zip(*random_lines(count), strict=True)
        there = xl.scale.run(small_network(), lines, out=tmp_path / "there", backend="ray", workers=2)
    finally:
        stop.set()
        killer.join()
    assert len(killed) == 10
    assert there.complete
    assert not there.errors
    assert there.numbers.tolist() == list(range(count))
    here = xl.scale.run(small_network(), zip(*random_lines(count), strict=True), out=tmp_path / "here")
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)


def kill_worker(line):
    if abs(float(line.lines.starts[0][0, 0]) - 77.0) < 1e-9:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(line)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_line_that_kills_every_worker_is_recorded(tmp_path):
    lines = list(zip(*random_lines(40), strict=True))
    lines[11][0][0] = 77.0
    store = xl.scale.run(small_network(), lines, kill_worker, out=tmp_path, backend="ray", workers=2)
    assert list(store.errors) == [11]
    assert "died 3 times" in store.errors[11].problem
    assert len(list(store.items())) == 39


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_line_of_a_million_breaks_is_the_same_split_over_two_workers():
    from exactline.scale.split_line import restrict

    start, end = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    whole = xl.restrict(tent_network(20), start, end, engine="dense")
    began = time.perf_counter()
    split = restrict(tent_network(20), start, end, workers=2)
    print(f"split in {time.perf_counter() - began:.1f} s")
    assert len(split) == len(whole) == 2**20
    assert torch.allclose(split.alphas, whole.alphas, rtol=0, atol=1e-12)
    assert torch.equal(split.origin_table, whole.origin_table)
    assert torch.equal(split.ambiguous_per_piece, whole.ambiguous_per_piece)
    assert torch.equal(split.values, whole.values)


DRIVER = """
import sys, torch
import exactline as xl
from tests.scale.examples import small_network, random_lines
torch.set_num_threads(1)
lines = zip(*random_lines(40_000), strict=True)
def report(now):
    print(now.done, flush=True)
xl.scale.run(small_network(), lines, out=sys.argv[1], backend="ray", workers=2, address=sys.argv[2], progress=report)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_drivers_are_killed_while_their_workers_work(tmp_path):
    """Workers of a dead driver may still write a shard, which no index records: the next run removes it."""
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
    here = xl.scale.run(small_network(), zip(*random_lines(40_000), strict=True), out=tmp_path / "here")
    for one, two in zip(here, there, strict=True):
        assert_same(one, two)
