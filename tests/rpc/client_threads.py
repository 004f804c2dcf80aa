"""Clients that make calls in threads until they are stopped."""

from __future__ import annotations

import threading
from typing import Self


class ClientThreads:
    """Threads that run `run_client` until `done` is set; hold `lock` to change what they count."""

    max_join_seconds = 60.0  # for the last call to end

    def __init__(self, clients: int) -> None:
        self.lock, self.done = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self.run_client, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join(self.max_join_seconds)
        assert not any(thread.is_alive() for thread in self._threads), "a call has not returned"

    def run_client(self, number: int) -> None:
        """Make calls until `done` is set."""
        raise NotImplementedError
