"""Whether results of a server are those of the library, bit for bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from exactline import PlaneRestriction, Restriction, Restrictions
from exactline.decide.intervals import Table
from exactline.results.codec import PLANE_ARRAYS


def same_tensor(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    kind = {torch.float64: torch.int64, torch.float32: torch.int32}.get(ours.dtype)
    ours, theirs = (t.contiguous() if kind is None else t.contiguous().view(kind) for t in (ours, theirs))
    assert torch.equal(ours, theirs)  # bits: -0.0 is not 0.0


def same_group(ours: tuple[Tensor, ...] | None, theirs: tuple[Tensor, ...] | None) -> None:
    assert (ours is None) == (theirs is None)
    for a, b in zip(ours or (), theirs or (), strict=True):
        same_tensor(a, b)


def same_line(ours: Restriction, theirs: Restriction, *, error: bool = True) -> None:
    """Two restrictions of one line, ``ours`` by a client, whose network is not here."""
    assert type(ours) is Restriction
    for name in ("alphas", "origin_table", "ambiguous_per_piece"):
        same_tensor(getattr(ours, name), getattr(theirs, name))
    same_group(ours.stored_values, theirs.stored_values)
    same_group(ours.lines.starts, theirs.lines.starts)
    same_group(ours.lines.ends, theirs.lines.ends)
    facts = (
        "names",
        "units",
        "several_inputs",
        "several_outputs",
        "dtype",
        "stopped",
        "is_minimal",
        "rewrite",
        "until",
    )
    for name in facts:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.network is None
    assert theirs.network is not None
    assert ours.weights == theirs.network.checksum()
    assert list(ours.origins) == list(theirs.origins)
    if error:
        assert ours.error == theirs.error


def same_lines(ours: Restrictions, theirs: Restrictions) -> None:
    assert isinstance(ours, Restrictions)
    assert len(ours) == len(theirs)
    for name in ("offsets", "alphas", "origins", "ambiguous"):
        same_tensor(getattr(ours.breaks, name), getattr(theirs.breaks, name))
    same_group(ours.breaks.values, theirs.breaks.values)
    assert ours.breaks.stopped == theirs.breaks.stopped
    for i in range(len(theirs)):
        same_line(ours[i], theirs[i], error=len(theirs) == 1)


def same_table(ours: Table, theirs: Table) -> None:
    for field in fields(Table):
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        assert a.dtype == b.dtype
        assert np.array_equal(a, b), field.name


def same_plane(ours: PlaneRestriction, theirs: PlaneRestriction) -> None:
    assert type(ours) is PlaneRestriction
    for field in PLANE_ARRAYS:
        same_tensor(getattr(ours, field.attribute), getattr(theirs, field.attribute))
    same_group(ours.vertices, theirs.vertices)
    same_group(ours.stored_values, theirs.stored_values)
    for name in ("names", "units", "several_inputs", "several_outputs", "dtype", "ambiguous", "rewrite", "until"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert theirs.network is not None
    assert ours.checksum == theirs.network.checksum()
