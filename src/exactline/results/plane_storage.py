"""Planes in safetensors files: plain arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import FileError
from .storage import DTYPES, known_facts, numbered, read_arrays, same_network, write_arrays

if TYPE_CHECKING:
    from .plane import PlaneRestriction

FORMAT = "exactline.plane.1"
FACTS = ("names", "units", "several_inputs", "several_outputs", "seconds", "unresolved", "rewrite", "until")
ARRAYS = ("outline", "origin", "axes", "weights", "edges", "births", "sides", "offsets", "rings")
WHOLE = ("edges", "births", "sides", "offsets", "rings")
HINT = "Give a file that plane.save() wrote."
SLACK = 1e-6  # what rounding may do to places and areas, and damage hardly ever stays within


def save(plane: PlaneRestriction, path: Path) -> None:
    """Write a plane; the file appears whole or not at all."""
    tensors = {name: getattr(plane, name) for name in ARRAYS}
    for kind, group in (("vertex", plane.vertices), ("value", plane.kept or ())):
        tensors.update({f"{kind}.{i}": t for i, t in enumerate(group)})
    facts = {name: getattr(plane, name) for name in FACTS}
    facts["checksum"] = plane.checksum if plane.network is None else plane.network.checksum()
    facts |= {"values": plane.kept is not None, "dtype": str(plane.dtype).split(".")[1]}
    write_arrays(path, tensors, FORMAT, facts)


def load(path: Path, model: Any = None) -> PlaneRestriction:
    """Read a plane; with the model, everything can be asked of it again."""
    from ..network import as_network
    from .plane import PlaneRestriction

    tensors, header = read_arrays(path, FORMAT, "plane", HINT)
    try:
        facts = dict(json.loads(header["facts"]))
        kept = numbered(tensors, "value") if facts.pop("values") else None
        facts |= {"names": tuple(facts["names"]), "dtype": DTYPES[facts["dtype"]]}
        plane = PlaneRestriction(numbered(tensors, "vertex"), *(tensors[n] for n in ARRAYS), kept=kept, **facts)
        _consistent(plane)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as problem:
        raise FileError(f"The file lacks parts of a plane: {problem}", where=str(path), hint=HINT) from problem
    if model is None:
        return plane
    network = as_network(model, [t[0] for t in plane.vertices], rewrite=plane.rewrite, until=plane.until)
    same_network(network, plane.names, plane.checksum, path)
    return plane.with_network(network)


def _consistent(plane: PlaneRestriction) -> None:
    """Refuse arrays that do not fit together, before anyone computes with them."""
    if not plane.vertices or any(len(v) != len(plane.outline) for v in plane.vertices) or len(plane.outline) < 3:
        raise ValueError("the vertices are missing")
    width = sum(v[0].numel() for v in plane.vertices)
    corners, edges, count = len(plane.weights), len(plane.edges), len(plane.offsets) - 1
    shapes = {
        "outline": (len(plane.vertices[0]), 2),
        "origin": (width,),
        "axes": (2, width),
        "weights": (corners, len(plane.outline)),
        "edges": (edges, 2),
        "births": (edges, 3),
        "sides": (edges, 2),
        "offsets": (count + 1,),
        "rings": (len(plane.rings),),
    }
    for name, shape in shapes.items():
        tensor = getattr(plane, name)
        kind = torch.int64 if name in WHOLE else torch.float64
        if tuple(tensor.shape) != shape or tensor.dtype != kind:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, not {shape}")
        if kind == torch.float64 and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds numbers that are not finite")
    steps = plane.offsets.diff()
    if count < 1 or int(plane.offsets[0]) != 0 or int(plane.offsets[-1]) != len(plane.rings) or bool((steps < 3).any()):
        raise ValueError("offsets do not fit")
    for name, low, high in (("edges", 0, corners), ("rings", 0, corners), ("sides", -1, count)):
        tensor = getattr(plane, name)
        if tensor.numel() and (int(tensor.min()) < low or int(tensor.max()) >= high):
            raise ValueError(f"{name} name what is not there")
    nodes = plane.births[:, 0]
    if nodes.numel() and (int(nodes.min()) < -1 or int(nodes.max()) >= len(plane.names)):
        raise ValueError("births name what is not there")
    kept = plane.kept or ()
    if plane.kept is not None and (not kept or any(len(v) != corners or v.dtype != plane.dtype for v in kept)):
        raise ValueError("there is not one value for each corner")
    plain = {"seconds": (int, float), "unresolved": (int,), "checksum": (str,), "until": (str, type(None))}
    known_facts(plane, plain | dict.fromkeys(("several_inputs", "several_outputs", "rewrite"), (bool,)))
    _closed(plane)
    _placed(plane)


def _closed(plane: PlaneRestriction) -> None:
    """Refuse edges that are not the sides of the polygons, one for one."""
    offsets, rings, ends, sides = (getattr(plane, n).numpy() for n in ("offsets", "rings", "edges", "sides"))
    after = np.arange(len(rings)) + 1
    after[offsets[1:] - 1] = offsets[:-1]
    told = np.stack([np.arange(len(offsets) - 1).repeat(np.diff(offsets)), rings, rings[after]], 1)
    seen = np.concatenate([np.column_stack([sides[:, 0], ends]), np.column_stack([sides[:, 1], ends[:, ::-1]])])
    seen = seen[seen[:, 0] >= 0]
    if len(told) != len(seen) or (told[np.lexsort(told.T)] != seen[np.lexsort(seen.T)]).any():
        raise ValueError("edges and polygons do not fit")
    if (sides[:, 0] == sides[:, 1]).any() or (ends[:, 0] == ends[:, 1]).any():
        raise ValueError("edges lead nowhere")


def _placed(plane: PlaneRestriction) -> None:
    """Refuse places that are not those of the vertices, and polygons that do not fill the whole."""
    if any(v.dtype != torch.float64 or not bool(torch.isfinite(v).all()) for v in plane.vertices):
        raise ValueError("the vertices are not numbers of 64 bits")
    if not plane.extent > 0:
        raise ValueError("the outline has no extent")
    flat = torch.cat([v.flatten(1) for v in plane.vertices], 1) / plane.extent
    gap = (flat - plane.origin / plane.extent) @ plane.axes.T - plane.outline / plane.extent
    if not float(gap.abs().max()) <= SLACK + 1e-9 * float(flat.abs().max()):
        raise ValueError("the outline is not that of the vertices")
    if not float((plane.weights.sum(1) - 1).abs().max()) <= SLACK or float(plane.weights.min()) < -SLACK:
        raise ValueError("weights are no shares")
    if not abs(float(plane.shares.sum()) - 1) <= SLACK or float(plane.shares.min()) < -SLACK:
        raise ValueError("the polygons do not fill the whole")
