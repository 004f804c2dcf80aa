"""``exactline serve``: the library as a gRPC service, until a signal stops it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ..console.inputs import parse_bytes
from ..console.output import print_json
from ..errors import ArgumentError, FileError
from ..optional import require_package

LIMITS_PANEL = "limits"  # the heading of options that are limits
ENVIRONMENT_PREFIX = "EXACTLINE_SERVE"  # of the variables that stand for options, such as EXACTLINE_SERVE_PORT


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Read options from a TOML file; those given on the command line or in the environment come first.

    Raises FileError if the file cannot be read, ArgumentError if it has an option that does not exist.
    """
    import tomllib

    if path is None or context.resilient_parsing:
        return path
    try:
        with path.open("rb") as file:
            given: dict[str, Any] = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise FileError(f"The file cannot be read: {problem}.", where="--config", hint="Give a TOML file.") from problem
    limits = given.pop("limits", {})
    options = {name.replace("-", "_"): value for name, value in given.items()}
    known = {parameter.name for parameter in context.command.params} - {"config"}
    unknown = sorted(set(options) - known)
    if unknown or not isinstance(limits, dict):
        raise ArgumentError(
            f"There is no option {unknown[0]!r}." if unknown else "limits is not a table.",
            where="--config",
            hint="exactline serve --help lists the options; limits are in a table [limits].",
        )
    if limits:
        options["limit"] = [f"{name}={value}" for name, value in limits.items()]
    context.default_map = options
    return path


def serve(
    config: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="Read options from a file.", callback=read_config, is_eager=True),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines may connect only with TLS and a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port; the log shows it.")] = 50051,
    socket: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Listen on a Unix socket, for this user only, instead.")
    ] = None,
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
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics (Prometheus) and /healthz over HTTP; 0 takes any free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address of the metrics, which need no token.")] = "127.0.0.1",
    log_level: Annotated[str, typer.Option(help="The least important lines to log: debug, info, warning, error.")] = (
        "info"
    ),
    max_lines: Annotated[int | None, typer.Option(help="Lines of one call.", rich_help_panel=LIMITS_PANEL)] = None,
    max_breaks: Annotated[int | None, typer.Option(help="Breaks of one line.", rich_help_panel=LIMITS_PANEL)] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Seconds of one call.", rich_help_panel=LIMITS_PANEL)
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Concurrent calls.", rich_help_panel=LIMITS_PANEL)] = None,
    max_queue: Annotated[
        int | None, typer.Option(help="Calls that wait for a worker.", rich_help_panel=LIMITS_PANEL)
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
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="Any limit, such as front_bytes=2G.", rich_help_panel=LIMITS_PANEL),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON document.")] = False,
) -> None:
    """Serve exact restrictions over gRPC, to exactline clients and to clients of SyReNN.

    SIGTERM and Ctrl-C let calls in flight end; a second signal ends them. SIGHUP reads tokens and certificates again.
    The log is JSON on standard error. Every option can be given as an environment variable, EXACTLINE_SERVE_PORT for
    --port, or in a TOML file.

    Example: exactline serve --models networks/
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # keeps standard error for the log
    with require_package("The server needs grpcio.", where="serve", hint='pip install "exactline[serve]"'):
        from ..rpc.limits import Limits
        from ..rpc.server.descriptors import raise_limit
        from ..rpc.server.log import LibraryLog, Log
        from ..rpc.server.server import Server
        from ..rpc.server.settings import Settings

    limits: dict[str, Any] = {
        "lines_per_call": max_lines,
        "breaks_per_line": max_breaks,
        "call_seconds": max_seconds,
        "concurrent_calls": max_calls,
        "queue_length": max_queue,
        "worker_bytes": None if memory is None else parse_bytes(memory),
        "cache_bytes": None if cache is None else parse_bytes(cache),
        "drain_seconds": drain,
    }
    limits = {name: value for name, value in limits.items() if value is not None} | _parse_limits(limit or [], Limits)
    settings = Settings(
        host=host,
        port=port,
        socket=socket,
        models=models,
        device=device,
        workers=workers,
        threads=threads,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        token_file=token_file,
        allow_upload=allow_upload,
        reflection=reflection,
        insecure=insecure,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        limits=Limits(**limits),
    )
    stop = threading.Event()
    _handle_signals(stop)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    log = Log(level=log_level)
    logging.getLogger().addHandler(LibraryLog(log))
    logging.captureWarnings(True)
    raise_limit()
    server = Server(settings, log).start()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: server.reload())
    if as_json:
        tls = tls_cert is not None
        print_json({"address": server.address, "port": server.port, "workers": server.pool.size, "tls": tls})
    stop.wait()
    _handle_signals(None)
    server.stop()


def _parse_limits(given: list[str], limits_type: Any) -> dict[str, Any]:
    """Return limits given as name=value; bytes may have a unit.

    Raises ArgumentError if a limit does not exist or its value is not a number.
    """
    kinds = {field.name: type(field.default) for field in fields(limits_type)}
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise ArgumentError(
                f"There is no limit {name!r}.", where="--limit", hint=f"Give one of {', '.join(kinds)}, as name=value."
            )
        try:
            found[name] = parse_bytes(value) if name.endswith("_bytes") else kinds[name](value)
        except ValueError:
            raise ArgumentError(f"{value!r} is not a number.", where=f"limit {name}", hint="Give name=value.") from None
    return found


def _handle_signals(stop: threading.Event | None) -> None:
    """Let SIGTERM and SIGINT set an event; None restores their default action."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if stop is None else lambda *_: stop.set())
