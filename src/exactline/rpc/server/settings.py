"""The settings of a server, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ArgumentError, FileError
from ..limits import Limits
from .access import is_loopback, read_tokens

MAX_PORT = 65535


@dataclass(frozen=True)
class Settings:
    """The settings of a server, checked.

    >>> Settings(port=0, workers=2).host
    '127.0.0.1'

    Raises ArgumentError if settings are unsafe or contradict each other, FileError if the folder does not exist.
    """

    host: str = "127.0.0.1"  # the address to listen on; others than loopback need TLS and tokens or client certificates
    port: int = 50051  # 0 takes any free port
    socket: Path | None = None  # a Unix socket to listen on instead
    models: Path | None = None  # a folder of networks (ONNX, .nnet, ERAN), served by name
    device: str = "cpu"  # where to compute: "cpu" or "cuda"
    workers: int = 0  # number of worker processes; 0 for one per processor
    threads: int = 0  # of each worker; 0 for an equal share of the processors
    tls_cert: Path | None = None  # a PEM file with the server's certificate
    tls_key: Path | None = None  # a PEM file with its key
    client_ca: Path | None = None  # a PEM file with the authorities that must have signed the clients' certificates
    tokens: tuple[bytes, ...] = field(default=(), repr=False)  # every call must carry one of them
    token_file: Path | None = None  # a file of more tokens, read again by `Server.reload`
    allow_upload: bool = False  # whether clients may upload networks
    reflection: bool = False  # whether clients may list the methods
    insecure: bool = False  # allows other machines to connect without TLS and tokens
    metrics_host: str = "127.0.0.1"  # the address of the metrics
    metrics_port: int | None = None  # for /metrics and /healthz over HTTP; 0 takes any free port, None serves none
    limits: Limits = field(default_factory=Limits)  # how much calls and workers may use

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None) or (self.client_ca and not self.tls_cert):
            raise ArgumentError(
                "TLS needs a certificate and its key.", where="--tls-cert, --tls-key", hint="Give both or neither."
            )
        has_tokens = bool(self.tokens) or self.token_file is not None
        protected = self.tls_cert is not None and (has_tokens or self.client_ca is not None)
        if not (self.socket is not None or is_loopback(self.host) or protected or self.insecure):
            raise ArgumentError(
                f"Other machines can reach {self.host}, and TLS or a token is missing.",
                where="--host",
                hint="Give --tls-cert, --tls-key and --token-file (or --client-ca); or --insecure, if you must.",
            )
        if self.socket is not None and self.tls_cert is not None:
            raise ArgumentError("A Unix socket takes no TLS.", where="--socket, --tls-cert", hint="Give one of them.")
        if self.models is not None and not self.models.is_dir():
            raise FileError("The folder of models does not exist.", where="--models", hint="Give a folder.")
        ports = self.port, self.metrics_port or 0
        if not all(0 <= port <= MAX_PORT for port in ports) or self.workers < 0 or self.threads < 0:
            raise ArgumentError(
                "The port or the number of workers or threads is out of range.", where="serve", hint="Give 0 or more."
            )

    @property
    def processes(self) -> tuple[int, int]:
        """The number of workers, and the number of threads of each."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or processors
        return workers, self.threads or max(1, processors // workers)

    def read_tokens(self) -> tuple[bytes, ...]:
        """Return all tokens, those of the file as it is now."""
        return (*self.tokens, *(() if self.token_file is None else read_tokens(self.token_file)))
