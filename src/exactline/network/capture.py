"""From a torch module to an exported program: traced with a free batch dimension, the module left as it was."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import operator
import warnings
import weakref
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import CaptureError, TrainingModeError
from .aten import REFUSED, RULES
from .graph import Network
from .reader import IGNORED, is_overload, operator_name, read

EXAMPLES = 3  # points in the example batch: 0 and 1 are special to torch, 2 is a likely size
MOST = 1024  # points in a batch that torch must think of: some kernels have a limit, and we never run its graph
TRAINING = (nn.modules.dropout._DropoutNd, nn.RReLU)  # pyright: ignore[reportPrivateUsage]


def capture(model: nn.Module, points: Sequence[Tensor], until: str | None = None) -> Network:
    """Read a module as a network; the points give the input shapes."""
    refuse_training(model)
    program = export(model, points)
    network = read(program, until)
    return network if until is not None else network.sourced(weakref.ref(model))  # a part has no forward of its own


def refuse_training(model: nn.Module) -> None:
    """A submodule that drops units or normalises by the batch is not one function of one point."""
    for name, module in model.named_modules():
        batch = isinstance(module, nn.modules.batchnorm._BatchNorm)  # pyright: ignore[reportPrivateUsage]
        active = isinstance(module, TRAINING) and getattr(module, "p", 1.0) > 0
        if module.training and (batch or active):
            raise TrainingModeError(
                f"{type(module).__name__} is in training mode.",
                where=f"submodule {name or '(the model itself)'}",
                hint="Call model.eval() first.",
            )


def export(model: nn.Module, points: Sequence[Tensor]) -> ExportedProgram:
    """torch.export with a free batch dimension, leaving the module as it was."""
    examples = tuple(_example(model, point) for point in points)
    batch = torch.export.Dim("batch", max=MOST)
    shapes: Any = tuple({0: batch} for _ in examples)
    try:
        with _quiet(), torch.no_grad(), _no_autocast():
            try:
                program = torch.export.export(model, examples, dynamic_shapes=shapes, strict=False)
            except Exception as problem:
                if "dynamic_shapes" not in str(problem) or "varargs" not in str(problem).lower() + _signature(model):
                    raise
                program = torch.export.export(model, examples, dynamic_shapes=(shapes,), strict=False)
            return readable(program)
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as problem:
        raise CaptureError(
            f"torch.export could not trace {type(model).__name__}: {_first_line(problem)}",
            where=f"forward, called with inputs of shape {', '.join(str((len(e), *e.shape[1:])) for e in examples)}",
            hint=(
                "Give points without a batch dimension; a tuple stands for several inputs."
                " forward must take any batch and must not branch on data."
            ),
        ) from problem


def readable(program: ExportedProgram) -> ExportedProgram:
    """The program without in-place operators, and with those we do not know taken apart where torch can.

    Taking apart is most of the time of an export, and most programs need none of it.
    """
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return program if all(map(_known, targets)) else program.run_decompositions({})


def _known(target: Any) -> bool:
    if not is_overload(target) or target._schema.is_mutable:
        return target is operator.getitem
    name = operator_name(target)
    names = (target._schema.name, name, f"{name}.{target._overloadname}")
    return any(n in RULES or n in REFUSED or n in IGNORED for n in names) or name == "sym_size"


def _example(model: nn.Module, point: Tensor) -> Tensor:
    """A batch of the kind the module expects."""
    weight = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), None)
    dtype = weight.dtype if weight is not None else torch.get_default_dtype()
    device = weight.device if weight is not None else torch.device("cpu")
    return torch.zeros(EXAMPLES, *point.shape, dtype=dtype, device=device)


def _signature(model: nn.Module) -> str:
    kinds = [p.kind for p in inspect.signature(model.forward).parameters.values()]
    return "varargs" if inspect.Parameter.VAR_POSITIONAL in kinds else ""


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {text[0] if text else ''}"[:300]


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """torch.export tells loggers, warnings and standard error about itself; none of it is the user's business."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _no_autocast() -> Generator[None]:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield
