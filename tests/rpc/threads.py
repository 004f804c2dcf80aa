"""Clients in threads of their own that ask until they are told to stop."""

from __future__ import annotations

import threading
from typing import Self


class Threads:
    """So many threads, each in `live` until `done` is set; what they count is guarded by `counting`."""

    patience = 60.0  # seconds until the last call must have ended

    def __init__(self, clients: int) -> None:
        self.counting, self.done = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self.live, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self._threads:
            thread.join(self.patience)
        assert not any(thread.is_alive() for thread in self._threads), "a call has not come back"

    def live(self, number: int) -> None:
        """What one client does."""
        raise NotImplementedError
