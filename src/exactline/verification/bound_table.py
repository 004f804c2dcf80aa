"""Reads at once a VNNLIB file that is one disjunction of conjunctions of bounds, such as those of learned indexes."""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray

from .property import Property, PropertyTable

INDEX, DECIMAL = r"(?:0|[1-9]\d{0,8})", r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,3})?"
BOUND_PATTERN = re.compile(rf"\(\s*(<=|>=)\s+([XY]_{INDEX})\s+({DECIMAL})\s*\)", re.ASCII)
CONJUNCTION = rf"\(\s*and(?:\s*\(\s*[<>]=\s+[XY]_{INDEX}\s+{DECIMAL}\s*\))+\s*\)"
DECLARATION_PATTERN = re.compile(rf"\s*\(declare-const\s+([XY]_{INDEX})\s+Real\)", re.ASCII)
DISJUNCTION_PATTERN = re.compile(rf"\s*\(assert\s*\(or(?:\s*{CONJUNCTION})+\s*\)\s*\)\s*", re.ASCII)
MAX_TABLE_NUMBERS = 1 << 24  # in the bounds of all disjuncts; larger files are read in the general way


def read_bound_table(text: str, where: str) -> Property | None:
    """Read a whole file at once; None for any other file, and for one with an error, which the parser explains."""
    names, position = [], 0
    while (declared := DECLARATION_PATTERN.match(text, position)) is not None:
        names.append(declared[1])
        position = declared.end()
    inputs, outputs = (sum(name[0] == kind for name in names) for kind in "XY")
    expected = {*(f"X_{i}" for i in range(inputs)), *(f"Y_{i}" for i in range(outputs))}
    if not inputs or not outputs or len(names) != len(expected) or {*names} != expected:
        return None
    if DISJUNCTION_PATTERN.fullmatch(text, position) is None:
        return None
    clauses = text[position:].split("and")[1:]
    bounds = BOUND_PATTERN.findall(text, position)
    if len(clauses) * max(inputs, outputs) > MAX_TABLE_NUMBERS:
        return None
    clause = np.repeat(np.arange(len(clauses)), [part.count("=") for part in clauses])
    is_upper = np.array([comparison == "<=" for comparison, _, _ in bounds])
    is_input = np.array([name[0] == "X" for _, name, _ in bounds])
    number = np.array([int(name[2:]) for _, name, _ in bounds])
    value = np.array([float(limit) for _, _, limit in bounds]) + 0.0  # never -0
    if not np.isfinite(value).all():
        return None
    lower, upper = np.full((len(clauses), inputs), -np.inf), np.full((len(clauses), inputs), np.inf)
    for side, choose, chosen in ((lower, np.maximum, is_input & ~is_upper), (upper, np.minimum, is_input & is_upper)):
        choose.at(side, (clause[chosen], number[chosen]), value[chosen])
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        return None
    is_kept: NDArray[np.bool_] = np.all(lower <= upper, axis=1)
    rows = ~is_input & is_kept[clause]
    sides, box = _number_boxes(np.stack([lower, upper], axis=1)[is_kept])
    weights = torch.zeros(int(rows.sum()), outputs, dtype=torch.float64)
    sign = np.where(is_upper, 1.0, -1.0)[rows]
    weights[np.arange(len(weights)), number[rows]] = torch.from_numpy(sign)
    counts = np.bincount(clause[rows], minlength=len(clauses))[is_kept]
    table = PropertyTable(
        lower=torch.from_numpy(sides[:, 0].copy()),
        upper=torch.from_numpy(sides[:, 1].copy()),
        box=torch.from_numpy(box),
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
        output_weights=weights,
        limit=torch.from_numpy(sign * value[rows] + 0.0),
        strict=torch.zeros(len(weights), dtype=torch.bool),
        input_weights={},
    )
    return Property.from_table(table, where)


def _number_boxes(
    sides: NDArray[np.float64],  # (disjuncts, 2, inputs)
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:  # (boxes, 2, inputs), (disjuncts,)
    """Return the different boxes in the order of their first disjuncts, and the number of each disjunct's box."""
    flat = sides.reshape(len(sides), sides.shape[1] * sides.shape[2])
    _, first, inverse = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return sides[np.sort(first)], rank[inverse.reshape(-1)]
