"""How a client names and uploads a model, and what a server reports about its models and about itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...errors import ArgumentError
from ...formats.open_file import read_file
from ..protos.exactline.v1 import exactline_pb2 as pb

UPLOAD_PIECE_BYTES = 1 << 20  # of a file in one message
Shape = tuple[int, ...]


@dataclass(frozen=True)
class RemoteModel:
    """A model of a server and how to read its file; without options, its name alone will do.

    >>> RemoteModel("acas", normalize=False).name
    'acas'
    """

    name: str  # or "sha256:" and the digest of an upload
    normalize: bool = True  # False ignores the normalization that a .nnet file asks for
    shape: Shape | None = None  # of one point, for ONNX files that leave it open


@dataclass(frozen=True)
class LayerDescription:
    """One node of a model."""

    name: str
    operator: str
    kind: str  # input, affine, breaking, smooth, tail
    shape: Shape
    units: int


@dataclass(frozen=True)
class ModelDescription:
    """What a server reports about a model; clients accept it wherever they take a model."""

    name: str
    sha256: str
    input_shape: Shape | tuple[Shape, ...]
    output_shape: Shape | tuple[Shape, ...]
    units: dict[str, int]  # by operator
    weights: int  # their number
    checksum: str  # of the weights
    layers: tuple[LayerDescription, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ModelEntry:
    """A model in a server's list."""

    name: str  # empty for an upload
    sha256: str
    bytes: int
    uploaded: bool

    def __str__(self) -> str:
        return self.name or f"sha256:{self.sha256}"


@dataclass(frozen=True)
class ServerStats:
    """What a server has done since it started, and its current state."""

    uptime_seconds: float
    calls: dict[str, int]  # by method and status, such as "Restrict OK"
    lines: int
    breaks: int
    in_flight: int
    queued: int
    workers: int
    busy: int
    pids: tuple[int, ...]  # of the workers
    workers_forked: int
    workers_killed: int  # because a call was cancelled or expired
    workers_died: int
    calls_retried: int
    models_cached: int  # by all workers
    bytes_cached: int
    cache_hits: int
    cache_misses: int
    uploads: int
    upload_bytes: int
    refused_tokens: int
    version: str


@dataclass(frozen=True)
class ModelUpload:
    """A model's file to upload; iterating gives the messages."""

    data: bytes
    suffix: str  # of the file's name: its format

    def __iter__(self) -> Iterator[bytes]:
        first = {"suffix": self.suffix, "sha256": hashlib.sha256(self.data).hexdigest()}
        for at in range(0, max(1, len(self.data)), UPLOAD_PIECE_BYTES):
            piece = self.data[at : at + UPLOAD_PIECE_BYTES]
            yield pb.UploadModelRequest(data=piece, **(first if at == 0 else {})).SerializeToString()


def read_upload(model: str | Path | bytes, suffix: str) -> ModelUpload:
    """Read the file of a model; bytes are taken as they are, in the format that the suffix stands for."""
    if isinstance(model, bytes):
        return ModelUpload(model, suffix)
    path = Path(model)
    return ModelUpload(read_file(path), Path(path.name.removesuffix(".gz")).suffix.lower())


def encode_reference(model: Any) -> pb.ModelRef:
    """Convert a model, as a user names it, to a message.

    >>> encode_reference("acas").name
    'acas'
    """
    if isinstance(model, (ModelDescription, ModelEntry)):
        return pb.ModelRef(name=model.name or f"sha256:{model.sha256}")
    remote = RemoteModel(model) if isinstance(model, str) else model
    if not isinstance(remote, RemoteModel):
        raise ArgumentError(
            f"A server's model is named by a string, not by {type(model).__name__}.",
            where="argument model",
            hint='Give a name that client.models() lists, or "sha256:..." of one that client.upload() sent.',
        )
    return pb.ModelRef(name=remote.name, skip_normalization=not remote.normalize, shape=remote.shape or ())


def decode_entries(data: bytes) -> list[ModelEntry]:
    """Decode a list of models."""
    entries = pb.ListModelsResponse.FromString(data).models
    return [ModelEntry(e.name, e.sha256, e.bytes, e.uploaded) for e in entries]


def decode_description(data: bytes) -> ModelDescription:
    """Decode the description of a model."""
    model = pb.Model.FromString(data)
    inputs, outputs = (tuple(tuple(s.dims) for s in shapes) for shapes in (model.inputs, model.outputs))
    return ModelDescription(
        name=model.name,
        sha256=model.sha256,
        input_shape=inputs if model.several_inputs else inputs[0],
        output_shape=outputs if model.several_outputs else outputs[0],
        units={unit.operator: unit.count for unit in model.units},
        weights=model.weights,
        checksum=model.checksum,
        layers=tuple(LayerDescription(r.name, r.operator, r.kind, tuple(r.shape), r.units) for r in model.layers),
        notes=tuple(model.notes),
    )


def decode_stats(data: bytes) -> ServerStats:
    """Decode the statistics of a server."""
    message = pb.StatsResponse.FromString(data)
    values: dict[str, Any] = {field.name: getattr(message, field.name) for field in fields(ServerStats)}
    values |= {"calls": dict(message.calls), "pids": tuple(message.pids)}
    return ServerStats(**values)
