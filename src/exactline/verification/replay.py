"""Replays counterexamples on the network itself, in its own precision: onnxruntime for ONNX files, else PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..formats.open_file import read_file
from ..tolerances import VNNCOMP_TOLERANCE
from .flatten import FlatNetwork
from .property import Box, Disjunct


def format_vnncomp(answer: str, x: Tensor | None, y: Tensor | None) -> str:
    """Format an answer and the counterexample, if there is one, as the competition VNN-COMP expects them."""
    if x is None or y is None:
        return answer
    rows = [f"(X_{i} {v!r})" for i, v in enumerate(x.tolist())]
    rows += [f"(Y_{i} {v!r})" for i, v in enumerate(y.tolist())]
    return "\n ".join([f"{answer}\n({rows[0]}", *rows[1:]]) + ")"


@dataclass(frozen=True, eq=False)
class Replay:
    """A program that evaluates the network at one point."""

    name: str
    dtype: torch.dtype  # of its inputs
    run: Callable[[Tensor], Tensor]  # (inputs,) of that dtype -> (outputs,) float64


@dataclass(frozen=True, eq=False)
class Witness:
    """A counterexample as a replay program evaluates it."""

    disjunct: int  # index of the disjunct that it satisfies
    x: Tensor  # (inputs,) float64; each number is representable in the program's dtype
    y: Tensor  # (outputs,) float64
    margin: float
    is_in_box: bool  # without tolerance
    is_violation: bool  # whether the constraints hold without tolerance

    @property
    def is_strict(self) -> bool:
        """Whether neither the box nor the constraints need a tolerance."""
        return self.is_in_box and self.is_violation


def make_replay(model: Any, flat: FlatNetwork) -> Replay:
    """Choose the program that evaluates the caller's model: an ONNX file, a module, or a captured network."""
    if isinstance(model, nn.Module) and all(w.dtype in (torch.float32, torch.float64) for w in model.parameters()):
        return _replay_module(model, flat)
    if isinstance(model, Path) and model.name.lower().removesuffix(".gz").endswith(".onnx"):
        replay = _replay_onnx(model, flat)
        if replay is not None:
            return replay
    single = flat.network.to(dtype=torch.float32)
    copy = FlatNetwork(single, single.device)

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return copy(x[None])[0].to(torch.float64).cpu()

    return Replay("exactline in float32", torch.float32, run)


def replay_point(
    replay: Replay,
    index: int,  # of the disjunct
    disjunct: Disjunct,
    box: Box,
    point: Tensor,  # (inputs,) float64
) -> Witness | None:
    """Round a point to the program's precision and evaluate it; None if it is no violation even with the tolerance."""
    x = round_into_box(point, box, replay.dtype)
    y = replay.run(x)
    seen = x.to(torch.float64)
    if not bool(torch.isfinite(y).all()) or not bool(disjunct.holds(seen[None], y[None], VNNCOMP_TOLERANCE)):
        return None
    return Witness(
        disjunct=index,
        x=seen,
        y=y,
        margin=float(disjunct.margin(seen[None], y[None])),
        is_in_box=bool(box.holds(seen[None])),
        is_violation=bool(disjunct.holds(seen[None], y[None])),
    )


def round_into_box(point: Tensor, box: Box, dtype: torch.dtype) -> Tensor:
    """Round each coordinate to the nearest number of a precision within the bounds, if there is one."""
    if dtype == torch.float64:
        return point.clone()
    lower, upper = box.lower.to(dtype), box.upper.to(dtype)
    infinite = torch.full_like(lower, torch.inf)
    inner_low = torch.where(lower.to(torch.float64) < box.lower, torch.nextafter(lower, infinite), lower)
    inner_high = torch.where(upper.to(torch.float64) > box.upper, torch.nextafter(upper, -infinite), upper)
    near = point.to(dtype)
    return torch.where(inner_low <= inner_high, near.clamp(inner_low, inner_high), near)


def _replay_module(model: nn.Module, flat: FlatNetwork) -> Replay:
    weight = next(iter(model.parameters()), None)
    dtype = torch.float32 if weight is None else weight.dtype
    device = torch.device("cpu") if weight is None else weight.device

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            out = model(*(part.to(device) for part in flat.split_inputs(x[None])))
        outs = out if isinstance(out, (tuple, list)) else (out,)
        return torch.cat([o.reshape(-1) for o in outs]).to("cpu", torch.float64)

    return Replay("the module itself", dtype, run)


def _replay_onnx(file: Path, flat: FlatNetwork) -> Replay | None:
    """Use onnxruntime without optimisations; None if it is not installed or refuses the file."""
    try:
        import onnxruntime
    except ImportError:
        return None

    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    source = read_file(file) if file.suffix.lower() == ".gz" else str(file)
    try:
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        inputs = session.get_inputs()
        types = {i.type for i in inputs}
        is_double = types == {"tensor(double)"}
        if not is_double and types != {"tensor(float)"}:
            return None
        dtype = torch.float64 if is_double else torch.float32

        def run(x: Tensor) -> Tensor:
            feeds: dict[str, NDArray[Any]] = {}
            for declared, part in zip(inputs, flat.split_inputs(x[None]), strict=True):
                dims = [d if isinstance(d, int) and d > 0 else 1 for d in declared.shape]
                fits = int(np.prod(dims)) == part.numel()
                feeds[declared.name] = part.reshape(dims if fits else part.shape).contiguous().numpy()
            outs = [np.asarray(o).reshape(-1) for o in session.run(None, feeds)]
            return torch.from_numpy(np.concatenate(outs)).to(torch.float64)

        run(torch.zeros(flat.input_count, dtype=dtype))
    except Exception:  # noqa: BLE001 - whatever onnxruntime dislikes, our own evaluation still works
        return None
    return Replay(f"onnxruntime {ort.__version__}", dtype, run)
