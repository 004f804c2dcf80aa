"""Compare a result with the network's own forward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..network.graph import Network
from ..network.preserve import preserve_state
from .evaluate import batch_size, evaluate_in_batches

if TYPE_CHECKING:
    from .plane import PlaneRestriction
    from .restriction import Restriction


@dataclass(frozen=True)
class Check:
    """The largest differences between a line and the network's own forward pass, by kind of point."""

    breaks: float
    midpoints: float
    neighbours: float  # one float to either side of each break
    random: float
    scale: float  # the largest absolute value at any of the points
    points: int  # number of points that were compared
    against: str  # whose forward pass it was: the module's or the captured network's

    @property
    def worst(self) -> float:
        """The largest difference at any point."""
        return max(self.breaks, self.midpoints, self.neighbours, self.random)

    def __str__(self) -> str:
        return (
            f"largest distance {self.worst:.1e} from {self.against} at {self.points:,} points,"
            f" values up to {self.scale:.3g} (breaks {self.breaks:.1e}, midpoints {self.midpoints:.1e},"
            f" neighbours {self.neighbours:.1e}, random {self.random:.1e})"
        )


@dataclass(frozen=True)
class PlaneCheck:
    """The largest differences between a plane and the network's own forward pass, by kind of point."""

    corners: float
    centres: float
    random: float
    scale: float  # the largest absolute value at any of the points
    area: float  # difference between the sum of all polygons' areas and the whole, relative to the whole
    points: int  # number of points that were compared
    against: str  # whose forward pass it was: the module's or the captured network's

    @property
    def worst(self) -> float:
        """The largest difference at any point."""
        return max(self.corners, self.centres, self.random)

    def __str__(self) -> str:
        return (
            f"largest distance {self.worst:.1e} from {self.against} at {self.points:,} points,"
            f" values up to {self.scale:.3g} (corners {self.corners:.1e}, centres {self.centres:.1e},"
            f" random {self.random:.1e}); areas sum to the whole within {self.area:.1e}"
        )


@dataclass
class _Differences:
    """The largest differences found so far, by kind of point."""

    worst: dict[str, float]
    scale: float = 0.0
    points: int = 0

    def add(self, kind: str, values: Tensor | tuple[Tensor, ...], reference: Iterable[Tensor]) -> None:
        """Compare the values at some points, (n, *out) for each output, with those of the reference."""
        for a, b in zip(values if isinstance(values, tuple) else (values,), reference, strict=True):
            if a.numel():
                self.worst[kind] = max(self.worst[kind], float((a - b).abs().max()))
                self.scale = max(self.scale, float(b.abs().max()))


def check_line(line: Restriction, network: Network, samples: int, seed: int) -> Check:
    """Compare a line with a forward pass at breaks, midpoints, one-float neighbours and random alphas."""
    _check_sample_count(samples)
    alphas = line.alphas
    if not len(line):
        raise MissingError(
            "There is nothing to check: the sweep was stopped before its first piece.",
            where="line.check",
            hint="Allow it more breaks or seconds.",
        )
    low, high = float(alphas[0]), line.reached
    generator = torch.Generator().manual_seed(seed)
    breaks = _spread(alphas, samples)
    neighbours = torch.cat([torch.nextafter(breaks, breaks - 1), torch.nextafter(breaks, breaks + 1)])
    kinds = {
        "breaks": breaks,
        "midpoints": _spread((alphas[1:] + alphas[:-1]) / 2, samples),
        "neighbours": neighbours.clamp(low, high),
        "random": low + (high - low) * torch.rand(samples, generator=generator, dtype=torch.float64),
    }
    reference, against = _reference_function(network)
    differences = _Differences(dict.fromkeys(kinds, 0.0))
    for kind, chosen in kinds.items():
        differences.points += len(chosen)
        for batch in chosen.split(batch_size(network)):
            values = line.at(batch, tail=against == "the module")
            differences.add(kind, values, reference(line.lines.at_alphas(batch)[0]))
    return Check(**differences.worst, scale=differences.scale, points=differences.points, against=against)


def check_plane(plane: PlaneRestriction, samples: int, seed: int) -> PlaneCheck:
    """Compare a plane with a forward pass at corners, at the centres of polygons and at random points."""
    _check_sample_count(samples)
    reference, against = _reference_function(plane.require_network("plane.check"))
    generator = np.random.default_rng(seed)
    first, size = plane.offsets[:-1].numpy(), np.diff(plane.offsets.numpy())
    centres = np.add.reduceat(plane.weights[plane.rings].numpy(), first) / size[:, None]
    kinds = {  # convex weights of the vertices
        "corners": _spread(plane.weights, samples),
        "centres": _spread(torch.from_numpy(centres), samples),
        "random": torch.from_numpy(generator.dirichlet(np.ones(len(plane.outline)), samples)),
    }
    differences = _Differences(dict.fromkeys(kinds, 0.0))
    with full_precision():
        for kind, weights in kinds.items():
            differences.points += len(weights)
            values = plane.at(weights @ plane.outline, tail=against == "the module")
            differences.add(kind, values, reference(plane.input_points(weights)))
    return PlaneCheck(
        **differences.worst,
        scale=differences.scale,
        area=abs(float(plane.shares.sum()) - 1),
        points=differences.points,
        against=against,
    )


def _check_sample_count(samples: int) -> None:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise ArgumentError(
            f"samples must be a whole number from 0, not {samples!r}.", where="argument samples", hint="Try 1000."
        )


def _spread(rows: Tensor, count: int) -> Tensor:
    """At most ``count`` rows of a tensor (n, ...), spread evenly."""
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, max(count, 1), dtype=torch.float64).round().to(torch.int64)]


def _reference_function(network: Network) -> tuple[Callable[[list[Tensor]], tuple[Tensor, ...]], str]:
    """The forward pass to compare with, and its name: the user's module in float64, or the captured network."""
    module = _copy_module_in_float64(network)
    if module is None:
        return (lambda points: evaluate_in_batches(network, points)), "the captured network"
    return (lambda points: _run_module(module, points)), "the module"


def _copy_module_in_float64(network: Network) -> nn.Module | None:
    """A copy of the user's module; None if it no longer exists or cannot be copied."""
    module = network.source()
    if module is None:
        return None
    try:
        return copy.deepcopy(module).to("cpu", torch.float64)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _run_module(module: nn.Module, points: list[Tensor]) -> tuple[Tensor, ...]:
    with full_precision(), preserve_state(module):  # a copy still shares classes and globals with the user's module
        out = module(*points)
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)
