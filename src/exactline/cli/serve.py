"""``exactline serve``: the library as a gRPC service, until a signal stops it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ..console.inputs import parse_bytes
from ..console.output import print_json
from ..optional import require_package

LIMITS_PANEL = "limits"  # the heading of options that are limits


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines may connect only with TLS and a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port; the log shows it.")] = 50051,
    models: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder of networks, served by name.")] = None,
    allow_upload: Annotated[bool, typer.Option("--allow-upload", help="Let clients upload networks.")] = False,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
    workers: Annotated[int, typer.Option(help="Number of worker processes; 0 for one per processor.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads of each worker; 0 for an equal share.")] = 0,
    tls_cert: Annotated[Path | None, typer.Option(metavar="PEM", help="Certificate of the server.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Key of the certificate.")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Require client certificates signed by these authorities.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tokens of which clients must send one; one per line.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines connect without TLS and a token.")
    ] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="Let clients list the methods.")] = False,
    lines: Annotated[
        int | None, typer.Option("--max-lines", help="Lines of one call.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    breaks: Annotated[
        int | None, typer.Option("--max-breaks", help="Breaks of one line.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--max-seconds", help="Seconds of one call.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    calls: Annotated[
        int | None, typer.Option("--max-calls", help="Concurrent calls.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--max-queue", help="Calls that wait for a worker.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of one worker: 512M, 8G.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Networks that one worker caches: 1G.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    drain: Annotated[
        float | None, typer.Option(help="Seconds for calls in flight at shutdown.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON document.")] = False,
) -> None:
    """Serve exact restrictions over gRPC, to exactline clients and to clients of SyReNN.

    SIGTERM and Ctrl-C let calls in flight end; a second signal ends them. The log is JSON on standard error.

    Example: exactline serve --models networks/
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # keeps standard error for the log
    with require_package("The server needs grpcio.", where="serve", hint='pip install "exactline[serve]"'):
        from ..rpc.limits import Limits
        from ..rpc.server.access import read_tokens
        from ..rpc.server.server import Server, Settings

    limits: dict[str, Any] = {
        "lines_per_call": lines,
        "breaks_per_line": breaks,
        "call_seconds": seconds,
        "concurrent_calls": calls,
        "queue_length": queue,
        "worker_bytes": None if memory is None else parse_bytes(memory),
        "cache_bytes": None if cache is None else parse_bytes(cache),
        "drain_seconds": drain,
    }
    settings = Settings(
        host=host,
        port=port,
        models=models,
        device=device,
        workers=workers,
        threads=threads,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        tokens=() if token_file is None else read_tokens(token_file),
        allow_upload=allow_upload,
        reflection=reflection,
        insecure=insecure,
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
    )
    stop = threading.Event()
    _handle_signals(stop)
    server = Server(settings).start()
    if as_json:
        print_json(
            {"address": server.address, "port": server.port, "workers": server.pool.size, "tls": tls_cert is not None}
        )
    stop.wait()
    _handle_signals(None)
    server.stop()


def _handle_signals(stop: threading.Event | None) -> None:
    """Let SIGTERM and SIGINT set an event; None restores their default action."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if stop is None else lambda *_: stop.set())
