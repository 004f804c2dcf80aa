"""The server's side of its processes: the nursery that forks workers, and a worker at the end of its socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from ...errors import MissingError, ServiceError
from .forkserver import FORK, PID
from .ipc import Model

BUFFER = 1 << 20  # bytes
SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # until a worker says more
PATIENCE = 120.0  # seconds for a nursery to import everything


class Worker:
    """A worker process, as the server knows it."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.models: set[Model] = set()  # that it was sent
        self.cache: dict[str, Any] = {}  # as it said last
        self._handle = _handle(pid)
        self._ending = threading.Lock()

    def kill(self) -> None:
        """At once; whoever waits for it sees its socket close."""
        with self._ending, contextlib.suppress(ProcessLookupError):
            if self._handle is None:
                os.kill(self.pid, signal.SIGKILL)
            elif self._handle >= 0:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def gone(self) -> bool:
        """Whether an idle worker died: it says nothing unless asked, so that anything to read is its end."""
        try:
            return self.connection.poll(0)
        except OSError:
            return True

    def end(self) -> None:
        """Kill it and let go of everything."""
        self.kill()
        with self._ending:
            if self._handle is not None and self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
        self.connection.close()


def _handle(pid: int) -> int | None:
    """What names this very process, even after its number is another's; None where systems have no such thing."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    except (AttributeError, OSError):
        return None


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a socket that takes a good part of a message before anybody must read."""
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return pair


class Nursery:
    """The process that forks workers; it is started anew where somebody kills it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forking = threading.Lock()

    def start(self) -> None:
        """Back when it is ready to fork."""
        if not hasattr(os, "fork"):
            raise MissingError(
                "The server needs a system that can fork processes.", where="serve", hint="Run it on Linux or macOS."
            )
        ours, theirs = socket.socketpair()
        loud = None if os.environ.get("EXACTLINE_TRACEBACK") else subprocess.DEVNULL
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "exactline.rpc.server.forkserver",
                str(theirs.fileno()),
                json.dumps(self.settings),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=loud,
            start_new_session=True,  # a Ctrl-C is for the server, which ends its workers itself
            env={"OMP_WAIT_POLICY": "PASSIVE"} | os.environ | SINGLE,
        )
        theirs.close()
        ours.settimeout(PATIENCE)
        with contextlib.suppress(OSError):
            if ours.recv(1) == FORK:
                self._control = ours
                return
        self._buried()
        ours.close()
        raise ServiceError(
            "The process that starts workers could not be started.",
            where="serve",
            hint="Set EXACTLINE_TRACEBACK=1 to see why.",
        )

    def fork(self) -> Worker | None:
        """A new worker; None where the nursery itself was lost, which is then on its way again."""
        with self._forking:
            if self._control is None:
                self._buried()
                with contextlib.suppress(ServiceError):
                    self.start()
                return None
            try:
                ours, theirs = _pair()
            except OSError:
                return None  # no file descriptor is left: the next beat tries once more
            try:
                socket.send_fds(self._control, [FORK], [theirs.fileno()])
                told = self._control.recv(PID, socket.MSG_WAITALL)
                if len(told) == PID:
                    return Worker(Connection(ours.detach()), int.from_bytes(told, "little"))
            except OSError:
                pass
            finally:
                theirs.close()
                ours.close()
            self._control.close()
            self._control = None
            return None

    def close(self) -> None:
        """End it; workers end with their own sockets."""
        with self._forking:
            if self._control is not None:
                self._control.close()
                self._control = None
            self._buried()

    def _buried(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
