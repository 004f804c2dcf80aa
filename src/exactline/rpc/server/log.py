"""The server's log, one JSON object per line without data, tokens or paths, and the server's counters."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, TextIO


class Log:
    """Writes lines of JSON to standard error; lines of several threads do not mix."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event with its fields."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event} | fields)
        stream = sys.stderr if self.stream is None else self.stream
        with self._lock:
            try:
                stream.write(f"{line}\n")
                stream.flush()
            except (OSError, ValueError):
                pass  # nobody reads the log any more; the service continues


class ServerCounters:
    """Counts since the server started; hold `lock` to read or change several of them."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.calls: Counter[str] = Counter()  # by method and status, such as "Restrict OK"
        self.lines = self.breaks = self.in_flight = self.refused_tokens = 0
        self.lock = threading.Lock()

    def record_call(self, method: str, code: str, lines: int, breaks: int) -> None:
        """Count a call that has ended."""
        with self.lock:
            self.calls[f"{method} {code}"] += 1
            self.lines += lines
            self.breaks += breaks
