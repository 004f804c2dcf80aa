"""The server: checks its settings, starts the workers and the gRPC services, and shuts down.

with Server(Settings(port=0, models=folder)) as server:
    client = Client(server.address)
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import grpc

from ...errors import ArgumentError, FileError, ServiceError
from ...optional import require_package
from .. import LEGACY_SERVICE_NAME, SERVICE_NAME
from ..legacy.handler import create_handler
from ..limits import MIB, Limits
from .access import TokenInterceptor, is_loopback
from .call import CallExpired, JobFailed
from .interceptor import Interceptor
from .ipc import WorkerJob
from .log import Log
from .pool import WorkerPool
from .service import ExactlineService
from .store import ModelStore

PROBE_SECONDS = 120.0  # for a worker to check its device
SPARE_THREADS = 16  # for calls beyond the limit, which are refused with its name
MIN_PING_MILLISECONDS = 10_000  # between two pings of a client


@dataclass(frozen=True)
class Settings:
    """The settings of a server, checked.

    >>> Settings(port=0, workers=2).host
    '127.0.0.1'

    Raises ArgumentError if settings are unsafe or contradict each other, FileError if the folder does not exist.
    """

    host: str = "127.0.0.1"  # the address to listen on; others than loopback need TLS and tokens or client certificates
    port: int = 50051  # 0 takes any free port
    models: Path | None = None  # a folder of networks (ONNX, .nnet, ERAN), served by name
    device: str = "cpu"  # where to compute: "cpu" or "cuda"
    workers: int = 0  # number of worker processes; 0 for one per processor
    threads: int = 0  # of each worker; 0 for an equal share of the processors
    tls_cert: Path | None = None  # a PEM file with the server's certificate
    tls_key: Path | None = None  # a PEM file with its key
    client_ca: Path | None = None  # a PEM file with the authorities that must have signed the clients' certificates
    tokens: tuple[bytes, ...] = field(default=(), repr=False)  # every call must carry one of them
    allow_upload: bool = False  # whether clients may upload networks
    reflection: bool = False  # whether clients may list the methods
    insecure: bool = False  # allows other machines to connect without TLS and tokens
    limits: Limits = field(default_factory=Limits)  # how much calls and workers may use

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None) or (self.client_ca and not self.tls_cert):
            raise ArgumentError(
                "TLS needs a certificate and its key.", where="--tls-cert, --tls-key", hint="Give both or neither."
            )
        protected = self.tls_cert is not None and (bool(self.tokens) or self.client_ca is not None)
        if not (is_loopback(self.host) or protected or self.insecure):
            raise ArgumentError(
                f"Other machines can reach {self.host}, and TLS or a token is missing.",
                where="--host",
                hint="Give --tls-cert, --tls-key and --token-file (or --client-ca); or --insecure, if you must.",
            )
        if self.models is not None and not self.models.is_dir():
            raise FileError("The folder of models does not exist.", where="--models", hint="Give a folder.")
        if not 0 <= self.port < 65536 or self.workers < 0 or self.threads < 0:
            raise ArgumentError(
                "The port or the number of workers or threads is out of range.", where="serve", hint="Give 0 or more."
            )

    @property
    def processes(self) -> tuple[int, int]:
        """The number of workers, and the number of threads of each."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or processors
        return workers, self.threads or max(1, processors // workers)


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
        workers, threads = settings.processes
        self.pool = WorkerPool(workers, settings.limits, device=settings.device, threads=threads)
        self.store = ModelStore(settings.models, settings.limits)
        self.interceptor = Interceptor(self.pool, settings.limits, self.log)
        self.port = settings.port
        self._server: grpc.Server | None = None
        self._health: Any = None
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The address for clients, "host:port"."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{host}:{self.port}"

    def start(self) -> Self:
        """Start the workers, then listen; returns when clients can connect."""
        credentials = self._read_credentials()
        self.pool.start()
        try:
            self._probe_device()
            self._server = self._create_grpc_server()
            self.port = self._bind(self._server, credentials)
            self._server.start()
        except BaseException:
            self.pool.close()
            raise
        self.log("started", address=self.address, workers=self.pool.size, tls=credentials is not None)
        return self

    def _probe_device(self) -> None:
        """Check that a worker can use the device."""
        try:
            list(self.pool.new_call(WorkerJob("probe"), PROBE_SECONDS))
        except JobFailed as failure:
            raise ArgumentError(
                str(failure.error.get("problem", "")), where="--device", hint=str(failure.error.get("hint", ""))
            ) from None
        except CallExpired:
            raise ServiceError("The workers do not answer.", where="serve", hint="Is the device in use?") from None

    def wait(self) -> None:
        """Wait until the server is stopped."""
        if self._server is not None:
            self._server.wait_for_termination()

    def stop(self, grace: float | None = None) -> None:
        """Refuse new calls, give calls in flight time to end, then end them and the workers.

        Args:
            grace: seconds for the calls in flight; by default the limit drain_seconds.
        """
        with self._lock:
            if self._server is None:
                return
            self.log("draining", in_flight=self.interceptor.counters.in_flight)
            self._health.enter_graceful_shutdown()
            self._server.stop(self.settings.limits.drain_seconds if grace is None else grace).wait()
            self.pool.close()
            self._server = None
            self.log("stopped")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(0)

    def _create_grpc_server(self) -> grpc.Server:
        limits, interceptors = self.settings.limits, []
        if self.settings.tokens:
            interceptors.append(TokenInterceptor(self.settings.tokens, self.log, self.interceptor.counters))
        # above both limits, so that a message that exceeds one is refused with the name of the limit
        max_message_bytes = max(limits.message_bytes, limits.legacy_message_bytes) + MIB
        threads = limits.concurrent_calls + SPARE_THREADS
        server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="call"),
            interceptors=interceptors,
            maximum_concurrent_rpcs=threads,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", max_message_bytes),
                ("grpc.max_concurrent_streams", limits.calls_per_connection),
                ("grpc.max_connection_age_ms", int(limits.connection_seconds * 1000)),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_MILLISECONDS),
            ],
        )
        service = ExactlineService(self.interceptor, self.store, self.settings.allow_upload)
        server.add_generic_rpc_handlers((service.create_handler(), create_handler(self.interceptor)))
        self._add_health_and_reflection(server)
        return server

    def _add_health_and_reflection(self, server: grpc.Server) -> None:
        with require_package(
            "The server needs grpcio-health-checking.", where="serve", hint='pip install "exactline[serve]"'
        ):
            from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in ("", SERVICE_NAME, LEGACY_SERVICE_NAME):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if self.settings.reflection:
            from grpc_reflection.v1alpha import reflection

            import_module("exactline.rpc.protos.syrenn_server_pb2")  # reflection finds services whose code is imported
            names = (SERVICE_NAME, LEGACY_SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)

    def _read_credentials(self) -> grpc.ServerCredentials | None:
        settings = self.settings
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        try:
            pair = settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()
            roots = settings.client_ca.read_bytes() if settings.client_ca is not None else None
        except OSError as problem:
            raise FileError(
                f"A TLS file cannot be read: {problem.strerror}.",
                where="--tls-cert, --tls-key, --client-ca",
                hint="Give PEM files.",
            ) from problem
        return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)

    def _bind(self, server: grpc.Server, credentials: grpc.ServerCredentials | None) -> int:
        """Bind the address; returns the port."""
        port = 0
        with contextlib.suppress(RuntimeError):
            if credentials is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, credentials)
        if not port:
            raise ServiceError(
                f"The server cannot listen on {self.address}.",
                where="--host, --port",
                hint="Is the port in use? With TLS: does the key belong to the certificate?",
            )
        return port
