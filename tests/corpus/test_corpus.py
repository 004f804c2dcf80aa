"""Every bad file gets its own typed error, soon and in little memory."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactline.errors import ERRORS
from exactline.formats import limits, load_network

from .make import MANIFEST, make

SECONDS = 2.0
GROWTH = 512 << 20  # bytes of memory that reading all files may take
UNPACKED = 16 << 20  # what a .gz may unpack to here, instead of 1 GiB
GOOD = ("nnet-good-bom.nnet", "eran-good-bom.eran", "onnx-good.onnx")
KINDS = {e.__name__: e for e in ERRORS}


def pytest_generate_tests(metafunc):
    if "bad" in metafunc.fixturenames:
        from .containers import prepared_names
        from .make import bad_files

        metafunc.parametrize("bad", sorted([*(name for name, *_ in bad_files()), *prepared_names()]))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    manifest = make(folder)
    for name in GOOD:
        load_network(folder / name)  # imports are no part of the time
    return folder, manifest


@pytest.mark.every(12)
def test_a_bad_file_gets_its_error(corpus, bad, monkeypatch):
    monkeypatch.setattr(limits, "MAX_FILE_BYTES", UNPACKED)
    folder, manifest = corpus
    expected = manifest[bad]
    begun = time.process_time()
    if expected["error"] is None:
        load_network(folder / bad)
    else:
        with pytest.raises(KINDS[expected["error"]]) as caught:
            load_network(folder / bad)
        problem = caught.value
        assert type(problem) is KINDS[expected["error"]], problem
        assert expected["says"] in str(problem)
        assert problem.where
        assert problem.hint
        assert len(str(problem)) < 5000  # fit to be read
    assert time.process_time() - begun < SECONDS


def test_there_are_enough_files_and_they_are_always_the_same(corpus, tmp_path):
    folder, manifest = corpus
    assert len(manifest) >= 260
    make(tmp_path / "again")
    names = [p.name for p in folder.iterdir() if p.is_file()]
    assert MANIFEST in names
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.slow
def test_memory_hardly_grows(corpus):
    folder, _ = corpus
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = "import sys; from tests.corpus.test_corpus import memory; memory(sys.argv[1])"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown, worst = json.loads(done.stdout)
    assert grown < GROWTH, f"{worst} took the most"


def memory(folder: str) -> None:
    """In a process of its own: read all files, print the growth of the peak and the file that raised it most."""
    import resource

    limits.MAX_FILE_BYTES = UNPACKED

    def peak() -> int:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024

    manifest = json.loads((Path(folder) / MANIFEST).read_text())
    for name in GOOD:
        load_network(Path(folder) / name)  # imports are no part of it
    begun = last = peak()
    grown: dict[str, int] = {}
    for name in manifest:
        try:
            load_network(Path(folder) / name)
        except tuple(ERRORS):
            pass
        now = peak()
        if now > last + (16 << 20):
            gc.collect()  # errors keep what was read until then
        grown[name], last = now - last, now
    print(json.dumps([last - begun, max(grown, key=lambda n: grown[n])]))
