"""What a client knows of models: how to name one, and what a server says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError
from ..protos.exactline.v1 import exactline_pb2 as pb

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Remote:
    """A model of a server, read in another way than usual: see `exactline.load` for the two options."""

    name: str  # or "sha256:..." of an uploaded one
    normalize: bool = True
    shape: Shape | None = None


@dataclass(frozen=True)
class Layer:
    """One node of a model."""

    name: str
    operator: str
    kind: str  # input, affine, breaking, tail
    shape: Shape
    units: int


@dataclass(frozen=True)
class Model:
    """What a server says of a model; can be given wherever a model is asked for."""

    name: str
    sha256: str
    input_shape: Shape | tuple[Shape, ...]
    output_shape: Shape | tuple[Shape, ...]
    units: dict[str, int]
    weights: int
    checksum: str
    layers: tuple[Layer, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A model in a server's list."""

    name: str  # empty for uploaded ones
    sha256: str
    bytes: int
    uploaded: bool

    def __str__(self) -> str:
        return self.name or f"sha256:{self.sha256}"


def reference(model: Any) -> pb.ModelRef:
    """A model as a user names it, as a message.

    >>> reference("acas").name
    'acas'
    """
    if isinstance(model, (Model, Entry)):
        return pb.ModelRef(name=model.name or f"sha256:{model.sha256}")
    given = Remote(model) if isinstance(model, str) else model
    if not isinstance(given, Remote):
        raise ArgumentError(
            f"A server's model is named by a text, not by {type(model).__name__}.",
            where="argument model",
            hint='Give a name of client.models(), or "sha256:..." of one that client.upload() sent.',
        )
    return pb.ModelRef(name=given.name, bare=not given.normalize, shape=given.shape or ())


def model_of(found: pb.Model) -> Model:
    """A message as a model."""
    inputs, outputs = (tuple(tuple(s.dims) for s in shapes) for shapes in (found.inputs, found.outputs))
    return Model(
        found.name,
        found.sha256,
        inputs if found.several_inputs else inputs[0],
        outputs if found.several_outputs else outputs[0],
        {unit.operator: unit.count for unit in found.units},
        found.weights,
        found.checksum,
        tuple(Layer(r.name, r.operator, r.kind, tuple(r.shape), r.units) for r in found.layers),
        tuple(found.notes),
    )
