"""A network and a job as bytes for the workers of a Ray cluster, by Ray's own pickler."""

from __future__ import annotations

import pickle
from dataclasses import replace
from io import BytesIO
from typing import Any

import torch

from ..errors import MissingError
from ..network.graph import Network
from ..optional import require_package
from .jobs import Job

OPERATOR: type = type(torch.ops.aten.relu.default)
HINTS = {
    "network": "Save it as .onnx, and give that file.",
    "job": "Give a function of a module, which holds nothing but plain values.",
}


def import_ray() -> Any:
    """The package ray.

    Raises MissingError where it is not installed.
    """
    with require_package("Ray is not installed.", where='backend="ray"', hint='pip install "exactline[ray]"'):
        import ray
    return ray


def pack_for_workers(network: Network, job: Job | None) -> bytes:
    """The network and the job as bytes; only workers that this driver starts unpack them.

    Raises MissingError where one of them cannot be pickled, or Ray is not installed.
    """
    pickler: Any = import_ray().cloudpickle.Pickler

    class OperatorPickler(pickler):
        """Ray's pickler, which stores torch's operators by name."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, OPERATOR):
                return find_operator, (str(obj),)
            return super().reducer_override(obj)

    parts: list[bytes] = []
    sent = replace(network, source=no_source, device_copies={}).to("cpu")
    for part, name in ((sent, "network"), (job, "job")):
        try:
            data = BytesIO()
            OperatorPickler(data).dump(part)
        except Exception as problem:
            raise MissingError(
                f"The {name} cannot be sent to workers: {summarize_error(problem)}",
                where=f"argument {name}",
                hint=HINTS[name],
            ) from problem
        parts.append(data.getvalue())
    return pickle.dumps(parts)


def unpack_in_worker(data: bytes) -> tuple[Network, Job]:
    """The network and the job that `pack_for_workers` packed."""
    network, job = (pickle.loads(part) for part in pickle.loads(data))
    return network, job


def find_operator(name: str) -> Any:
    """One of torch's operators by its name, such as aten.relu.default."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def no_source() -> None:
    """The module of a network that was sent here: there is none."""


def summarize_error(problem: BaseException) -> str:
    """The most telling line of a long message: the last of a traceback, else the first."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines or [type(problem).__name__])[-1 if "Traceback" in str(problem) else 0]
