"""What the server tells its operator: one JSON object a line, without data, tokens or paths; and what it counts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, TextIO


class Log:
    """Lines of JSON on standard error, whole even where many threads write."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream
        self._writing = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        """One event, with what there is to say of it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event} | facts)
        stream = sys.stderr if self.stream is None else self.stream
        with self._writing:
            try:
                stream.write(f"{line}\n")
                stream.flush()
            except (OSError, ValueError):
                pass  # whoever read it is gone; the service goes on


class Tally:
    """Counts since the start."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.calls: Counter[str] = Counter()
        self.lines = self.breaks = self.in_flight = self.refused_tokens = 0
        self.counting = threading.Lock()

    def ended(self, method: str, code: str, lines: int, breaks: int) -> None:
        """One more call is over."""
        with self.counting:
            self.calls[f"{method} {code}"] += 1
            self.lines += lines
            self.breaks += breaks
