"""The Ray backend: each worker is an actor that holds the network; tasks go to the worker with the shortest queue."""

from __future__ import annotations

import logging
import os
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError, MissingError
from ..network.graph import Network
from .backend import TaskOutcome
from .batch import WorkerTask
from .jobs import Job
from .store_writer import SHARED_FOLDER_PROBE
from .transport import import_ray, pack_for_workers, summarize_error, unpack_in_worker
from .worker import TaskReport, Worker

TASKS_PER_WORKER = 2  # one running and one waiting, so that a worker never idles
START_TIMEOUT_SECONDS = 120.0  # until one worker has to be ready
MIN_OBJECT_STORE_BYTES = 256 << 20  # of Ray's shared memory, where this process starts Ray
MAX_BROKEN_STARTS_PER_WORKER = 3  # of workers whose constructor fails
MAX_KILLED_STARTS_PER_WORKER = 20  # of workers that something else kills before they are ready


class ScaleWorker:
    """A worker as a Ray actor: unpacks the network once; writes shards itself where it sees the driver's folder."""

    def __init__(self, packed: bytes, folder: str, probe: str, use_gpu: bool) -> None:
        network, job = unpack_in_worker(packed)
        is_shared = (Path(folder) / probe).is_file()
        self.worker = Worker(network, job, Path(folder) if is_shared else None, "cuda" if use_gpu else None)

    def ping(self) -> None:
        """Return once the actor is ready."""

    def run(self, task: WorkerTask) -> TaskReport:
        """See `Worker.run`."""
        return self.worker.run(task)


@dataclass(eq=False)
class RayWorker:
    """The driver's record of one actor."""

    number: int
    handle: Any
    is_ready: bool = False
    queue: deque[tuple[Any, WorkerTask]] = field(default_factory=deque[tuple[Any, WorkerTask]])  # by Ray's reference

    def dequeue(self, ref: Any) -> None:
        """Remove a task from the queue."""
        self.queue = deque(item for item in self.queue if item[0] != ref)


