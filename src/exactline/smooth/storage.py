"""Curves in safetensors files: arrays and a JSON header, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ..errors import FileError
from ..lines import Lines
from ..results.storage import read_arrays, write_arrays
from .approximation import Approximation

CURVE_FORMAT = "exactline.curve.1"
ARRAYS = ("breakpoints", "degrees", "coefficients", "errors", "kinks")
FACTS = ("status", "tol", "evaluations", "seconds", "stopped", "several_inputs", "several_outputs", "source")


def save_curve(curve: Approximation, path: Path) -> None:
    """Write a curve."""
    tensors = {name: getattr(curve, name) for name in ARRAYS}
    tensors |= {f"start.{i}": t for i, t in enumerate(curve.lines.starts)}
    tensors |= {f"end.{i}": t for i, t in enumerate(curve.lines.ends)}
    facts: dict[str, Any] = {name: getattr(curve, name) for name in FACTS}
    facts |= {"output_shapes": curve.output_shapes, "output_names": curve.output_names}
    write_arrays(path, tensors, facts, CURVE_FORMAT)


def load_curve(path: Path) -> Approximation:
    """Read and validate a curve; raises FileError."""
    hint = "Give a file that curve.save() wrote."
    tensors, header = read_arrays(path, CURVE_FORMAT, "curve", hint)
    try:
        facts = dict(json.loads(header["facts"]))
        count = sum(name.startswith("start.") for name in tensors)
        sides = [tuple(tensors[f"{side}.{i}"] for i in range(count)) for side in ("start", "end")]
        curve = Approximation(
            **{name: tensors[name] for name in ARRAYS},
            lines=Lines(sides[0], sides[1]),
            output_shapes=tuple(tuple(int(n) for n in shape) for shape in facts["output_shapes"]),
            output_names=tuple(str(n) for n in facts["output_names"]),
            **{name: facts[name] for name in FACTS},
        )
        problem = find_problem(curve)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(f"The file is not a valid curve: {error}", where=str(path), hint=hint) from error
    if problem:
        raise FileError(f"The file is not a valid curve: {problem}", where=str(path), hint=hint)
    return curve


def find_problem(curve: Approximation) -> str:
    """What is wrong with the arrays of a curve; empty if nothing is."""
    breakpoints, degrees = curve.breakpoints, curve.degrees
    outputs = sum(int(torch.Size(shape).numel()) for shape in curve.output_shapes)
    if breakpoints.dim() != 1 or degrees.dim() != 1 or len(breakpoints) != len(degrees) + 1 or not len(degrees):
        return "the numbers of breakpoints and degrees do not fit"
    if not bool((breakpoints.diff() > 0).all()) or (float(breakpoints[0]), float(breakpoints[-1])) != (0.0, 1.0):
        return "the breakpoints do not ascend from 0 to 1"
    if int(degrees.min()) < 0 or tuple(curve.coefficients.shape) != (int((degrees + 1).sum()), outputs):
        return "the coefficients do not fit the degrees"
    if not bool(curve.coefficients.isfinite().all()) or tuple(curve.errors.shape) != tuple(degrees.shape):
        return "the coefficients or errors are not valid"
    return "" if curve.status in ("exact", "certified", "estimated") else "the status is not known"
