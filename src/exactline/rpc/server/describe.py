"""What a worker says of a model: its shapes, its layers, and whether it can be restricted exactly at all."""

from __future__ import annotations

from collections.abc import Iterator

from ..protos.exactline.v1 import exactline_pb2 as pb
from .worker import Task

MOST = 10_000  # layers that are listed


def describe(task: Task) -> Iterator[bytes]:
    """The model as a message; the payload is the name that is said."""
    from ...network.listing import layers, weights

    network = task.network()
    model = task.job.model
    rows = [
        pb.Layer(name=row.name, operator=row.operator, kind=row.kind, shape=row.shape, units=row.units)
        for row in layers(network)[:MOST]
    ]
    yield pb.Model(
        name=task.payload.decode(),
        sha256="" if model is None else model.sha256,
        inputs=[pb.Shape(dims=network.nodes[i].shape) for i in network.inputs],
        outputs=[pb.Shape(dims=network.nodes[i].shape) for i in network.outputs],
        several_inputs=network.several_inputs,
        several_outputs=network.several_outputs,
        units=[pb.Unit(operator=name, count=count) for name, count in network.units.items()],
        weights=weights(network),
        checksum=task.checksum(),
        layers=rows,
        notes=network.notes,
    ).SerializeToString()
