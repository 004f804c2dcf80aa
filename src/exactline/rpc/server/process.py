"""The front's handles of its processes: a worker at the other end of a socket, and the fork server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ...errors import MissingError, ServiceError
from . import ipc
from .forkserver import FORK_COMMAND, PID_BYTES
from .ipc import ModelKey

SOCKET_BUFFER_BYTES = 1 << 18
MAX_QUEUED_BYTES = 1 << 19  # received from a worker and not yet taken, above which reading pauses
SINGLE_THREAD_ENV = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}  # until a worker sets its own
START_SECONDS = 120.0  # for the fork server to import everything


class WorkerLost(ServiceError):
    """The worker died while it ran the job."""

    def __init__(self) -> None:
        super().__init__("The worker that ran this job was lost.", where="server", hint="Try again.")


class WorkerProcess(asyncio.Protocol):
    """A worker process: frames to and from it, without blocking the event loop.

    Args:
        pid: the id of the process.
        end: our end of the socket to it.
        on_lost: called when the process has ended.
    """

    def __init__(self, pid: int, end: socket.socket, on_lost: Callable[[WorkerProcess], None]) -> None:
        self.pid, self.lost = pid, False
        self.left_input_unread = False  # whether it was lost before it read all that it was sent
        self._socket = end
        self.sent_models: set[ModelKey] = set()  # whose files it was sent
        self.cache_counters: dict[str, Any] = {}  # as of its last job
        self._pidfd = _open_pidfd(pid)
        self._on_lost = on_lost
        self._transport: Any = None
        self._buffer = bytearray()
        self._frames: deque[tuple[bytes, bytes]] = deque()
        self._queued_bytes = 0
        self._reading_paused = self._writing_paused = False
        self._reader: asyncio.Future[None] | None = None  # of a task that waits for a frame
        self._writer: asyncio.Future[None] | None = None  # of a task that waits to write

    @property
    def queued_bytes(self) -> int:
        """Bytes that were received from the worker and not yet taken."""
        return self._queued_bytes + len(self._buffer)

    def connection_made(self, transport: Any) -> None:
        """Take the transport of the socket."""
        self._transport = transport
        transport.set_write_buffer_limits(high=SOCKET_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Split what arrives into frames."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= ipc.HEADER_BYTES:
            length = int.from_bytes(buffer[at : at + ipc.LENGTH_BYTES], "little")
            end = at + ipc.HEADER_BYTES + length
            if length > ipc.MAX_FRAME_BYTES:
                self.close()
                return
            if len(buffer) < end:
                break
            begin = at + ipc.HEADER_BYTES
            with memoryview(buffer) as view:
                self._frames.append((bytes(view[begin - 1 : begin]), bytes(view[begin:end])))
            self._queued_bytes += length
            at = end
        del buffer[:at]
        if self._frames:
            _wake(self._reader)
            if self._queued_bytes > MAX_QUEUED_BYTES and not self._reading_paused:
                self._reading_paused = True
                self._transport.pause_reading()

    def eof_received(self) -> None:
        """Send nothing more to a process that has ended; the frames it sent before can still be received."""
        self.lost = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process has ended, and wake the threads that wait for it.

        A Unix socket reports an error instead of the end of file if its other end was closed with unread input.
        """
        self.lost = True
        self.left_input_unread = isinstance(exc, ConnectionError)
        _wake(self._reader)
        _wake(self._writer)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Let writers wait: the worker does not read as fast as the client sends."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Let writers continue."""
        self._writing_paused = False
        _wake(self._writer)

    async def send(self, kind: bytes, *parts: bytes) -> None:
        """Send a frame; waits while the worker does not read.

        Raises WorkerLost.
        """
        frame = ipc.encode_frame(kind, *parts)
        if sum(map(len, frame)) <= SOCKET_BUFFER_BYTES:
            await self._write(b"".join(frame))
            return
        for piece in frame:
            view = memoryview(piece)
            for at in range(0, len(view), SOCKET_BUFFER_BYTES):
                await self._write(view[at : at + SOCKET_BUFFER_BYTES])

    async def _write(self, data: bytes | memoryview) -> None:
        if self.lost:
            raise WorkerLost
        self._transport.write(data)
        while self._writing_paused and not self.lost:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    async def receive(self) -> tuple[bytes, bytes]:
        """Return the kind and the data of the next frame.

        Raises WorkerLost.
        """
        while not self._frames:
            if self.lost:
                raise WorkerLost
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        kind, data = self._frames.popleft()
        self._queued_bytes -= len(data)
        if self._reading_paused and self._queued_bytes <= MAX_QUEUED_BYTES and not self.lost:
            self._reading_paused = False
            self._transport.resume_reading()
        return kind, data

    def has_died(self) -> bool:
        """Whether an idle worker has died: it sends nothing without a job, so anything to read is the end of file."""
        if self.lost:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is None:
                os.kill(self.pid, signal.SIGKILL)
            elif self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close its descriptors."""
        self.kill()
        if self._pidfd is not None and self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self.lost = True
        if self._transport is not None:
            self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


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
        self._closed = False
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

    def fork(self) -> tuple[socket.socket, int] | None:
        """Fork a worker; returns our end of its socket and its id, None if that failed.

        The next call restarts a fork server that has died.
        """
        with self._lock:
            if self._closed:
                return None
            if self._control is None:
                self._kill_process()
                with contextlib.suppress(ServiceError, OSError):
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
                    return ours, int.from_bytes(pid, "little")
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
            self._closed = True
            if self._control is not None:
                self._control.close()
                self._control = None
            self._kill_process()

    def _kill_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
