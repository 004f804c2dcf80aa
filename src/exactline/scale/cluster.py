"""Ray as the engine: an actor for each worker, which holds the network; batches go to whoever has least to do."""

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
from .actor import ScaleWorker
from .batch import Batch
from .engine import Outcome
from .jobs import Job
from .transport import first_line, packed, ray_package

DEPTH = 2  # batches at one worker: one in hand and one waiting, so that it never idles
PATIENCE = 120.0  # seconds until somebody has to be ready
STORE = 256 << 20  # bytes of Ray's own memory for objects, where we start it
HERE = ".here-"  # begins the name of a file by which workers see whether they share our folder


@dataclass(eq=False)
class Member:
    """One actor, and what it was given."""

    number: int
    handle: Any
    ready: bool = False
    process: int = 0
    queue: deque[tuple[Any, Batch]] = field(default_factory=deque[tuple[Any, Batch]])


class Cluster:
    """Workers on Ray; the network travels once to each machine."""

    def __init__(
        self, network: Network, job: Job, folder: Path, *, workers: int | None, gpus: float, address: str | None
    ) -> None:
        self.ray = ray_package()
        parcel = packed(network, job)
        self.ours = started(self.ray, address, workers, len(parcel))
        self.workers = workers or _possible(self.ray, gpus)
        self.token = folder / f"{HERE}{secrets.token_hex(8)}"
        try:
            self.token.touch()
        except OSError as problem:
            raise FileError(
                f"The store cannot be written: {problem.strerror}.", where=str(folder), hint="Make room."
            ) from problem
        self.given = (self.ray.put(parcel), str(folder.resolve()), self.token.name, gpus > 0)
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        self.kind = self.ray.remote(ScaleWorker).options(**options)
        self.members = dict[int, Member]()
        self.refs = dict[Any, tuple[Member, Batch | None]]()
        self.made = self.stillborn = 0
        for _ in range(self.workers):
            self._hire()

    def room(self) -> int:
        """As many as the workers that are ready may still be given."""
        return sum(DEPTH - len(m.queue) for m in self.members.values() if m.ready)

    def submit(self, batch: Batch) -> None:
        """Give it to the worker with the shortest queue, not to one that has failed with it where there are others."""
        free = [m for m in self.members.values() if m.ready and len(m.queue) < DEPTH]
        member = min(free, key=lambda m: (m.number == batch.avoid, len(m.queue)))
        ref = member.handle.work.remote(batch)
        member.queue.append((ref, batch))
        self.refs[ref] = (member, batch)

    def wait(self) -> list[Outcome]:
        """Wait for news; there may be none but that a worker is ready."""
        known = list(self.refs)
        ready, _ = self.ray.wait(known, num_returns=1, timeout=PATIENCE)
        if not ready and not any(m.ready for m in self.members.values()):
            raise MissingError(
                f"No worker was ready after {PATIENCE:g} seconds.",
                where="engine ray",
                hint="Ask for fewer workers or GPUs than the cluster has, and see that exactline is installed on it.",
            )
        if ready:
            ready, _ = self.ray.wait(known, num_returns=len(known), timeout=0)
        return [outcome for ref in ready for outcome in self._take(ref)]

    def close(self) -> None:
        """Dismiss all workers, and end Ray where we began it."""
        for member in self.members.values():
            with suppress(Exception):
                self.ray.kill(member.handle)
        self.token.unlink(missing_ok=True)
        if self.ours:
            self.ray.shutdown()

    def _hire(self) -> None:
        member = Member(self.made, self.kind.remote(*self.given))
        self.made += 1
        self.members[member.number] = member
        self.refs[member.handle.hello.remote()] = (member, None)

    def _take(self, ref: Any) -> Iterator[Outcome]:
        if ref not in self.refs:
            return  # its worker is buried already
        member, batch = self.refs.pop(ref)
        try:
            found = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as problem:
            member.queue = deque(item for item in member.queue if item[0] != ref)
            if batch is not None:
                yield Outcome(batch, member.number, reason=first_line(problem))
        except self.ray.exceptions.RayError as problem:
            yield from self._bury(member, first_line(problem), unable="creation task" in str(problem))
        else:
            if batch is None:
                member.ready, member.process, self.stillborn = True, found, 0
            else:
                member.queue = deque(item for item in member.queue if item[0] != ref)
                yield Outcome(batch, member.number, found)

    def _bury(self, member: Member, reason: str, *, unable: bool) -> Iterator[Outcome]:
        """A worker has died: what it had in hand is lost, what waited is not to blame, and another takes its place."""
        self.members.pop(member.number, None)
        for place, (ref, lost) in enumerate(member.queue):
            self.refs.pop(ref, None)
            yield Outcome(lost, member.number, reason=reason, guilty=place == 0)
        self.refs = {ref: owner for ref, owner in self.refs.items() if owner[0] is not member}
        if not member.ready:
            self.stillborn += 1
            if self.stillborn > (3 if unable else 20) * self.workers:  # unable: it failed by itself, nobody killed it
                raise MissingError(
                    f"Workers do not start: {reason}",
                    where="engine ray",
                    hint="See that exactline and torch are installed where the workers run, in the same versions.",
                )
        self._hire()


def started(ray: Any, address: str | None, workers: int | None, size: int) -> bool:
    """Make sure Ray runs; whether it was us who began it.

    Raises MissingError where there is no cluster at the address.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            options |= {"num_cpus": workers or os.cpu_count() or 1, "object_store_memory": max(STORE, 3 * size)}
            ray.init(**options)
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:
        raise MissingError(
            f"Ray cannot be reached: {first_line(problem)}",
            where=f"address {address}",
            hint="Start it with 'ray start --head', or leave the address out for a cluster of this machine alone.",
        ) from problem
    return True


def _possible(ray: Any, gpus: float) -> int:
    """As many workers as the cluster has processors, or GPUs where each wants one."""
    there = ray.cluster_resources()
    count = int(there.get("CPU", 1))
    return max(1, min(count, int(there.get("GPU", 0) / gpus)) if gpus else count)
