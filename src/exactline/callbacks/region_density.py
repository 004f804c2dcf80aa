"""A callback that measures region density and local complexity around data points while a network trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ArgumentError
from ..lines import PointLike, as_points
from ..measures.local_complexity import local_complexity, make_axes
from ..options import check_count
from .eval_copy import EvalCopy, keep_random_state, select_network
from .writers import CsvWriter, TensorBoardWriter

LIGHTNING_HOOKS = ("setup", "teardown")  # hooks of a Lightning callback whose names do not begin with on_


@dataclass(frozen=True)
class RegionRecord:
    """One measurement; numbers are means over the points.

    >>> import exactline as xl
    >>> monitor = xl.callbacks.RegionDensity(torch.zeros(1, 2), radius=1.0)
    >>> record = monitor.measure(torch.nn.Sequential(torch.nn.ReLU()), 0)
    >>> record.crossings, record.local_complexity, record.vertex_complexity
    (4.0, 2.0, 2.0)
    """

    step: int
    region_density: float  # linear regions for each unit of length, on the axes around the points
    crossings: float  # crossings on all axes of a point
    local_complexity: float  # units that change their branch on some axis of a point: exact
    vertex_complexity: float  # units whose branch differs between corners: what sampling the corners sees
    seconds: float  # that the measurement took


class RegionDensity:
    """Measure the linear regions around some data points every few steps, in a plain loop or as a Lightning callback.

    Around each point a cross-polytope with fixed random axes is laid. The network is restricted to every axis, exactly:
    its regions give a density, and the units that change their branch the local complexity. The count that looks at the
    corners only, as it is usually computed, stands beside it.

    The model's mode, weights, gradients and random numbers stay untouched: an evaluation copy is measured.

    Args:
        points: The data points, (points, *in).
        every: Steps between two measurements, at least.
        radius: Half the length of every axis, in input units.
        axes: How many axes around each point.
        max_overhead: The share of the training time that measurements may take; a measurement that would exceed it
            waits. The first one is always taken. None measures every ``every`` steps, whatever it costs.
        csv: A file to append every measurement to.
        tensorboard: A SummaryWriter, or a folder for a new one.
        network: The submodule to measure, by its name in ``named_modules()``; by default the whole model.
        seed: Of the axes.
        device: Where to compute; by default where the model's weights are.
        memory: Bytes of the working set; by default a share of the free memory.

    >>> import exactline as xl
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> monitor = xl.callbacks.RegionDensity(torch.zeros(1, 2), every=2, radius=1.0, max_overhead=None)
    >>> for step in range(5):
    ...     _ = monitor.step(model, step)
    >>> [record.step for record in monitor.history], model.training
    ([0, 2, 4], True)

    Raises ArgumentError, LineError, FileError, MissingError.
    """

    def __init__(
        self,
        points: PointLike,
        *,
        every: int = 100,
        radius: float = 0.01,
        axes: int = 2,
        max_overhead: float | None = 0.05,
        csv: str | Path | None = None,
        tensorboard: Any = None,
        network: str | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        memory: int | None = None,
    ) -> None:
        (self.points,) = _check_points(points)
        self.every, count = check_count("every", every) or 1, check_count("axes", axes) or 1
        self.radius, self.max_overhead = _check_positive("radius", radius), max_overhead
        if max_overhead is not None:
            _check_positive("max_overhead", max_overhead)
        self.axes = make_axes(self.points[0], count, torch.Generator().manual_seed(seed))
        self.network, self.device, self.memory = network, device, memory
        self.history: list[RegionRecord] = []
        self.writers = [CsvWriter(csv)] if csv is not None else []
        self.writers += [TensorBoardWriter(tensorboard)] if tensorboard is not None else []
        self.seconds = 0.0  # that all measurements took
        self._copy: EvalCopy | None = None
        self._began = time.perf_counter()
        self._next_step = 0

    @property
    def overhead(self) -> float:
        """The share of the time since the first step that measurements took."""
        elapsed = time.perf_counter() - self._began
        return self.seconds / elapsed if elapsed > 0 else 0.0

    def step(self, model: nn.Module, step: int) -> RegionRecord | None:
        """Measure if it is time to; call it once in every training step.

        Args:
            model: The model that is trained, in any mode.
            step: The number of the step.

        Returns the measurement, or None if none was due.
        """
        if not self.history and self._copy is None:
            self._began = time.perf_counter()
        if step < self._next_step or not self._can_afford():
            return None
        return self.measure(model, step)

    def measure(self, model: nn.Module, step: int) -> RegionRecord:
        """Measure now, and write the result.

        Args:
            model: The model that is trained, in any mode.
            step: The number of the step.

        Raises CaptureError, UnsupportedError, LineError, FileError.
        """
        began = time.perf_counter()
        module = select_network(model, self.network)
        with keep_random_state(), torch.no_grad():
            if self._copy is None:
                self._copy = EvalCopy(module, self.points[0])
            network = self._copy.follow(module)
            device = self._device(module)
            found = local_complexity(network, self.points, self.axes, self.radius, device=device, memory=self.memory)
        seconds = time.perf_counter() - began
        self.seconds += seconds
        record = RegionRecord(
            step=step,
            region_density=float(found.region_density.mean()),
            crossings=float(found.crossings.double().mean()),
            local_complexity=float(found.units.double().mean()),
            vertex_complexity=float(found.vertex_units.double().mean()),
            seconds=seconds,
        )
        self.history.append(record)
        self._next_step = step + self.every
        for writer in self.writers:
            writer.write(asdict(record))
        return record

    def _device(self, module: nn.Module) -> torch.device | str | None:
        weight = next(module.parameters(), None)
        return self.device if self.device is not None or weight is None else weight.device

    def _can_afford(self) -> bool:
        """Whether another measurement as long as the last one keeps the overhead below its limit."""
        if self.max_overhead is None or not self.history:
            return True
        training = time.perf_counter() - self._began - self.seconds
        return self.seconds + self.history[-1].seconds <= self.max_overhead * training

    # what Lightning calls; hooks that are not listed do nothing

    @property
    def state_key(self) -> str:
        """The key of the callback's state in a Lightning checkpoint."""
        return f"{type(self).__qualname__}[{self.network or ''}]"

    def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, *_: Any) -> None:
        """Lightning's hook after every training step.

        Args:
            trainer: Lightning's trainer; only its process of rank 0 measures.
            pl_module: The module that is trained.
            *_: What else Lightning passes, unused.
        """
        if getattr(trainer, "is_global_zero", True):
            self.step(pl_module, int(getattr(trainer, "global_step", self._next_step)))

    def state_dict(self) -> dict[str, Any]:
        """What a Lightning checkpoint keeps: the measurements so far."""
        return {"history": [asdict(record) for record in self.history], "next_step": self._next_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a Lightning checkpoint.

        Args:
            state: What `RegionDensity.state_dict` returned.
        """
        self.history = [RegionRecord(**record) for record in state["history"]]
        self._next_step = int(state["next_step"])

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in LIGHTNING_HOOKS or name.startswith("on_"):
            return _do_nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _do_nothing(*_: Any, **__: Any) -> None:
    """A hook of a Lightning callback that is not used."""


def _check_points(points: PointLike) -> tuple[torch.Tensor]:
    found = as_points(points, "points")
    if len(found) != 1 or found[0].dim() < 2 or not len(found[0]):
        raise ArgumentError(
            f"points have shape {' and '.join(str(tuple(p.shape)) for p in found)}.",
            where="argument points",
            hint="Give at least one point of a network with one input, as (points, *in).",
        )
    return (found[0],)


def _check_positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ArgumentError(
            f"{name} must be a finite number above 0, not {value!r}.",
            where=f"argument {name}",
            hint="Lines of length 0 have no density." if name == "radius" else "Give None for no limit.",
        )
    return float(value)