class RayBackend:
    """Workers on Ray; the network is sent once to each machine."""

    def __init__(
        self, network: Network, job: Job, folder: Path, *, workers: int | None, gpus: float, address: str | None
    ) -> None:
        self.ray = import_ray()
        packed = pack_for_workers(network, job)
        self.owns_ray = connect_ray(self.ray, address, workers, len(packed))
        self.workers = workers or _count_workers(self.ray, gpus)
        self.probe = folder / f"{SHARED_FOLDER_PROBE}{secrets.token_hex(8)}"
        try:
            self.probe.touch()
        except OSError as problem:
            raise FileError(
                f"The store cannot be written: {problem.strerror}.", where=str(folder), hint="Make room."
            ) from problem
        self.arguments = (self.ray.put(packed), str(folder.resolve()), self.probe.name, gpus > 0)
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        self.actor_class = self.ray.remote(ScaleWorker).options(**options)
        self.members = dict[int, RayWorker]()
        self.refs = dict[Any, tuple[RayWorker, WorkerTask | None]]()  # None while the worker starts
        self.started = self.failed_starts = 0
        for _ in range(self.workers):
            self._start_worker()

    def free_slots(self) -> int:
        """Free places in the queues of all workers that are ready."""
        return sum(TASKS_PER_WORKER - len(m.queue) for m in self.members.values() if m.is_ready)

    def submit(self, task: WorkerTask) -> None:
        """Send a task to the worker with the shortest queue; avoid one that has failed with it."""
        free = [m for m in self.members.values() if m.is_ready and len(m.queue) < TASKS_PER_WORKER]
        member = min(free, key=lambda m: (m.number == task.avoid_worker, len(m.queue)))
        ref = member.handle.run.remote(task)
        member.queue.append((ref, task))
        self.refs[ref] = (member, task)

    def wait(self) -> list[TaskOutcome]:
        """Wait until a task is back or a worker is ready; the list is empty in the second case."""
        known = list(self.refs)
        ready, _ = self.ray.wait(known, num_returns=1, timeout=START_TIMEOUT_SECONDS)
        if not ready and not any(m.is_ready for m in self.members.values()):
            raise MissingError(
                f"No worker was ready after {START_TIMEOUT_SECONDS:g} seconds.",
                where="backend ray",
                hint="Ask for fewer workers or GPUs than the cluster has, and see that exactline is installed on it.",
            )
        if ready:
            ready, _ = self.ray.wait(known, num_returns=len(known), timeout=0)
        return [outcome for ref in ready for outcome in self._collect(ref)]

    def close(self) -> None:
        """End all workers, and Ray where this process started it."""
        for member in self.members.values():
            with suppress(Exception):
                self.ray.kill(member.handle)
        self.probe.unlink(missing_ok=True)
        if self.owns_ray:
            self.ray.shutdown()

    def _start_worker(self) -> None:
        member = RayWorker(self.started, self.actor_class.remote(*self.arguments))
        self.started += 1
        self.members[member.number] = member
        self.refs[member.handle.ping.remote()] = (member, None)

    def _collect(self, ref: Any) -> Iterator[TaskOutcome]:
        if ref not in self.refs:
            return  # its worker has died and was replaced
        member, task = self.refs.pop(ref)
        try:
            report = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as problem:
            member.dequeue(ref)
            if task is not None:
                yield TaskOutcome(task, member.number, reason=summarize_error(problem))
        except self.ray.exceptions.RayError as problem:
            is_broken = "creation task" in str(problem)
            yield from self._replace_worker(member, summarize_error(problem), is_broken=is_broken)
        else:
            if task is None:
                member.is_ready, self.failed_starts = True, 0
            else:
                member.dequeue(ref)
                yield TaskOutcome(task, member.number, report)

    def _replace_worker(self, member: RayWorker, reason: str, *, is_broken: bool) -> Iterator[TaskOutcome]:
        """A worker has died: give back its tasks, of which only the first was running, and start another worker."""
        self.members.pop(member.number, None)
        for position, (ref, task) in enumerate(member.queue):
            self.refs.pop(ref, None)
            yield TaskOutcome(task, member.number, reason=reason, was_running=position == 0)
        self.refs = {ref: owner for ref, owner in self.refs.items() if owner[0] is not member}
        if not member.is_ready:
            self.failed_starts += 1
            limit = MAX_BROKEN_STARTS_PER_WORKER if is_broken else MAX_KILLED_STARTS_PER_WORKER
            if self.failed_starts > limit * self.workers:
                raise MissingError(
                    f"Workers do not start: {reason}",
                    where="backend ray",
                    hint="See that exactline and torch are installed where the workers run, in the same versions.",
                )
        self._start_worker()


def connect_ray(ray: Any, address: str | None, workers: int | None, packed_bytes: int) -> bool:
    """Connect to Ray, or start it where none runs; returns whether this process has to end it.

    Raises MissingError where there is no cluster at the address.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        memory = max(MIN_OBJECT_STORE_BYTES, 3 * packed_bytes)
        cpus = workers or os.cpu_count() or 1
        options |= {"include_dashboard": False, "num_cpus": cpus, "object_store_memory": memory}
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except Exception as problem:
        raise MissingError(
            f"Ray cannot be reached: {summarize_error(problem)}",
            where=f"address {address}",
            hint="Start it with 'ray start --head', or leave the address out for a cluster of this machine alone.",
        ) from problem
    return True


def _count_workers(ray: Any, gpus: float) -> int:
    """As many workers as the cluster has processors, or as its GPUs allow."""
    resources = ray.cluster_resources()
    count = int(resources.get("CPU", 1))
    return max(1, min(count, int(resources.get("GPU", 0) / gpus)) if gpus else count)
