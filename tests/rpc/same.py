"""Assertions that the results of a client are those of the library, bit for bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from exactline import PlaneRestriction, Restriction, Restrictions
from exactline.decide.intervals import IntervalTable
from exactline.results.codec import PLANE_ARRAYS
from tests.rpc.legacy_wire import DecodedLine, decode_response

MAX_RATIO_DIFFERENCE = 8 * 2.0**-53


def assert_same_tensor(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    kind = {torch.float64: torch.int64, torch.float32: torch.int32}.get(ours.dtype)
    ours, theirs = (t.contiguous() if kind is None else t.contiguous().view(kind) for t in (ours, theirs))
    assert torch.equal(ours, theirs)  # as bits: -0.0 is not 0.0


def assert_same_tensors(ours: tuple[Tensor, ...] | None, theirs: tuple[Tensor, ...] | None) -> None:
    assert (ours is None) == (theirs is None)
    for a, b in zip(ours or (), theirs or (), strict=True):
        assert_same_tensor(a, b)


def assert_same_line(ours: Restriction, theirs: Restriction, *, error: bool = True) -> None:
    """Compare two restrictions of one line, ``ours`` from a client, without a network."""
    assert isinstance(ours, Restriction)
    for name in ("alphas", "origin_table", "ambiguous_per_piece"):
        assert_same_tensor(getattr(ours, name), getattr(theirs, name))
    assert_same_tensors(ours.stored_values, theirs.stored_values)
    assert_same_tensors(ours.lines.starts, theirs.lines.starts)
    assert_same_tensors(ours.lines.ends, theirs.lines.ends)
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
    assert ours.checksum == theirs.network.checksum()
    assert list(ours.origins) == list(theirs.origins)
    if error:
        assert ours.error == theirs.error


def assert_same_lines(ours: Restrictions, theirs: Restrictions) -> None:
    assert isinstance(ours, Restrictions)
    assert len(ours) == len(theirs)
    for name in ("offsets", "alphas", "origins", "ambiguous"):
        assert_same_tensor(getattr(ours.breaks, name), getattr(theirs.breaks, name))
    assert_same_tensors(ours.breaks.values, theirs.breaks.values)
    assert ours.breaks.stopped == theirs.breaks.stopped
    for i in range(len(theirs)):
        assert_same_line(ours[i], theirs[i], error=len(theirs) == 1)


def assert_same_table(ours: IntervalTable, theirs: IntervalTable) -> None:
    for field in fields(IntervalTable):
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        assert a.dtype == b.dtype
        assert np.array_equal(a, b), field.name


def assert_same_plane(ours: PlaneRestriction, theirs: PlaneRestriction) -> None:
    assert type(ours) is PlaneRestriction
    for field in PLANE_ARRAYS:
        assert_same_tensor(getattr(ours, field.attribute), getattr(theirs, field.attribute))
    assert_same_tensors(ours.vertices, theirs.vertices)
    assert_same_tensors(ours.stored_values, theirs.stored_values)
    for name in ("names", "units", "several_inputs", "several_outputs", "dtype", "ambiguous", "rewrite", "until"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert theirs.network is not None
    assert ours.checksum == theirs.network.checksum()


def is_same_response(ours: bytes, theirs: bytes) -> bool:
    """Compare two responses of the legacy protocol: bit for bit but for the last bits of lines.

    Lines are swept together with those that happened to arrive with them, and products of other sizes round
    differently: by an ulp of a ratio, and so of a float32 value.
    """
    if ours == theirs:
        return True
    a, b = decode_response(ours), decode_response(theirs)
    if not isinstance(a, DecodedLine) or not isinstance(b, DecodedLine) or len(a.ratios) != len(b.ratios):
        return False
    if np.abs(a.ratios - b.ratios).max() > MAX_RATIO_DIFFERENCE or a.values.shape != b.values.shape:
        return False
    scale = np.abs(b.values).max(initial=1.0)
    return bool(np.abs(a.values - b.values).max(initial=0.0) <= 2 * np.finfo(np.float32).eps * scale)
