"""A worker: takes one job after another from its server and sends the answers back, message by message."""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ArgumentError, ExactlineError, LimitError
from ..limits import Limits
from . import ipc as frames
from .cache import Cache
from .ipc import Job, facts_of

if TYPE_CHECKING:
    from ...network import Network

WORK = {  # what a job of each kind calls; functions take a Task and yield messages
    "describe": "exactline.rpc.server.describe:describe",
    "restrict": "exactline.rpc.server.line_handlers:restrict",
    "sweep": "exactline.rpc.server.line_handlers:sweep",
    "decide": "exactline.rpc.server.decide_handlers:decide",
    "attribute": "exactline.rpc.server.attribute_handlers:attribute",
    "plane": "exactline.rpc.server.plane_handlers:plane",
    "transform": "exactline.rpc.legacy.transform:work",
    "probe": "exactline.rpc.server.worker:probe",
    "nap": "exactline.rpc.server.worker:nap",
}
WAITING = 8  # frames read ahead
Inbox = queue.Queue[bytes]


class Task:
    """One job as the function that does it sees it."""

    def __init__(self, job: Job, desk: Desk) -> None:
        self.job, self._desk = job, desk
        self.facts: dict[str, Any] = {}  # for the server's log: lines, breaks

    @property
    def payload(self) -> bytes:
        """What the client sent."""
        return self.job.payload

    @property
    def limits(self) -> Limits:
        return self._desk.limits

    @property
    def device(self) -> str:
        """Where to compute."""
        return self._desk.device

    def network(self) -> Network:
        """The job's model, out of the cache or fetched from the server."""
        if self.job.model is None:
            raise ArgumentError("No model is named.", where="model", hint="Give a name or sha256:<digest>.")
        return self._desk.cache.network(self.job.model, self._fetched)

    def checksum(self) -> str:
        """Of the numbers in the job's model."""
        return "" if self.job.model is None else self._desk.cache.checksum(self.job.model, self.network())

    def _fetched(self) -> bytes:
        self._desk.send(frames.NEED)
        return next(self.inputs(), b"")

    def say(self, message: bytes) -> None:
        """A message for the client ahead of those that are yielded, such as progress."""
        self._desk.send(frames.MESSAGE + message)

    def inputs(self) -> Iterator[bytes]:
        """What the server sends after the job itself, until it says that there is no more."""
        while (frame := self._desk.inbox.get())[:1] == frames.DATA:
            yield frame[1:]


class Desk:
    """What a worker keeps between jobs."""

    def __init__(self, connection: Connection, settings: dict[str, Any]) -> None:
        self.connection = connection
        self.limits = Limits(**settings["limits"])
        self.device: str = settings["device"]
        self.cache = Cache(self.limits.cache_bytes)
        self.inbox: Inbox = queue.Queue(WAITING)

    def send(self, frame: bytes) -> None:
        """To the server; blocks while the client does not read."""
        self.connection.send_bytes(frame)

    def listen(self) -> None:
        """Take in frames; when the server is gone, so is this worker, whatever it is doing."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                self.inbox.put(self.connection.recv_bytes())
        os._exit(0)


def work(fd: int, settings: dict[str, Any]) -> None:
    """Do jobs for ever."""
    _confined(settings)
    torch.set_num_threads(settings["threads"])
    desk = Desk(Connection(fd), settings)
    threading.Thread(target=desk.listen, daemon=True).start()
    while True:
        frame = desk.inbox.get()
        if frame[:1] == frames.JOB and not _done(Job.unpacked(frame), desk):
            return


def _confined(settings: dict[str, Any]) -> None:
    """No files, no core dumps, a bound on memory, and first to go where the machine runs out of it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not os.environ.get("EXACTLINE_TRACEBACK"):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if settings["device"] == "cpu":  # GPUs map far more than they use
            most = _held() + settings["limits"]["worker_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _held() -> int:
    """Bytes of writable memory that a fork starts with."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmData:")).split()[1])
    return 0


def _done(job: Job, desk: Desk) -> bool:
    """Do one job; says whether the worker is fit for another."""
    task = Task(job, desk)
    try:
        desk.send(frames.TAKEN)
        for message in _function(job.kind)(task):
            desk.send(frames.MESSAGE + message)
        desk.send(frames.facts(frames.END, task.facts | {"cache": desk.cache.facts()}))
    except OSError:
        return False  # the server does not listen any more
    except Exception as problem:  # noqa: BLE001 whatever it is, it ends this job and is told
        if os.environ.get("EXACTLINE_TRACEBACK"):
            traceback.print_exc()
        told, fit = _told(problem, desk.limits)
        desk.send(frames.facts(frames.ERROR, told | {"facts": task.facts}))
        return fit
    return True


def _function(kind: str) -> Callable[[Task], Iterator[bytes]]:
    module, _, name = WORK[kind].partition(":")
    return getattr(import_module(module), name)


def _told(problem: Exception, limits: Limits) -> tuple[dict[str, Any], bool]:
    """An error as facts, and whether the worker can go on."""
    if isinstance(problem, MemoryError) or "allocate memory" in str(problem) or "out of memory" in str(problem):
        problem = LimitError(
            f"The job needs more memory than the limit worker_bytes allows, {limits.worker_bytes:,}.",
            where="limit worker_bytes",
            hint="Ask for fewer lines at a time, or give memory=.",
        )
        return facts_of(problem), False
    if isinstance(problem, ExactlineError):
        return facts_of(problem), True
    return {"code": "internal", "problem": type(problem).__name__}, True


def probe(task: Task) -> Iterator[bytes]:
    """Whether the device can be used; raises ArgumentError where it cannot."""
    from ...options import select_device

    yield str(select_device(None, task.device)).encode()


def nap(task: Task) -> Iterator[bytes]:
    """Sleep as long as the payload says, then say so: to try out deadlines, queues and the loss of a worker."""
    import time

    time.sleep(float(task.payload or b"0"))
    yield b"slept"
