"""Clocks, peaks and plain tables for the benchmarks; only torch and numpy are needed."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from time import perf_counter, process_time

import torch
from shapes import Case, Model
from torch import Tensor, nn

import exactline as xl

MIB = 2**20
ENOUGH = 60.0  # seconds of a plain forward after which the rest of the points is extrapolated


class Clock:
    """Seconds on the wall or, where the machine is busy, of one processor; a GPU is waited for."""

    def __init__(self, device: str = "cpu", processor: bool = False) -> None:
        self.gpu, self.now = device.startswith("cuda"), process_time if processor else perf_counter

    def __call__(self) -> float:
        if self.gpu:
            torch.cuda.synchronize()
        return self.now()


def best(calls: Sequence[Callable[[], object]], runs: int, clock: Callable[[], float] = perf_counter) -> list[float]:
    """Fewest seconds of each call; they take turns, so that a busy moment of the machine hits all alike."""
    if runs > 1:  # a single run is taken as it is, several follow a warm-up
        for call in calls:
            call()
    fewest = [float("inf")] * len(calls)
    for _ in range(runs):
        for place, call in enumerate(calls):
            start = clock()
            call()
            fewest[place] = min(fewest[place], clock() - start)
    return fewest


class Forward:
    """A plain forward over the breaks of lines that were swept, so many points at a time.

    In float64, or for a module in float32.
    """

    def __init__(
        self, case: Case, model: Model, lines: xl.Restrictions, device: str, dtype: torch.dtype = torch.float64
    ) -> None:
        self.plain = deepcopy(model).to(device, dtype) if isinstance(model, nn.Module) else model
        self.dtype = dtype
        self.starts, self.ends = (side.to(device) for side in case.ends())
        counts = lines.offsets.diff()
        self.line = torch.arange(case.lines).repeat_interleave(counts).to(device)
        self.alphas = lines.alphas.to(device).view(-1, *[1] * len(case.shape))
        self.batch, self.clock = case.batch, Clock(device)
        few = self.line.numel() * self.starts[0].numel() <= 1 << 26
        self.points = self._points(slice(None)) if few else None  # made beforehand where they fit

    def _points(self, some: slice) -> Tensor:  # (k, *shape)
        line = self.line[some]
        return torch.lerp(self.starts[line], self.ends[line], self.alphas[some]).to(self.dtype)

    def __call__(self) -> float:
        """Go over the points; the share of them that there was time for."""
        began, count = self.clock(), len(self.line)
        with torch.inference_mode():
            for at in range(0, count, self.batch):
                some = slice(at, at + self.batch)
                self.plain(self._points(some) if self.points is None else self.points[some])
                if self.clock() - began > ENOUGH:
                    return min(at + self.batch, count) / count
        return 1.0


def peak_mib(device: str) -> float:
    """The most memory this process has held: on the GPU what tensors took, else all that was resident."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / MIB
    status = Path("/proc/self/status")
    if status.exists():  # resource would tell of the process that started this one as well
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table in Markdown, the first column to the left and numbers to the right."""
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return (
            "| "
            + " | ".join(
                c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True))
            )
            + " |"
        )

    rule = "|" + "|".join("-" * (w + 2) if k == 0 else "-" * (w + 1) + ":" for k, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])
