"""The job of a worker about planes: every polygon on which the network is affine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...api import grid, restrict_plane
from ...errors import ArgumentError
from ...network import Network
from ...results.codec import encode_plane
from ...results.plane import PlaneRestriction
from ..codec import decode_array, decode_point, unwrap_single
from ..limits import Limits
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_arrays
from .line_handlers import decode_options
from .worker import JobContext


def handle_plane(context: JobContext) -> Iterator[bytes]:
    """Send all arrays of a plane."""
    request = context.parse(pb.PlaneRequest)
    network, limits = context.network(), context.limits
    options = decode_options(request.options, context.device)
    if (options.pop("max_breaks"), options.pop("engine")) != (None, "auto"):
        raise ArgumentError("A plane takes no max_breaks or engine.", where="options", hint="Leave them out.")
    options["max_polygons"] = request.max_polygons if request.HasField("max_polygons") else None
    send_progress = ProgressSender(context.send_message, request.options.progress)

    def report(share: float, polygons: int) -> None:
        if polygons > limits.polygons_per_plane:
            raise limits.error("polygons_per_plane", f"The plane has {polygons:,} polygons or more.")
        send_progress(share, polygons)

    plane = _restrict_plane(request, network, options, limits, report)
    context.counters |= {"lines": 0, "breaks": len(plane.edges), "polygons": len(plane)}
    limits.check("polygons_per_plane", len(plane), "polygons")
    arrays, _ = encode_plane(plane)
    answer = context.write_answer(request.options)
    answer.head(arrays, network, context.checksum())
    answer.rows(encode_arrays(list(arrays.values()), limits.answer_bytes))
    answer.tail(seconds=plane.seconds, plane_ambiguous=plane.ambiguous)
    yield from ()


def _restrict_plane(
    request: pb.PlaneRequest,
    network: Network,
    options: dict[str, Any],
    limits: Limits,
    report: Callable[[float, int], None],
) -> PlaneRestriction:
    if request.WhichOneof("plane") == "vertices":
        vertices = decode_point(request.vertices, "vertices")
        limits.check("corners_per_plane", max(len(t) if t.dim() else 0 for t in vertices), "corners")
        points = vertices if network.several_inputs else unwrap_single(vertices)
        return restrict_plane(network, points, **options, progress=report)
    if request.WhichOneof("plane") is None:
        raise ArgumentError("The plane is missing.", where="plane", hint="Give vertices or a grid.")
    message = request.grid
    if len(message.axes) != 2 or len(message.bounds) != 4:
        raise ArgumentError("A grid has two axes and four bounds.", where="grid", hint="Give all of them.")
    axes = [tuple(axis.indices) for axis in message.axes]
    first, second = (axis[0] if len(axis) == 1 else axis for axis in axes)
    low1, high1, low2, high2 = message.bounds
    base = decode_array(message.base, "grid.base").to(torch.float64)
    return grid(network, base, (first, second), ((low1, high1), (low2, high2)), **options, progress=report)
