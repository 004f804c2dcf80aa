"""Metrics for Prometheus and a readiness check over HTTP, on a port of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...optional import require_package
from .memory import resident_bytes

if TYPE_CHECKING:
    from .front import Front

REQUEST_SECONDS = 5.0  # for a scraper to send its request and read the answer
MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 32
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The server's metrics; gauges are read when they are scraped.

    Raises MissingError without prometheus-client.
    """

    def __init__(self) -> None:
        with require_package(
            "Metrics need prometheus-client.", where="--metrics-port", hint='pip install "exactline[serve]"'
        ):
            import prometheus_client
        self._library: Any = prometheus_client
        self.registry = prometheus_client.CollectorRegistry()
        self._calls = prometheus_client.Counter(
            "exactline_calls", "Calls that have ended.", ["method", "code"], registry=self.registry
        )
        self._seconds = prometheus_client.Histogram(
            "exactline_call_seconds", "Duration of calls.", ["method"], buckets=LATENCY_BUCKETS, registry=self.registry
        )
        self._queue_seconds = prometheus_client.Histogram(
            "exactline_queue_seconds",
            "Time that calls waited for a worker.",
            ["method"],
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )

    def record_call(self, method: str, code: str, seconds: float, queue_seconds: float) -> None:
        """Count a call that has ended."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)
        self._queue_seconds.labels(method).observe(queue_seconds)

    def watch(self, front: Front, uploads: Callable[[], tuple[int, int]]) -> None:
        """Report the state of a server: its calls, workers, memory and cache."""

        def gauge(name: str, what: str, read: Callable[[], float]) -> None:
            self._library.Gauge(f"exactline_{name}", what, registry=self.registry).set_function(read)

        def pool(name: str) -> Callable[[], float]:
            return lambda: float(getattr(front.pool.stats(), name))

        def cache(name: str) -> Callable[[], float]:
            return lambda: float(front.pool.stats().cache[name])

        def counter(name: str) -> Callable[[], float]:
            return lambda: float(getattr(front.pool.counters, name))

        for name, what, read in (
            ("calls_in_flight", "Calls that run or wait for a worker.", lambda: float(front.counters.in_flight)),
            ("calls_queued", "Calls that wait for a worker.", pool("queued")),
            ("workers", "Worker processes.", pool("workers")),
            ("workers_busy", "Worker processes that run a call.", pool("busy")),
            ("workers_forked", "Worker processes started since the start.", counter("forked")),
            ("workers_killed", "Workers ended because their call ended early.", counter("killed")),
            ("workers_died", "Workers that ended by themselves.", counter("died")),
            ("calls_retried", "Calls that were run once more.", counter("retried")),
            ("front_held_bytes", "Messages and uploads in transit.", lambda: float(front.budget.held)),
            ("front_resident_bytes", "Memory of the front process.", lambda: float(resident_bytes())),
            ("models_cached", "Networks that workers keep.", cache("models")),
            ("model_cache_bytes", "Memory of these networks.", cache("bytes")),
            ("model_cache_hits", "Jobs whose network was cached.", cache("hits")),
            ("model_cache_misses", "Jobs whose network was not cached.", cache("misses")),
            ("uploads", "Uploaded models that are kept.", lambda: float(uploads()[0])),
            ("upload_bytes", "Memory of these models.", lambda: float(uploads()[1])),
            ("log_lines_dropped", "Lines of the log that nobody read.", lambda: float(front.log.dropped)),
        ):
            gauge(name, what, read)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's format."""
        return self._library.generate_latest(self.registry)


class MetricsServer:
    """Answers /metrics, /healthz and /readyz over HTTP; at most a few connections at a time.

    Args:
        metrics: what /metrics shows.
        is_ready: whether the server takes calls.
    """

    def __init__(self, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        self.metrics, self.is_ready, self.port = metrics, is_ready, 0
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self, host: str, port: int) -> None:
        """Listen on an address."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    request = await reader.readuntil(b"\r\n\r\n")
                    status, body = self._respond(request.split(b" ", 2)[:2])
                    writer.writelines(_http_response(status, body))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the scraper is gone or not one
        finally:
            self._connections -= 1
            with contextlib.suppress(OSError):
                writer.close()

    def _respond(self, words: Iterable[bytes]) -> tuple[str, bytes]:
        match list(words):
            case [b"GET", b"/metrics"]:
                return "200 OK", self.metrics.text()
            case [b"GET", b"/readyz" | b"/healthz"]:
                return ("200 OK", b"ready\n") if self.is_ready() else ("503 Service Unavailable", b"not ready\n")
            case [b"GET", b"/livez"]:
                return "200 OK", b"alive\n"
            case _:
                return "404 Not Found", b"try /metrics, /healthz or /readyz\n"


def _http_response(status: str, body: bytes) -> list[bytes]:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return [head.encode(), body]
