"""The server's log, one JSON object per line without data, tokens or paths, and the server's counters."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections import Counter, deque
from datetime import UTC, datetime
from typing import Any, TextIO

from ...errors import ArgumentError

LEVELS = ("debug", "info", "warning", "error")
MAX_QUEUED_LINES = 10_000  # that wait to be written; more are dropped and counted
MAX_LIBRARY_CHARS = 200  # of the message of a library
CLOSE_SECONDS = 2.0  # for the last lines to be written


class Log:
    """Writes lines of JSON to standard error without ever waiting for the program that reads them.

    Lines are written by a thread. If nobody reads them, they are dropped, and the next line that is written tells how
    many there were.

    Args:
        stream: where to write; by default standard error.
        level: the least important level that is written: "debug", "info", "warning" or "error".

    Raises ArgumentError if there is no such level.
    """

    def __init__(self, stream: TextIO | None = None, level: str = "info") -> None:
        if level not in LEVELS:
            raise ArgumentError(
                f"There is no level {level!r}.", where="--log-level", hint=f"Give one of {', '.join(LEVELS)}."
            )
        self.stream, self.dropped = stream, 0
        self._min_level = LEVELS.index(level)
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._written_at: dict[str, float] = {}  # by event, of those that may come very often

    def __call__(self, event: str, level: str = "info", **fields: Any) -> None:
        """Write one event with its fields."""
        if LEVELS.index(level) < self._min_level:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "level": level, "event": event} | fields)
        with self._changed:
            if len(self._lines) >= MAX_QUEUED_LINES:
                self.dropped += 1
                return
            if self.dropped:
                lost = {"time": now, "level": "warning", "event": "log", "dropped": self.dropped}
                self._lines.append(json.dumps(lost))
                self.dropped = 0
            self._lines.append(line)
            if self._thread is None:
                self._is_closing = False
                self._thread = threading.Thread(target=self._write_lines, name="log", daemon=True)
                self._thread.start()
            self._changed.notify()

    def once_a_second(self, event: str, level: str = "info", **fields: Any) -> None:
        """Write one event, unless an event of this name was written in the last second."""
        now = time.monotonic()
        if now - self._written_at.get(event, -math.inf) >= 1.0:
            self._written_at[event] = now
            self(event, level, **fields)

    def close(self) -> None:
        """Wait a moment for the last lines to be written."""
        with self._changed:
            self._is_closing, thread = True, self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _write_lines(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    if self._is_closing:
                        self._thread = None
                        return
                    self._changed.wait()
                text = "".join(f"{line}\n" for line in self._lines)
                self._lines.clear()
            stream = sys.stderr if self.stream is None else self.stream
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):
                pass  # nobody reads the log any more; the service continues


class LibraryLog(logging.Handler):
    """Writes what libraries report into the log of the server: without values, and at most a line a second of each."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: its library, the first line of its message without arguments, and the type of an error."""
        first_line = str(record.msg).partition("\n")[0][:MAX_LIBRARY_CHARS]
        fault = type(record.exc_info[1]).__name__ if record.exc_info and record.exc_info[1] else ""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._log.once_a_second(f"library {record.name}", level, problem=first_line, fault=fault)


class ServerCounters:
    """Counts since the server started."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.calls: Counter[str] = Counter()  # by method and status, such as "Restrict OK"
        self.lines = self.breaks = self.in_flight = self.refused_tokens = 0

    def record_call(self, method: str, code: str, lines: int, breaks: int) -> None:
        """Count a call that has ended."""
        self.calls[f"{method} {code}"] += 1
        self.lines += lines
        self.breaks += breaks
