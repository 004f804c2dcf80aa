"""A server in a process of its own, as an operator runs it, with any settings and limits a test wants."""

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
PATIENCE = 60.0  # seconds a loaded machine may take to start one


@dataclass
class Running:
    """A server that runs."""

    address: str
    process: psutil.Process

    def children(self) -> list[psutil.Process]:
        """All processes that it started, directly or not."""
        return self.process.children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Those that do the work: the grandchildren."""
        return [child for parent in self.process.children() for child in parent.children()]

    def memory(self) -> int:
        """Bytes of memory that it and its workers have to themselves."""
        total = 0
        for process in (self.process, *self.children()):
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:
                continue
        return total


@contextmanager
def running(
    *, limits: dict[str, object] | None = None, temporary: Path | None = None, **settings: object
) -> Iterator[Running]:
    """Start a server on a free port, and end it and whatever it started."""
    place = {} if temporary is None else {"TMPDIR": str(temporary)}
    given = {"port": 0, "workers": 2, "threads": 1, "limits": limits or {}, **settings}
    command = [sys.executable, "-m", "tests.rpc.running", json.dumps(given, default=str)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | place
    ) as process:
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the server did not start: {process.stderr.read()}")
            yield Running(address, psutil.Process(process.pid))
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            process.stdout.close()
            process.stderr.close()


def until(holds: Callable[[], object], seconds: float = PATIENCE) -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"does not hold after {seconds} s")
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

    def end(number: int, frame: FrameType | None) -> None:
        threading.Thread(
            target=server.stop
        ).start()  # as a server ends that is told to: whoever is in flight may finish

    server.start()
    signal.signal(signal.SIGTERM, end)
    print(server.address, flush=True)
    server.wait()


if __name__ == "__main__":
    main()
