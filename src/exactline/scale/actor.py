"""The worker as Ray's actor: it unpacks the network once and then computes batch after batch."""

from __future__ import annotations

import os
from pathlib import Path

from .batch import Batch
from .transport import unpacked
from .worker import Report, Worker


class ScaleWorker:
    """One process of a cluster; it writes shards itself where it sees the driver's folder."""

    def __init__(self, packed: bytes, folder: str, token: str, gpu: bool) -> None:
        network, job = unpacked(packed)
        shared = (Path(folder) / token).is_file()
        self.worker = Worker(network, job, Path(folder) if shared else None, "cuda" if gpu else None)

    def hello(self) -> int:
        """Say that we are ready, and who we are."""
        return os.getpid()

    def work(self, batch: Batch) -> Report:
        """See `Worker.work`."""
        return self.worker.work(batch)
