"""The server's handles of its processes: a worker at the other end of a socket, and the fork server."""

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
from .forkserver import FORK_COMMAND, PID_BYTES
from .ipc import ModelKey

SOCKET_BUFFER_BYTES = 1 << 20
SINGLE_THREAD_ENV = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}  # until a worker sets its own
START_SECONDS = 120.0  # for the fork server to import everything


class WorkerProcess:
    """The server's handle of a worker process."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.sent_models: set[ModelKey] = set()  # whose files it was sent
        self.cache_counters: dict[str, Any] = {}  # as of its last job
        self._pidfd = _open_pidfd(pid)
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Kill the process; a thread that reads from its socket sees the socket close."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._pidfd is None:
                os.kill(self.pid, signal.SIGKILL)
            elif self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def has_died(self) -> bool:
        """Whether an idle worker has died: it sends nothing without a job, so anything to read is the end of file."""
        try:
            return self.connection.poll(0)
        except OSError:
            return True

    def close(self) -> None:
        """Kill the process and close its descriptors."""
        self.kill()
        with self._lock:
            if self._pidfd is not None and self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
        self.connection.close()


def _open_pidfd(pid: int) -> int | None:
    """Open a descriptor of the process, which survives reuse of its id; -1 if it has ended, None if unsupported."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    except (AttributeError, OSError):
        return None


def _open_socket_pair() -> tuple[socket.socket, socket.socket]:
    """Create connected sockets with buffers that hold a large part of a message."""
    sockets = socket.socketpair()
    for end in sockets:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    return sockets


class ForkServer:
    """Starts the process that forks workers, and restarts it if it dies."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process; returns when it is ready to fork."""
        if not hasattr(os, "fork"):
            raise MissingError(
                "The server needs an operating system that can fork processes.",
                where="serve",
                hint="Run it on Linux or macOS.",
            )
        ours, theirs = socket.socketpair()
        stderr = None if os.environ.get("EXACTLINE_TRACEBACK") else subprocess.DEVNULL
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
            stderr=stderr,
            start_new_session=True,  # Ctrl-C goes to the server, which ends its workers itself
            env={"OMP_WAIT_POLICY": "PASSIVE"} | os.environ | SINGLE_THREAD_ENV,
        )
        theirs.close()
        ours.settimeout(START_SECONDS)
        with contextlib.suppress(OSError):
            if ours.recv(1) == FORK_COMMAND:
                self._control = ours
                return
        self._kill_process()
        ours.close()
        raise ServiceError(
            "The fork server, which starts the workers, did not start.",
            where="serve",
            hint="Set EXACTLINE_TRACEBACK=1 to see why.",
        )

    def fork(self) -> WorkerProcess | None:
        """Fork a worker; None if that failed. The next call restarts a fork server that has died."""
        with self._lock:
            if self._control is None:
                self._kill_process()
                with contextlib.suppress(ServiceError):
                    self.start()
                return None
            try:
                ours, theirs = _open_socket_pair()
            except OSError:
                return None  # no file descriptor is left; the pool tries again
            try:
                socket.send_fds(self._control, [FORK_COMMAND], [theirs.fileno()])
                pid = self._control.recv(PID_BYTES, socket.MSG_WAITALL)
                if len(pid) == PID_BYTES:
                    return WorkerProcess(Connection(ours.detach()), int.from_bytes(pid, "little"))
            except OSError:
                pass
            finally:
                theirs.close()
                ours.close()
            self._control.close()
            self._control = None
            return None

    def close(self) -> None:
        """End the process; workers end when their own sockets close."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
            self._kill_process()

    def _kill_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
