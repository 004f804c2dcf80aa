"""What all tests share: the folder of published networks, and random numbers that repeat."""

from __future__ import annotations

import os
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


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
