"""A worker process: takes one job after another from the front and sends the answers back, message by message."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ArgumentError, ExactlineError, FileError, LimitError
from ..limits import Limits
from ..wire import parse_message
from . import ipc
from .cache import NetworkCache
from .encode import AnswerWriter
from .ipc import FrameSocket, WorkerJob, error_fields

if TYPE_CHECKING:
    from ...network import Network, SmoothNetwork

JOB_HANDLERS = {  # the function for each kind of job; it takes a JobContext and yields messages
    "describe": "exactline.rpc.server.basic_handlers:handle_describe",
    "probe": "exactline.rpc.server.basic_handlers:handle_probe",
    "sleep": "exactline.rpc.server.basic_handlers:handle_sleep",
    "restrict": "exactline.rpc.server.line_handlers:handle_restrict",
    "sweep": "exactline.rpc.server.line_handlers:handle_sweep",
    "decide": "exactline.rpc.server.decide_handlers:handle_decide",
    "approximate": "exactline.rpc.server.approximate_handlers:handle_approximate",
    "attribute": "exactline.rpc.server.attribute_handlers:handle_attribute",
    "plane": "exactline.rpc.server.plane_handlers:handle_plane",
    "transform": "exactline.rpc.legacy.transform:handle_transform",
}
OOM_SCORE = "500"  # where the system runs out of memory, it kills a worker before the server
MAX_TRACEBACK_CHARS = 4000


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

    @property
    def frames(self) -> FrameSocket:
        """The socket to the front, for jobs that take more input."""
        return self._state.frames

    @property
    def cache(self) -> NetworkCache:
        """The networks that the worker keeps."""
        return self._state.cache

    def parse(self, message_type: Any) -> Any:
        """Parse the client's request, which may have a limited number of fields."""
        return parse_message(message_type, self.job.payload, self.limits)

    def network(self) -> Network:
        """Return the network of the job; raises UnsupportedError if it is not piecewise linear."""
        from ...network import require_piecewise_linear

        return require_piecewise_linear(self.any_network())

    def any_network(self) -> Network | SmoothNetwork:
        """Return the network of the job, smooth or not, from the cache or from a file that the front sends."""
        if self.job.model is None:
            raise ArgumentError("The request names no model.", where="model", hint="Give a name or sha256:<digest>.")
        return self._state.cache.network(self.job.model, self._fetch_model)

    def checksum(self) -> str:
        """Return the checksum of the network's weights."""
        return "" if self.job.model is None else self._state.cache.checksum(self.job.model, self.any_network())

    def _fetch_model(self) -> bytes:
        self._state.frames.send(ipc.NEED_MODEL)
        kind, data = self._state.frames.receive()
        if kind != ipc.INPUT:
            raise FileError("The file of the model cannot be read.", where="model", hint="Try again.")
        return data

    def hold(self, message: bytes) -> None:
        """Send a message to the client together with the next one."""
        self._state.frames.hold(ipc.MESSAGE, message)

    def write_answer(self, options: Any) -> AnswerWriter:
        """Return a writer of an answer, with the options of the request."""
        return AnswerWriter(self.send_message, self.hold, options.joined)

    def send_message(self, message: bytes) -> None:
        """Send a message to the client at once, ahead of those that the handler yields, such as progress."""
        self._state.frames.send(ipc.MESSAGE, message)


class WorkerState:
    """What a worker keeps between jobs."""

    def __init__(self, fd: int, settings: dict[str, Any]) -> None:
        self.frames = FrameSocket(fd)
        self.limits = Limits(**settings["limits"])
        self.device: str = settings["device"]
        self.sends_tracebacks: bool = settings["tracebacks"]
        self.cache = NetworkCache(self.limits.cache_bytes)


def run_worker(fd: int, settings: dict[str, Any]) -> None:
    """Run jobs until the front is gone or the process must be replaced."""
    _limit_resources(settings)
    torch.set_num_threads(settings["threads"])
    state = WorkerState(fd, settings)
    threading.Thread(target=_exit_with_front, args=(fd,), daemon=True).start()
    while True:
        kind, data = state.frames.receive()
        if kind == ipc.JOB and not _run_job(WorkerJob.decode(data), state):
            return


def _exit_with_front(fd: int) -> None:
    """End the process, whatever it is doing, when the front is gone."""
    hangup = select.poll()
    hangup.register(fd, 0)  # reports only that the other end has closed
    while not hangup.poll():
        pass
    os._exit(0)


def _limit_resources(settings: dict[str, Any]) -> None:
    """Allow no files and no core dumps, limit the memory, and let the out-of-memory killer choose workers first."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
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
    context, frames = JobContext(job, state), state.frames
    try:
        for message in _load_handler(job.kind)(context):
            frames.send(ipc.MESSAGE, message)
        frames.send(ipc.DONE, ipc.encode_json(context.counters | {"cache": state.cache.counters()}))
    except BrokenPipeError:
        return False  # the front does not listen any more
    except Exception as problem:  # noqa: BLE001 any error ends the job, and the front is told
        fields, reusable = _describe_failure(problem, state.limits)
        if state.sends_tracebacks:
            fields["traceback"] = traceback.format_exc()[-MAX_TRACEBACK_CHARS:]
        frames.send(ipc.FAILED, ipc.encode_json(fields | {"counters": context.counters, "reusable": reusable}))
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
