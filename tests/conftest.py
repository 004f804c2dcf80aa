"""Fixtures for all tests: the folder of published networks, fixed seeds, one thread; and what coverage measures."""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")

# Coverage is measured for the engines, the operators and the results. It nearly doubles the time of a test, so tests of
# other packages run without it.
FOLDERS_WITHOUT_COVERAGE = {
    "attr",
    "cli",
    "corpus",
    "decide",
    "demo",
    "docs",
    "exact",
    "examples",
    "formats",
    "laws",
    "measures",
    "network",
    "oracle",
}
FOLDERS_WITHOUT_COVERAGE |= {"paper", "plot", "rpc", "scale", "verification", "zoo"}
FOLDERS_IN_ONE_PROCESS = {"demo", "browser"}  # one run of the demo, or one browser, serves all tests of the folder
FOLDERS_WITH_SERVERS = {"rpc", "corpus"}  # one server serves all tests of a file
# networks that are refused before a sweep, settings of the process, kinds of modules
FILES_WITHOUT_COVERAGE = {"test_refused.py", "test_runtime.py", "test_modules.py"}


@pytest.hookimpl(tryfirst=True)  # before pytest drops the slow ones
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    cases = Counter[str]()
    core_only = config.pluginmanager.hasplugin("_cov") and config.getoption("cov_source") == [True]
    for item in items:
        step = item.get_closest_marker("every")
        if step is not None:
            test = item.nodeid.partition("[")[0]
            if cases[test] % step.args[0]:
                item.add_marker("slow")
            cases[test] += 1
        inside = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ()
        if inside and inside[0] in FOLDERS_IN_ONE_PROCESS:
            item.add_marker(pytest.mark.xdist_group(inside[0]))
        elif inside and inside[0] in FOLDERS_WITH_SERVERS:
            item.add_marker(pytest.mark.xdist_group("/".join(inside)))
        if core_only and inside and (inside[0] in FOLDERS_WITHOUT_COVERAGE or inside[-1] in FILES_WITHOUT_COVERAGE):
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of published networks in EXACTLINE_DATA; tests that need it are skipped without it."""
    folder = os.environ.get("EXACTLINE_DATA")
    if not folder:
        pytest.skip("EXACTLINE_DATA is not set: no published networks to test with")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute in one thread: the tensors of tests are too small for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _fast_interpreter() -> Iterator[None]:
    """Leave torch.export out of coverage, and what was imported out of garbage collection: both take a third longer."""
    export = torch.export.export

    @functools.wraps(export)
    def export_without_coverage(*args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return export(*args, **kwargs)
        finally:
            sys.settrace(tracer)

    gc.collect()
    gc.freeze()
    torch.export.export = export_without_coverage
    yield
    torch.export.export = export
    gc.unfreeze()


def seed_generators() -> None:
    """Seed the global generators of Python, NumPy and torch."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Seed before a module is imported: lists of parameters hold layers with random weights."""
    if isinstance(collector, pytest.Module):
        seed_generators()


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    """Seed before each test, so that no draw depends on the tests that ran before."""
    seed_generators()
