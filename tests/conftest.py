"""What all tests share: the folder of published networks, random numbers that repeat, and what coverage looks at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")

# Coverage is of the sweep, the operators and the answer, and it nearly doubles the time of what it follows: these
# folders are about other things and run without it.
UNCOVERED = {
    "attr",
    "corpus",
    "decide",
    "demo",
    "exact",
    "formats",
    "measures",
    "paper",
    "rpc",
    "scale",
    "verification",
}
UNCOVERED |= {"cli", "docs", "examples", "plot", "zoo"}
REFUSALS = "test_refused.py"  # networks that never come to be swept


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items if config.pluginmanager.hasplugin("_cov") else []:
        inside = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ()
        if inside and (inside[0] in UNCOVERED or inside[-1] == REFUSALS):
            item.add_marker("no_cover")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of published networks that EXACTLINE_DATA names; tests that need it skip without."""
    folder = os.environ.get("EXACTLINE_DATA")
    if not folder:
        pytest.skip("EXACTLINE_DATA is not set: no published networks to test with")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors need one thread: a second only waits, and for long where other programs run too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
