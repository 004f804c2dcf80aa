"""``exactline serve``: the library as a gRPC service, until it is told to end."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ..console.output import say_json
from ..optional import require_package
from .restrict import byte_count

LIMITS = "limits"  # the heading of options that are limits


def serve(
    host: Annotated[str, typer.Option(help="Where to listen; other machines only with TLS and a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free; it is told in the log.")] = 50051,
    models: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder of networks, served by name.")] = None,
    allow_upload: Annotated[bool, typer.Option("--allow-upload", help="Let clients send networks.")] = False,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
    workers: Annotated[int, typer.Option(help="Processes that work; 0 for one a processor.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads of each; 0 for an equal share.")] = 0,
    tls_cert: Annotated[Path | None, typer.Option(metavar="PEM", help="The server's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its key.")] = None,
    client_ca: Annotated[Path | None, typer.Option(metavar="PEM", help="Ask clients for certificates of this.")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Tokens that let in, one a line.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen to other machines without either.")] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="Tell clients which calls there are.")] = False,
    lines: Annotated[int | None, typer.Option("--max-lines", help="Of one call.", rich_help_panel=LIMITS)] = None,
    breaks: Annotated[int | None, typer.Option("--max-breaks", help="Of one line.", rich_help_panel=LIMITS)] = None,
    seconds: Annotated[float | None, typer.Option("--max-seconds", help="Of a call.", rich_help_panel=LIMITS)] = None,
    calls: Annotated[int | None, typer.Option("--max-calls", help="At one time.", rich_help_panel=LIMITS)] = None,
    queue: Annotated[int | None, typer.Option("--max-queue", help="Waiting calls.", rich_help_panel=LIMITS)] = None,
    memory: Annotated[str | None, typer.Option(help="Of a worker: 512M, 8G.", rich_help_panel=LIMITS)] = None,
    cache: Annotated[str | None, typer.Option(help="A worker's models: 1G.", rich_help_panel=LIMITS)] = None,
    drain: Annotated[float | None, typer.Option(help="Seconds to end calls in.", rich_help_panel=LIMITS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Tell where it listens as one JSON document.")] = False,
) -> None:
    """Serve exact restrictions over gRPC, to our own clients and to those of SyReNN.

    SIGTERM and Ctrl-C let calls in flight end; a second one does not. The log is JSON on standard error.

    Example: exactline serve --models networks/
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the log is ours
    with require_package("The server needs grpcio.", where="serve", hint='pip install "exactline[serve]"'):
        from ..rpc.limits import Limits
        from ..rpc.server.access import read_tokens
        from ..rpc.server.server import Server, Settings

    given: dict[str, Any] = {
        "lines_per_call": lines,
        "breaks_per_line": breaks,
        "seconds": seconds,
        "concurrent_calls": calls,
        "queue_length": queue,
        "worker_bytes": None if memory is None else byte_count(memory),
        "cache_bytes": None if cache is None else byte_count(cache),
        "drain_seconds": drain,
    }
    settings = Settings(
        host,
        port,
        models,
        device,
        workers,
        threads,
        tls_cert,
        tls_key,
        client_ca,
        () if token_file is None else read_tokens(token_file),
        allow_upload,
        reflection,
        insecure,
        Limits(**{name: value for name, value in given.items() if value is not None}),
    )
    told = threading.Event()
    _listen(told)
    server = Server(settings).start()
    if as_json:
        say_json(
            {"address": server.address, "port": server.port, "workers": server.pool.size, "tls": tls_cert is not None}
        )
    told.wait()
    _listen(None)
    server.stop()


def _listen(told: threading.Event | None) -> None:
    """Let signals end the server kindly; or, with None, as they do by themselves."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if told is None else lambda *_: told.set())
