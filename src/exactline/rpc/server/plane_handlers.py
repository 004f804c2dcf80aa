"""What a worker does with planes: every polygon on which the network is affine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...api import grid, restrict_plane
from ...errors import ArgumentError
from ...network import Network
from ...results.codec import encode_plane
from ...results.plane import PlaneRestriction
from ..codec import given, tensor_of, tensors_of
from ..limits import refuse
from ..protos.exactline.v1 import exactline_pb2 as pb
from . import writer
from .line_handlers import options_of
from .worker import Task
from .writer import Column, Teller


def plane(task: Task) -> Iterator[bytes]:
    """All arrays of a plane."""
    asked = pb.PlaneRequest.FromString(task.payload)
    network = task.network()
    chosen = options_of(asked.options, task.device)
    lines = [chosen.pop(name) for name in ("max_breaks", "seconds", "engine")]
    if lines != [None, None, "auto"]:
        raise ArgumentError("A plane takes no options of lines.", where="options", hint="Leave them out.")
    teller = Teller(task.say, asked.options.progress)

    def watch(share: float, polygons: int) -> None:
        if polygons > task.limits.polygons_per_plane:
            raise refuse("polygons_per_plane", task.limits, f"The plane has {polygons:,} polygons or more.")
        teller(share, polygons)

    made = _made(asked, network, chosen, watch)
    task.facts |= {"lines": 0, "breaks": len(made.edges), "polygons": len(made)}
    task.limits.within("polygons_per_plane", len(made), "polygons")
    groups, _ = encode_plane(made)
    columns = [Column(name, t.dtype, tuple(t.shape[1:])) for name, t in groups.items()]
    yield writer.head(columns, network, task.checksum())
    yield from writer.arrays(list(groups.values()), task.limits.answer_bytes)
    yield writer.tail(seconds=made.seconds, unresolved=made.ambiguous)


def _made(
    asked: pb.PlaneRequest, network: Network, chosen: dict[str, Any], watch: Callable[[float, int], None]
) -> PlaneRestriction:
    if asked.WhichOneof("plane") == "vertices":
        vertices = tensors_of(asked.vertices, "vertices")
        points = vertices if network.several_inputs else given(vertices)
        return restrict_plane(network, points, **chosen, progress=watch)
    if asked.WhichOneof("plane") is None:
        raise ArgumentError("No plane is given.", where="plane", hint="Give vertices or a grid.")
    around = asked.grid
    if len(around.axes) != 2 or len(around.bounds) != 4:
        raise ArgumentError("A grid has two axes and four bounds.", where="grid", hint="Give all of them.")
    axes = [tuple(axis.places) for axis in around.axes]
    first, second = (axis[0] if len(axis) == 1 else axis for axis in axes)
    a, b, c, d = around.bounds
    base = tensor_of(around.base, "grid.base")
    return grid(network, base.to(torch.float64), (first, second), ((a, b), (c, d)), **chosen, progress=watch)
