"""What all tests share: the folder of published networks, and random numbers that repeat."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")


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
