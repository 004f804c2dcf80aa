"""Counterexamples on the network itself, in its own precision: onnxruntime for ONNX files, the module for modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .flatten import Flat
from .property import Box, Case

TOLERANCE = 1e-4  # of VNN-COMP, for constraints of outputs that another program computes


@dataclass(frozen=True, eq=False)
class Replay:
    """A program that evaluates one point."""

    by: str  # its name
    dtype: torch.dtype  # of its inputs
    run: Callable[[Tensor], Tensor]  # (inputs,) of that dtype to (outputs,) float64


@dataclass(frozen=True, eq=False)
class Witness:
    """A counterexample as the program saw it."""

    case: int
    x: Tensor  # (inputs,) float64, each a number of the program's precision
    y: Tensor  # (outputs,) float64
    margin: float
    inside: bool  # in the box, without any tolerance
    holds: bool  # the constraints, without any tolerance

    @property
    def strict(self) -> bool:
        return self.inside and self.holds


def replay_of(model: Any, flat: Flat) -> Replay:
    """How to evaluate what the caller gave: an ONNX file, a module, or a network of ours."""
    if isinstance(model, nn.Module) and all(w.dtype in (torch.float32, torch.float64) for w in model.parameters()):
        return _module(model, flat)
    if isinstance(model, Path) and model.name.lower().removesuffix(".gz").endswith(".onnx"):
        found = _onnxruntime(model, flat)
        if found is not None:
            return found
    single = flat.network.to(dtype=torch.float32)
    copy = Flat(single, single.device)

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return copy(x[None])[0].to(torch.float64).cpu()

    return Replay("exactline in float32", torch.float32, run)


def witness(replay: Replay, case: int, rows: Case, box: Box, point: Tensor) -> Witness | None:
    """A point in the program's precision and what it says there; None where not even the tolerance lets it pass."""
    x = rounded(point, box, replay.dtype)
    y = replay.run(x)
    seen = x.to(torch.float64)
    if not bool(torch.isfinite(y).all()) or not bool(rows.holds(seen[None], y[None], TOLERANCE)):
        return None
    inside = bool(box.holds(seen[None]))
    holds = bool(rows.holds(seen[None], y[None]))
    return Witness(case, seen, y, float(rows.margin(seen[None], y[None])), inside, holds)


def rounded(point: Tensor, box: Box, dtype: torch.dtype) -> Tensor:
    """The nearest number of a precision that is within the bounds, where there is one."""
    if dtype == torch.float64:
        return point.clone()
    lower, upper = box.lower.to(dtype), box.upper.to(dtype)
    infinite = torch.full_like(lower, torch.inf)
    inner_low = torch.where(lower.to(torch.float64) < box.lower, torch.nextafter(lower, infinite), lower)
    inner_high = torch.where(upper.to(torch.float64) > box.upper, torch.nextafter(upper, -infinite), upper)
    near = point.to(dtype)
    return torch.where(inner_low <= inner_high, near.clamp(inner_low, inner_high), near)


def _module(model: nn.Module, flat: Flat) -> Replay:
    weight = next(iter(model.parameters()), None)
    dtype = torch.float32 if weight is None else weight.dtype
    device = torch.device("cpu") if weight is None else weight.device

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            out = model(*(part.to(device) for part in flat.split(x[None])))
        outs = out if isinstance(out, (tuple, list)) else (out,)
        return torch.cat([o.reshape(-1) for o in outs]).to("cpu", torch.float64)

    return Replay("the module itself", dtype, run)


def _onnxruntime(file: Path, flat: Flat) -> Replay | None:
    """onnxruntime without any optimisation; None where it is not installed or refuses the file."""
    try:
        import onnxruntime
    except ImportError:
        return None
    from ..formats.open_file import opened

    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    given = opened(file) if file.suffix.lower() == ".gz" else str(file)
    try:
        session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        takes = session.get_inputs()
        kinds = {i.type for i in takes}
        double = kinds == {"tensor(double)"}
        if not double and kinds != {"tensor(float)"}:
            return None
        kind = torch.float64 if double else torch.float32

        def run(x: Tensor) -> Tensor:
            feeds: dict[str, NDArray[Any]] = {}
            for what, part in zip(takes, flat.split(x[None]), strict=True):
                dims = [d if isinstance(d, int) and d > 0 else 1 for d in what.shape]
                fits = int(np.prod(dims)) == part.numel()
                feeds[what.name] = part.reshape(dims if fits else part.shape).contiguous().numpy()
            outs = [np.asarray(o).reshape(-1) for o in session.run(None, feeds)]
            return torch.from_numpy(np.concatenate(outs)).to(torch.float64)

        run(torch.zeros(flat.inputs, dtype=kind))
    except Exception:  # noqa: BLE001 - whatever it dislikes, the point can still be evaluated here
        return None
    return Replay(f"onnxruntime {ort.__version__}", kind, run)
