"""Jobs of a worker that sweep nothing: describe a model, check the device, sleep."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...network.listing import count_weights, list_layers
from ...network.smooth_network import list_nodes
from ...options import select_device
from ..protos.exactline.v1 import exactline_pb2 as pb
from .worker import JobContext

MAX_LISTED_LAYERS = 10_000


def handle_describe(context: JobContext) -> Iterator[bytes]:
    """Describe a model: shapes, layers, numbers of units and weights; the payload is the name to report."""
    network = list_nodes(context.any_network())
    model = context.job.model
    rows = [
        pb.Layer(name=row.name, operator=row.operator, kind=row.kind, shape=row.shape, units=row.units)
        for row in list_layers(network)[:MAX_LISTED_LAYERS]
    ]
    yield pb.Model(
        name=context.payload.decode(),
        sha256="" if model is None else model.sha256,
        inputs=[pb.Shape(dims=network.nodes[i].shape) for i in network.inputs],
        outputs=[pb.Shape(dims=network.nodes[i].shape) for i in network.outputs],
        several_inputs=network.several_inputs,
        several_outputs=network.several_outputs,
        units=[pb.Unit(operator=name, count=count) for name, count in network.units.items()],
        weights=count_weights(network),
        checksum=context.checksum(),
        layers=rows,
        notes=network.notes,
    ).SerializeToString()


def handle_probe(context: JobContext) -> Iterator[bytes]:
    """Check that the device can be used.

    Raises ArgumentError if it cannot.
    """
    yield str(select_device(None, context.device)).encode()


def handle_sleep(context: JobContext) -> Iterator[bytes]:
    """Sleep for as many seconds as the payload says: for tests of deadlines, queues and lost workers."""
    time.sleep(float(context.payload or b"0"))
    yield b"slept"
