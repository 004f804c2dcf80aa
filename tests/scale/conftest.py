"""One small Ray cluster for all tests of a process that use it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two workers on this machine; Ray's sockets need a short path."""
    ray = pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="xr", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=folder,
            logging_level="ERROR",
            log_to_driver=False,
        )
        yield
        ray.shutdown()
