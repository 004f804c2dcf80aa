"""How far the answer is from the network itself, measured, and how far it may be, estimated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..engines.dense.error_model import estimate_errors
from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network

if TYPE_CHECKING:
    from .restriction import Restriction

MAX_BATCH_NUMBERS = 1 << 24  # numbers in one batch
MAX_ESTIMATED_BREAKS = 64  # breaks whose error is estimated


@dataclass(frozen=True)
class Check:
    """Largest distances between interpolated values and the network's own, by kind of place."""

    breaks: float
    midpoints: float
    neighbours: float  # one float to either side of each break
    random: float
    scale: float  # the largest value met
    points: int  # how many places were compared
    against: str  # whose forward pass: the module's or the captured network's

    @property
    def worst(self) -> float:
        return max(self.breaks, self.midpoints, self.neighbours, self.random)

    def __str__(self) -> str:
        return (
            f"largest distance {self.worst:.1e} from {self.against} at {self.points:,} points,"
            f" values up to {self.scale:.3g} (breaks {self.breaks:.1e}, midpoints {self.midpoints:.1e},"
            f" neighbours {self.neighbours:.1e}, random {self.random:.1e})"
        )


def check_line(line: Restriction, network: Network, samples: int, seed: int) -> Check:
    """Compare a restriction with a forward pass at breaks, midpoints, one-float neighbours and random alphas."""
    check_sample_count(samples)
    alphas = line.alphas
    if not len(line):
        raise MissingError(
            "There is nothing to check: the sweep was stopped before its first piece.",
            where="line.check",
            hint="Allow it more breaks or seconds.",
        )
    low, high = float(alphas[0]), line.reached
    generator = torch.Generator().manual_seed(seed)
    spread = _spread(alphas, samples)
    places = {
        "breaks": spread,
        "midpoints": _spread((alphas[1:] + alphas[:-1]) / 2, samples),
        "neighbours": torch.cat([torch.nextafter(spread, spread - 1), torch.nextafter(spread, spread + 1)]).clamp(
            low, high
        ),
        "random": low + (high - low) * torch.rand(samples, generator=generator, dtype=torch.float64),
    }
    theirs_at, against = reference_network(network)
    tail = against == "the module"
    worst, scale, count = dict.fromkeys(places, 0.0), 0.0, 0
    for kind, asked in places.items():
        count += len(asked)
        for some in asked.split(_step(network)):
            ours = line.at(some, tail=tail)
            theirs = theirs_at(line.lines.at(torch.zeros(len(some), dtype=torch.int64), some)[0])
            for a, b in zip(ours if isinstance(ours, tuple) else (ours,), theirs, strict=True):
                if a.numel():
                    worst[kind] = max(worst[kind], float((a - b).abs().max()))
                    scale = max(scale, float(b.abs().max()))
    return Check(**worst, scale=scale, points=count, against=against)


def check_sample_count(samples: int) -> None:
    """Refuse what is no number of samples."""
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise ArgumentError(
            f"samples must be a whole number from 0, not {samples!r}.", where="argument samples", hint="Try 1000."
        )


def reference_network(network: Network) -> tuple[Callable[[list[Tensor]], tuple[Tensor, ...]], str]:
    """Whom to compare with, at batches of input points: the user's module in float64, or the captured network."""
    module = _double(network)
    if module is None:
        return (lambda points: evaluate_in_batches(network, points)), "the captured network"
    return (lambda points: _outputs(module, points)), "the module"


def evaluate_in_batches(network: Network, points: list[Tensor]) -> tuple[Tensor, ...]:
    """The captured network's outputs at some points, in batches."""
    found = []
    with full_precision():
        for some in zip(*(p.split(_step(network)) for p in points), strict=True):
            values = network.evaluate(some, network.outputs)
            found.append([values[i] for i in network.outputs])
    return tuple(torch.cat(outs) for outs in zip(*found, strict=True))


def value_error(network: Network, lines: Lines, alphas: Tensor, dtype: torch.dtype) -> float:
    """The largest estimated error of an output, over breaks spread along a line."""
    worst = 0.0
    some = _spread(alphas, MAX_ESTIMATED_BREAKS)
    with full_precision():
        points, errors = lines.to(torch.device("cpu"), dtype).at(torch.zeros(len(some), dtype=torch.int64), some)
        for place in network.outputs:
            size = estimate_errors(network, place, points, errors)
            worst = max(worst, float(size.max()) if size.numel() else 0.0)
    return worst


def _spread(alphas: Tensor, count: int) -> Tensor:
    if len(alphas) <= count:
        return alphas
    return alphas[torch.linspace(0, len(alphas) - 1, max(count, 1), dtype=torch.float64).round().to(torch.int64)]


def _step(network: Network) -> int:
    wide = max(torch.Size(node.shape).numel() for node in network.nodes)
    return max(1, MAX_BATCH_NUMBERS // max(wide, 1))


def _double(network: Network) -> nn.Module | None:
    """The user's own module in float64, as a copy; None where there is none to be had."""
    module = network.source()
    if module is None:
        return None
    try:
        return copy.deepcopy(module).to("cpu", torch.float64)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _outputs(module: nn.Module, points: list[Tensor]) -> tuple[Tensor, ...]:
    with full_precision():
        out = module(*points)
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)
