"""A worker process: takes one job after another from its server and sends the answers back, message by message."""

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
from . import ipc
from .cache import NetworkCache
from .ipc import WorkerJob, error_fields

if TYPE_CHECKING:
    from ...network import Network

JOB_HANDLERS = {  # the function for each kind of job; it takes a JobContext and yields messages
    "describe": "exactline.rpc.server.basic_handlers:handle_describe",
    "probe": "exactline.rpc.server.basic_handlers:handle_probe",
    "sleep": "exactline.rpc.server.basic_handlers:handle_sleep",
    "restrict": "exactline.rpc.server.line_handlers:handle_restrict",
    "sweep": "exactline.rpc.server.line_handlers:handle_sweep",
    "decide": "exactline.rpc.server.decide_handlers:handle_decide",
    "attribute": "exactline.rpc.server.attribute_handlers:handle_attribute",
    "plane": "exactline.rpc.server.plane_handlers:handle_plane",
    "transform": "exactline.rpc.legacy.transform:handle_transform",
}
MAX_BUFFERED_FRAMES = 8  # frames read ahead
OOM_SCORE = "500"  # where the system runs out of memory, it kills a worker before the server


class JobContext:
    """A job and what its handler needs to run it."""

    def __init__(self, job: WorkerJob, state: WorkerState) -> None:
        self.job, self._state = job, state
        self.counters: dict[str, Any] = {}  # lines and breaks, for the server's log

    @property
    def payload(self) -> bytes:
        """The client's request."""
        return self.job.payload

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self._state.limits

    @property
    def device(self) -> str:
        """Where to compute."""
        return self._state.device

    def network(self) -> Network:
        """Return the network of the job, from the cache or from a file that the server sends."""
        if self.job.model is None:
            raise ArgumentError("The request names no model.", where="model", hint="Give a name or sha256:<digest>.")
        return self._state.cache.network(self.job.model, self._fetch_model)

    def checksum(self) -> str:
        """Return the checksum of the network's weights."""
        return "" if self.job.model is None else self._state.cache.checksum(self.job.model, self.network())

    def _fetch_model(self) -> bytes:
        self._state.send(ipc.NEED_MODEL)
        return next(self.receive_inputs(), b"")

    def send_message(self, message: bytes) -> None:
        """Send a message to the client at once, ahead of those that the handler yields, such as progress."""
        self._state.send(ipc.MESSAGE + message)

    def receive_inputs(self) -> Iterator[bytes]:
        """Yield what the server sends after the job itself, until it says that there is no more."""
        while (frame := self._state.frames.get())[:1] == ipc.INPUT:
            yield frame[1:]


class WorkerState:
    """What a worker keeps between jobs."""

    def __init__(self, connection: Connection, settings: dict[str, Any]) -> None:
        self.connection = connection
        self.limits = Limits(**settings["limits"])
        self.device: str = settings["device"]
        self.cache = NetworkCache(self.limits.cache_bytes)
        self.frames: queue.Queue[bytes] = queue.Queue(MAX_BUFFERED_FRAMES)

    def send(self, frame: bytes) -> None:
        """Send a frame to the server; blocks while the client does not read."""
        self.connection.send_bytes(frame)

    def receive_frames(self) -> None:
        """Read frames from the server; when the server is gone, end the process, whatever it is doing."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                self.frames.put(self.connection.recv_bytes())
        os._exit(0)


def run_worker(fd: int, settings: dict[str, Any]) -> None:
    """Run jobs until the server is gone or the process must be replaced."""
    _limit_resources(settings)
    torch.set_num_threads(settings["threads"])
    state = WorkerState(Connection(fd), settings)
    threading.Thread(target=state.receive_frames, daemon=True).start()
    while True:
        frame = state.frames.get()
        if frame[:1] == ipc.JOB and not _run_job(WorkerJob.decode(frame), state):
            return


def _limit_resources(settings: dict[str, Any]) -> None:
    """Allow no files and no core dumps, limit the memory, and let the out-of-memory killer choose workers first."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not os.environ.get("EXACTLINE_TRACEBACK"):
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if settings["device"] == "cpu":  # GPU drivers map far more memory than they use
            max_bytes = _initial_data_bytes() + settings["limits"]["worker_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))


def _initial_data_bytes() -> int:
    """Return the bytes of writable memory that a forked worker starts with."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmData:")).split()[1])
    return 0


def _run_job(job: WorkerJob, state: WorkerState) -> bool:
    """Run one job; returns whether the worker can run another."""
    context = JobContext(job, state)
    try:
        state.send(ipc.ACCEPTED)
        for message in _load_handler(job.kind)(context):
            state.send(ipc.MESSAGE + message)
        state.send(ipc.encode_json(ipc.DONE, context.counters | {"cache": state.cache.counters()}))
    except OSError:
        return False  # the server does not listen any more
    except Exception as problem:  # noqa: BLE001 any error ends the job, and the server is told
        if os.environ.get("EXACTLINE_TRACEBACK"):
            traceback.print_exc()
        fields, reusable = _describe_failure(problem, state.limits)
        state.send(ipc.encode_json(ipc.FAILED, fields | {"counters": context.counters}))
        return reusable
    return True


def _load_handler(kind: str) -> Callable[[JobContext], Iterator[bytes]]:
    module, _, name = JOB_HANDLERS[kind].partition(":")
    return getattr(import_module(module), name)


def _describe_failure(problem: Exception, limits: Limits) -> tuple[dict[str, Any], bool]:
    """Return the fields of an error, and whether the worker can run another job."""
    if isinstance(problem, MemoryError) or "allocate memory" in str(problem) or "out of memory" in str(problem):
        problem = LimitError(
            f"The job needs more memory than the limit worker_bytes allows, {limits.worker_bytes:,}.",
            where="limit worker_bytes",
            hint="Ask for fewer lines at a time, or give memory=.",
        )
        return error_fields(problem), False
    if isinstance(problem, ExactlineError):
        return error_fields(problem), True
    return {"code": "internal", "problem": type(problem).__name__}, True
