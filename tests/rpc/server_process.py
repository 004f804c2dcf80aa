"""A server in a separate process, with the settings and limits of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

ROOT = Path(__file__).parents[2]
MAX_WAIT_SECONDS = 60.0  # for a loaded machine to start a server


@dataclass
class ServerProcess:
    """A running server."""

    address: str
    process: psutil.Process

    def children(self) -> list[psutil.Process]:
        """Return all descendants of the server."""
        return self.process.children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes: the children of the fork server."""
        return [child for parent in self.process.children() for child in parent.children()]

    def memory(self) -> int:
        """Return the bytes of memory that only the server and its descendants use."""
        total = 0
        for process in (self.process, *self.children()):
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:
                continue
        return total


@contextmanager
def start_server(
    *, limits: dict[str, object] | None = None, temporary: Path | None = None, **settings: object
) -> Iterator[ServerProcess]:
    """Start a server on a free port, and end it and its workers."""
    environment = {} if temporary is None else {"TMPDIR": str(temporary)}
    given = {"port": 0, "workers": 2, "threads": 1, "limits": limits or {}, **settings}
    command = [sys.executable, "-m", "tests.rpc.server_process", json.dumps(given, default=str)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the server did not start: {process.stderr.read()}")
            yield ServerProcess(address, psutil.Process(process.pid))
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(MAX_WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            process.stdout.close()
            process.stderr.close()


def wait_until(condition: Callable[[], object], seconds: float = MAX_WAIT_SECONDS) -> float:
    """Wait until a condition holds; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"the condition does not hold after {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - began


def main() -> None:
    from exactline.rpc.limits import Limits
    from exactline.rpc.server.log import Log
    from exactline.rpc.server.server import Server, Settings

    given = json.loads(sys.argv[1])
    paths = {name: Path(given[name]) for name in ("models", "tls_cert", "tls_key", "client_ca") if given.get(name)}
    tokens = {"tokens": tuple(token.encode() for token in given.get("tokens", ()))}
    log = Log(open(given.pop("log"), "w")) if "log" in given else Log(open("/dev/null", "w"))  # noqa: PTH123, SIM115
    server = Server(Settings(**(given | paths | tokens | {"limits": Limits(**given["limits"])})), log)

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.stop).start()  # calls in flight may end

    server.start()
    signal.signal(signal.SIGTERM, stop)
    print(server.address, flush=True)
    server.wait()


if __name__ == "__main__":
    main()
