"""The server: its settings checked, its workers started, its services put behind one door, and its end.

with Server(Settings(port=0, models=folder)) as server:
    client = Client(server.address)
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from ...errors import ArgumentError, FileError, ServiceError
from ...optional import require_package
from ..legacy import handler as syrenn
from ..limits import MIB, Limits
from . import service
from .access import TokenGuard, is_loopback
from .call import Expired, Refused
from .interceptor import Door
from .ipc import Job
from .log import Log
from .pool import Pool
from .service import Service
from .store import Store

PATIENCE = 120.0  # seconds for a worker to try its device
MORE = 16  # calls that may come in beyond the limit, to be told so
PING = 10_000  # milliseconds between two pings of a client, at least


@dataclass(frozen=True)
class Settings:
    """How a server is to be run."""

    host: str = "127.0.0.1"
    port: int = 50051  # 0 for any that is free
    models: Path | None = None
    device: str = "cpu"
    workers: int = 0  # 0 for as many as there are processors
    threads: int = 0  # of each worker; 0 for an equal share of the processors
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    tokens: tuple[bytes, ...] = field(default=(), repr=False)
    allow_upload: bool = False
    reflection: bool = False
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None) or (self.client_ca and not self.tls_cert):
            raise ArgumentError(
                "TLS needs a certificate and its key.", where="--tls-cert, --tls-key", hint="Give both or neither."
            )
        guarded = self.tls_cert is not None and (bool(self.tokens) or self.client_ca is not None)
        if not (is_loopback(self.host) or guarded or self.insecure):
            raise ArgumentError(
                f"{self.host} is reached from other machines, and there is no TLS or no token.",
                where="--host",
                hint="Give --tls-cert, --tls-key and --token-file (or --client-ca); or --insecure, if you must.",
            )
        if self.models is not None and not self.models.is_dir():
            raise FileError("The folder of models is not there.", where="--models", hint="Give a folder.")
        if not 0 <= self.port < 65536 or self.workers < 0 or self.threads < 0:
            raise ArgumentError(
                "A port, or a number of workers or threads, makes no sense.", where="serve", hint="Give 0 or more."
            )

    @property
    def processes(self) -> tuple[int, int]:
        """Workers, and threads of each."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or processors
        return workers, self.threads or max(1, processors // workers)


class Server:
    """A server that runs, once it is started, until it is stopped."""

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings, self.log = settings, log or Log()
        workers, threads = settings.processes
        self.pool = Pool(workers, settings.limits, device=settings.device, threads=threads)
        self.store = Store(settings.models, settings.limits)
        self.door = Door(self.pool, settings.limits, self.log)
        self.port = settings.port
        self._server: grpc.Server | None = None
        self._health: Any = None
        self._stopping = threading.Lock()

    @property
    def address(self) -> str:
        """Where clients find it."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{host}:{self.port}"

    def start(self) -> Self:
        """Start the workers, then listen."""
        credentials = self._credentials()
        self.pool.start()
        try:
            self._probe()
            self._server = self._made()
            self.port = self._bound(self._server, credentials)
            self._server.start()
        except BaseException:
            self.pool.close()
            raise
        self.log("started", address=self.address, workers=self.pool.size, tls=credentials is not None)
        return self

    def _probe(self) -> None:
        """Refuse a device that cannot be used before anybody asks for it."""
        try:
            list(self.pool.call(Job("probe"), PATIENCE))
        except Refused as refused:
            raise ArgumentError(
                str(refused.facts.get("problem", "")), where="--device", hint=str(refused.facts.get("hint", ""))
            ) from None
        except Expired:
            raise ServiceError("The workers do not answer.", where="serve", hint="Is the device in use?") from None

    def wait(self) -> None:
        """Until somebody stops it."""
        if self._server is not None:
            self._server.wait_for_termination()

    def stop(self, grace: float | None = None) -> None:
        """Take no more calls, let those in flight end within the grace, then end everything."""
        with self._stopping:
            if self._server is None:
                return
            self.log("draining", in_flight=self.door.tally.in_flight)
            self._health.enter_graceful_shutdown()
            self._server.stop(self.settings.limits.drain_seconds if grace is None else grace).wait()
            self.pool.close()
            self._server = None
            self.log("stopped")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(0)

    def _made(self) -> grpc.Server:
        limits, guards = self.settings.limits, []
        if self.settings.tokens:
            guards.append(TokenGuard(self.settings.tokens, self.log, self.door.tally))
        most = max(limits.message_bytes, limits.old_message_bytes) + MIB  # our own refusal has a name, gRPC's has none
        threads = limits.concurrent_calls + MORE
        server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="call"),
            interceptors=guards,
            maximum_concurrent_rpcs=threads,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", most),
                ("grpc.max_concurrent_streams", limits.streams),
                ("grpc.max_connection_age_ms", int(limits.connection_seconds * 1000)),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", PING),
            ],
        )
        ours = Service(self.door, self.store, self.settings.allow_upload).handler()
        server.add_generic_rpc_handlers((ours, syrenn.handler(self.door)))
        self._side_doors(server)
        return server

    def _side_doors(self, server: grpc.Server) -> None:
        """Health and, if asked, reflection."""
        with require_package(
            "The server needs grpcio-health-checking.", where="serve", hint='pip install "exactline[serve]"'
        ):
            from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in ("", service.NAME, syrenn.NAME):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if self.settings.reflection:
            from grpc_reflection.v1alpha import reflection

            from ..protos.syrenn_server_pb2 import DESCRIPTOR as old  # it is known once it is imported

            names = (service.NAME, f"{old.package}.SyReNNTransformer", health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)

    def _credentials(self) -> grpc.ServerCredentials | None:
        settings = self.settings
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        try:
            pair = settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()
            roots = settings.client_ca.read_bytes() if settings.client_ca is not None else None
        except OSError as problem:
            raise FileError(
                f"A file of TLS cannot be read: {problem.strerror}.",
                where="--tls-cert, --tls-key, --client-ca",
                hint="Give PEM files.",
            ) from problem
        return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)

    def _bound(self, server: grpc.Server, credentials: grpc.ServerCredentials | None) -> int:
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
                hint="Is the port taken? With TLS: is the key that of the certificate?",
            )
        return port
