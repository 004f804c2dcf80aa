"""The server: starts the workers and the gRPC services in an event loop of its own, and shuts them down.

with Server(Settings(port=0, models=folder)) as server:
    client = Client(server.address)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from ...errors import ArgumentError, ExactlineError, ServiceError
from ..limits import MIB
from .access import Access, Gate
from .call import JobFailed, WorkerCall
from .certificates import Certificates
from .clients import ClientUsage
from .connections import Connections
from .descriptors import possible_connections
from .front import Front
from .health import Health
from .ipc import WorkerJob
from .log import Log
from .metrics import Metrics, MetricsServer
from .pool import WorkerPool
from .reflection import reflection_handlers
from .service import ExactlineService
from .settings import Settings as Settings
from .store import ModelStore
from .unix_socket import SocketFile

PROBE_SECONDS = 120.0  # for a worker to check its device
MIN_PING_MILLISECONDS = 10_000  # between two pings of a client
KEEPALIVE_TIMEOUT_MILLISECONDS = 20_000  # for the answer to a ping
NO_COMPRESSION = 1  # the set of algorithms that has only "identity"
Result = TypeVar("Result")


class Server:
    """A gRPC server for `Client`, `AsyncClient` and clients of the legacy protocol.

    As a context manager it starts on entry and stops on exit; see the example of `Client`.

    Args:
        settings: address, models, access and limits.
        log: where to write the log; by default standard error.

    Raises ArgumentError, FileError, MissingError, or ServiceError if it cannot start.
    """

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings, self.log = settings, log or Log()
        self.access = Access(settings.read_tokens())
        workers, threads = settings.processes
        limits = settings.limits
        self.pool = WorkerPool(workers, limits, device=settings.device, threads=threads)
        self._share_workers()
        self.store = ModelStore(settings.models, limits)
        metrics = None if settings.metrics_port is None else Metrics()
        self.front = Front(self.pool, limits, self.log, metrics)
        self.front.stored_bytes = lambda: self.store.uploads[1]
        self.health = Health(self._is_ready)
        self.metrics = None if metrics is None else MetricsServer(metrics, self._is_ready)
        self.port = settings.port
        self._handlers = ExactlineService(self.store, settings.allow_upload).handlers()
        # of calls that count against no limit on calls
        self._free_handlers = self.health.handlers() | (reflection_handlers() if settings.reflection else {})
        self._certificates = Certificates(settings)
        self._socket_file = None if settings.socket is None else SocketFile(settings.socket)
        self._server: grpc.aio.Server | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._log_fault)
        self._thread = threading.Thread(target=self._loop.run_forever, name="front", daemon=True)
        self._is_draining = False
        self._stopped, self._lock = threading.Event(), threading.Lock()

    @property
    def address(self) -> str:
        """The address for clients, "host:port" or "unix:path"."""
        if self.settings.socket is not None:
            return f"unix:{self.settings.socket.absolute()}"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{host}:{self.port}"

    def start(self) -> Self:
        """Start the workers, then listen; returns when clients can connect."""
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._run(self.pool.close())
            self._stop_loop()
            raise
        facts: dict[str, Any] = {} if self.metrics is None else {"metrics_port": self.metrics.port}
        tls = self.settings.tls_cert is not None
        self.log("started", address=self.address, workers=self.pool.size, tls=tls, **facts)
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            self.log("root", "warning", problem="The server runs as root.", hint="Run it as a user of its own.")
        return self

    def wait(self) -> None:
        """Wait until the server is stopped."""
        self._stopped.wait()

    def reload(self) -> None:
        """Read the token file and the certificates again; if one is not valid, the old ones stay."""
        try:
            tokens = self.settings.read_tokens()
            self._certificates.reload()
        except ExactlineError as problem:
            self.log("reload", "error", problem=problem.problem)
            return
        self._loop.call_soon_threadsafe(self._replace_tokens, tokens)
        self.log("reload", tokens=len(tokens))

    def _replace_tokens(self, tokens: tuple[bytes, ...]) -> None:
        self.access.replace_tokens(tokens)
        self._share_workers()

    def _share_workers(self) -> None:
        """Decide how many workers one client may have: all but one if there are several clients."""
        several = self.access.token_count > 1 or self.settings.client_ca is not None
        share = max(1, self.pool.size - 1) if several else self.pool.size
        self.pool.client_workers = self.settings.limits.client_workers or share

    def stop(self, grace: float | None = None) -> None:
        """Refuse new calls, give calls in flight time to end, then end them and the workers.

        Args:
            grace: seconds for the calls in flight; by default the limit drain_seconds.
        """
        with self._lock:
            if self._server is None:
                return
            self.log("draining", in_flight=self.front.counters.in_flight)
            self._run(self._stop(self.settings.limits.drain_seconds if grace is None else grace))
            self._server = None
            self._stop_loop()
            self.log("stopped")
            self.log.close()
            self._stopped.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(0)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _log_fault(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what failed in the event loop and not in a call; by default it would be written without the log."""
        fault = type(context.get("exception")).__name__
        self.log.once_a_second("event loop", "error", problem=str(context.get("message", "")), fault=fault)

    def _is_ready(self) -> bool:
        return self.pool.is_usable and not self._is_draining

    async def _start(self) -> None:
        await self.pool.start()
        await self._probe_device()
        self._server = self._create_grpc_server()
        self.port = self.front.port = self._bind(self._server)
        await self._start_metrics()
        await self._server.start()
        self._supervisor = asyncio.create_task(self.front.supervise())

    async def _stop(self, grace: float) -> None:
        self._is_draining = True
        if self._server is not None:
            await self._server.stop(grace)
        if self._supervisor is not None:
            self._supervisor.cancel()
        if self.metrics is not None:
            await self.metrics.stop()
        await self.pool.close()
        if self._socket_file is not None:
            self._socket_file.remove()

    async def _probe_device(self) -> None:
        """Check that a worker can use the device."""

        async def ignore(_: bytes) -> None:
            pass

        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await WorkerCall(self.pool, ClientUsage("server"), WorkerJob("probe")).run(ignore)
        except JobFailed as failure:
            raise ArgumentError(
                str(failure.error.get("problem", "")), where="--device", hint=str(failure.error.get("hint", ""))
            ) from None
        except TimeoutError:
            raise ServiceError("The workers do not answer.", where="serve", hint="Is the device in use?") from None

    async def _start_metrics(self) -> None:
        if self.metrics is None:
            return
        self.metrics.metrics.watch(self.front, lambda: self.store.uploads)
        host, port = self.settings.metrics_host, self.settings.metrics_port or 0
        try:
            await self.metrics.start(host, port)
        except OSError as problem:
            raise ServiceError(
                f"The metrics cannot be served on {host}:{port}: {problem.strerror}.",
                where="--metrics-host, --metrics-port",
                hint="Is the port in use?",
            ) from problem

    def _create_grpc_server(self) -> grpc.aio.Server:
        limits, max_connections = self.settings.limits, self._max_connections()
        if self._socket_file is None:
            self.front.connections = Connections(max_connections)
        # above both limits, so that a message that exceeds one is refused with the name of the limit
        max_message_bytes = max(limits.message_bytes, limits.legacy_message_bytes) + MIB
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.compression_enabled_algorithms_bitset", NO_COMPRESSION),
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", max_message_bytes),
                ("grpc.max_concurrent_streams", limits.calls_per_connection),
                ("grpc.max_allowed_incoming_connections", max_connections),
                ("grpc.server_handshake_timeout_ms", int(limits.first_message_seconds * 1000)),
                ("grpc.http2.settings_timeout", int(limits.first_message_seconds * 1000)),
                ("grpc.max_connection_age_ms", int(limits.connection_seconds * 1000)),
                ("grpc.max_connection_idle_ms", int(limits.connection_idle_seconds * 1000)),
                ("grpc.keepalive_time_ms", int(limits.keepalive_seconds * 1000)),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
                ("grpc.http2.bdp_probe", 0),  # keeps what gRPC buffers of calls that do not read small
                ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_MILLISECONDS),
            ],
        )
        gate = Gate(self.access, self._find_handler, self.log, self.front.counters)
        server.add_generic_rpc_handlers((gate,))
        return server

    def _max_connections(self) -> int:
        """Return the number of connections that the server accepts, and log it if it is less than the limit."""
        wanted = self.settings.limits.connections
        count = possible_connections(wanted, self.pool.size)
        if count < wanted:
            self.log("connections", "warning", limit=wanted, possible=count, hint="Raise the limit of open files.")
        return count

    def _find_handler(self, path: str, client: ClientUsage | None) -> Any:
        """Return the gRPC handler of a method, None if there is none."""
        client_or_finder = client or self.access.find_peer
        if path in self._free_handlers:
            return self.front.bind(*self._free_handlers[path], client_or_finder, is_free=True)
        return self.front.bind(*self._handlers[path], client_or_finder) if path in self._handlers else None

    def _bind(self, server: grpc.aio.Server) -> int:
        """Bind the address; returns the port."""
        port = 0
        credentials = self._certificates.credentials()
        is_file = self._socket_file is not None
        file = contextlib.nullcontext() if self._socket_file is None else self._socket_file.bind()
        with file, contextlib.suppress(RuntimeError):
            if credentials is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, credentials)
        if not port:
            raise ServiceError(
                f"The server cannot listen on {self.address}.",
                where="--socket" if is_file else "--host, --port",
                hint="Does its folder exist, and has the path fewer than 100 characters?"
                if is_file
                else "Is the port in use?",
            )
        return port
