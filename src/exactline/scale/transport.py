"""A network and a job as bytes for another process of the same cluster, by Ray's own way of packing."""

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


def ray_package() -> Any:
    """Ray, or what to do about its absence."""
    with require_package("Ray is not installed.", where='engine="ray"', hint='pip install "exactline[ray]"'):
        import ray
    return ray


def packed(network: Network, job: Job | None) -> bytes:
    """Both as bytes; they are opened only by workers that our own driver has started.

    Raises MissingError where one of them cannot travel, or Ray is not there.
    """
    pickler: Any = ray_package().cloudpickle.Pickler

    class Packer(pickler):
        """Ray's own, which also knows torch's operators: they are named, not copied."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, OPERATOR):
                return operator, (str(obj),)
            return super().reducer_override(obj)

    parts: list[bytes] = []
    plain = replace(network, source=nowhere, moved={}).to("cpu")
    for part, name in ((plain, "network"), (job, "job")):
        try:
            data = BytesIO()
            Packer(data).dump(part)
        except Exception as problem:
            raise MissingError(
                f"The {name} cannot be sent to workers: {first_line(problem)}",
                where=f"argument {name}",
                hint=HINTS[name],
            ) from problem
        parts.append(data.getvalue())
    return pickle.dumps(parts)


def unpacked(data: bytes) -> tuple[Network, Job]:
    """What `packed` made; runs in a worker."""
    network, job = (pickle.loads(part) for part in pickle.loads(data))
    return network, job


def operator(name: str) -> Any:
    """One of torch's operators by its name, such as aten.relu.default."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def nowhere() -> None:
    """The module of a network that has come from elsewhere."""


def first_line(problem: BaseException) -> str:
    """The line of a long message that says most."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines or [type(problem).__name__])[-1 if "Traceback" in str(problem) else 0]
