"""File descriptors: how many connections the server can hold with those that the system lets it open."""

from __future__ import annotations

import contextlib
import sys

OTHER_DESCRIPTORS = 64  # of the process besides connections: metrics, files of models, event loops, libraries
WORKER_DESCRIPTORS = 4  # of a worker, while one is replaced


def raise_limit() -> None:
    """Let this process open as many files as the system allows it to."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def possible_connections(wanted: int, workers: int) -> int:
    """Return how many connections the server can hold: as many as wanted, if there are descriptors for them.

    >>> possible_connections(3, 1)
    3
    """
    return max(1, min(wanted, _max_files() - OTHER_DESCRIPTORS - WORKER_DESCRIPTORS * workers))


def _max_files() -> int:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return files
    return sys.maxsize
