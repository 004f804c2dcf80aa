"""How well `seconds=` and `memory=` are kept: time and peak memory of limited calls, each in its own process.

``python benchmarks/limits.py`` prints one row for each case, engine and limit. Memory is the growth of the process's
peak above its size before the call and above the size of the result. Networks are captured and
libraries loaded before the clock starts. A row fails where memory exceeds its limit by more than 10 %, or where the
processor time after the deadline exceeds 10 % of the limit and one forward of a chunk: on a busy machine the wall time
says little.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from architectures import build
from torch import Tensor, nn

import exactline as xl
from exactline.api import restrict_parts
from exactline.attr.path_integrals import path_integral
from exactline.budget import DEFAULT_MEMORY
from exactline.lines import Lines
from exactline.network import as_network
from exactline.numerics.plan import sweep_plan

MIB = 1 << 20
TOLERANCE = 0.1  # share of a limit by which it may be exceeded
SECONDS_WITHOUT_LIMIT = 5.0  # processor seconds after which a call without a time limit is cut off
CHUNK_POINTS = 64  # points of a chunk at most
LIMITS: dict[str, dict[str, Any]] = {
    "0.5s": {"seconds": 0.5},
    "2s": {"seconds": 2.0},
    "5s": {"seconds": 5.0},
    "256": {"memory": 256 * MIB},
    "512": {"memory": 512 * MIB},
    "1024": {"memory": 1024 * MIB},
    "256, 5s": {"memory": 256 * MIB, "seconds": 5.0},
}
HEAD = (
    "case engine seconds= memory= pieces reached wall processor late chunk growth,MiB result,MiB kept".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Case:
    """A network, the shape of its input, and what is asked about it."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    call: str = "restrict"
    lines: int = 1
    length: float = 1.0  # of the line from noise, relative to that between two points of noise
    whole_numbers: bool = False  # weights and points are small whole numbers, so that many units tie


def _conv_relu(*channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    return layers


def _mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _global_max(*channels: int) -> nn.Module:
    return nn.Sequential(*_conv_relu(*channels), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 10))


def _conv_big() -> nn.Module:
    """The shape of ERAN's convBig for CIFAR."""
    convs = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU()]
    convs += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1), nn.ReLU()]
    return nn.Sequential(*convs, nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))


def _small_conv() -> nn.Module:
    return nn.Sequential(*_conv_relu(2, 16, 16), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 10))


def _sorted() -> nn.Module:
    class TopOfMap(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(2).topk(3, 2).values.flatten(1)

    return nn.Sequential(*_conv_relu(3, 8), TopOfMap(), nn.Linear(24, 10))


CASES: dict[str, Case] = {
    "wide MLP": Case(lambda: _mlp(784, 4096, 4096, 4096, 10), (784,)),
    "deep MLP": Case(lambda: _mlp(100, *[256] * 60, 10), (100,)),
    "MLP with ties": Case(lambda: _mlp(50, *[1024] * 4, 10), (50,), whole_numbers=True),
    "convBig": Case(_conv_big, (3, 32, 32)),
    "conv net with ties": Case(_conv_big, (3, 32, 32), whole_numbers=True),
    "max over 64 x 64": Case(lambda: _global_max(3, 16), (3, 64, 64)),
    "max over 224 x 224": Case(lambda: _global_max(3, 16), (3, 224, 224)),
    "max over 320 x 320": Case(lambda: _global_max(3, 8), (3, 320, 320)),
    "max with ties": Case(lambda: _global_max(1, 4), (1, 64, 64), whole_numbers=True),
    "max of whole input": Case(lambda: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()), (3, 320, 320)),
    "max windows 17 x 17": Case(
        lambda: nn.Sequential(*_conv_relu(3, 8), nn.MaxPool2d(17, 4), nn.Flatten(), nn.Linear(1152, 10)), (3, 64, 64)
    ),
    "top 3 of 16 x 16": Case(_sorted, (3, 16, 16)),
    "image to image": Case(lambda: nn.Sequential(*_conv_relu(3, 8, 8), nn.Conv2d(8, 3, 3, padding=1)), (3, 256, 256)),
    "100,000 outputs": Case(lambda: _mlp(100, 1000, 100_000), (100,)),
    "GoogLeNet": Case(lambda: build("GoogLeNet"), (3, 64, 64), length=0.01),
    "ResNet18": Case(lambda: build("ResNet18"), (3, 64, 64), length=0.1),
    "DenseNet121": Case(lambda: build("DenseNet121", "batch"), (3, 64, 64), length=0.1),
    "VGG11-BN at 224 x 224": Case(lambda: build("VGG11-BN", size=224), (3, 224, 224)),
    "5,000 lines of an MLP": Case(lambda: _mlp(5, *[50] * 6, 5), (5,), "restrict_many", lines=5000),
    "500 lines of a conv net": Case(_small_conv, (2, 16, 16), "restrict_many", lines=500),
    "convBig streamed": Case(_conv_big, (3, 32, 32), "sweep"),
    "100,000 outputs streamed": Case(lambda: _mlp(100, 1000, 100_000), (100,), "sweep"),
    "convBig gradients": Case(_conv_big, (3, 32, 32), "gradients", length=0.2),
    "wide MLP gradients": Case(lambda: _mlp(784, 2048, 2048, 10), (784,), "gradients"),
    "error of image to image": Case(
        lambda: nn.Sequential(*_conv_relu(3, 8, 8), nn.Conv2d(8, 3, 3, padding=1)), (3, 128, 128), "error", length=0.02
    ),
}


@dataclass
class Answer:
    """What a call returned, as far as the table needs it."""

    pieces: int
    reached: float
    result: int  # bytes


def _bytes(*tensors: Tensor | tuple[Tensor, ...] | None) -> int:
    flat = [t for one in tensors if one is not None for t in (one if isinstance(one, tuple) else (one,))]
    return sum(t.numel() * t.element_size() for t in flat)


def _run(case: Case, model: nn.Module, start: Tensor, end: Tensor, engine: str, limits: dict[str, Any]) -> Answer:
    if case.call == "gradients":
        network, lines = as_network(model, [start]), Lines((start[None],), (end[None],))
        found = path_integral(network, lines, torch.tensor([0]), memory=limits["memory"], engine=engine)
        return Answer(found.pieces, 1.0, _bytes(found.gradients))
    if case.call in ("restrict", "restrict_many") and "seconds" not in limits:
        return _run_parts(case, model, start, end, engine, limits)
    if case.call == "sweep":
        pieces, reached, result = 0, 0.0, 0
        began = time.process_time()
        for part in xl.sweep(model, start, end, engine=engine, **limits):
            pieces, reached = pieces + len(part), float(part.alphas[-1])
            result = max(result, _bytes(part.alphas, part.stored_values, part.origin_table))
            if time.process_time() - began > 2 * SECONDS_WITHOUT_LIMIT:
                break
        return Answer(pieces, reached, result)
    if case.call == "restrict_many":
        lines = xl.restrict_many(model, start, end, engine=engine, **limits)
        pieces = int(lines.pieces.sum())
        return Answer(pieces, pieces / max(pieces, 1), _bytes(lines.alphas, lines.values, lines.breaks.origins))
    line = xl.restrict(model, start, end, engine=engine, **limits)
    if case.call == "error":
        line.errors.max()
    result = _bytes(line.alphas, line.stored_values, line.origin_table, line.ambiguous_per_piece)
    return Answer(len(line), float(line.alphas[-1]) if len(line.alphas) else 0.0, result)


def _run_parts(case: Case, model: nn.Module, start: Tensor, end: Tensor, engine: str, limits: dict[str, Any]) -> Answer:
    """Sweep in parts of the size that the memory allows, and stop after some seconds."""
    many = case.call == "restrict_many"
    _, parts = restrict_parts(
        model, start if many else start[None], end if many else end[None], engine=engine, **limits
    )
    pieces, reached, result, began = 0, 0.0, 0, time.process_time()
    for part in parts:
        pieces, reached = pieces + len(part.alphas), float(part.alphas[-1])
        result = max(result, _bytes(part.alphas, part.values, part.origins))
        if time.process_time() - began > SECONDS_WITHOUT_LIMIT:
            break
    return Answer(pieces, reached, result)


def measure(name: str, engine: str, limits: dict[str, Any]) -> dict[str, Any]:
    """Make one limited call in this process; returns what was measured."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    case = CASES[name]
    model = case.build().double().eval()
    count = () if case.call != "restrict_many" else (case.lines,)
    start, end = torch.randn(2, *count, *case.shape, dtype=torch.float64)
    end = start + case.length * (end - start)
    if case.whole_numbers:
        start, end = (2 * start).round(), (2 * end).round()
        for parameter in model.parameters():
            parameter.data = (parameter.data / parameter.data.std()).round()
    one = start if not count else start[0]
    network = as_network(model, [one])
    network.evaluate([one[None].repeat(2, *[1] * one.dim())], network.outputs)
    xl.restrict(nn.ReLU(), [-1.0], [1.0])  # loads what is loaded on first use
    path_integral(
        as_network(nn.ReLU(), [torch.zeros(1)]), Lines(*[(torch.ones(1, 1).double(),)] * 2), torch.tensor([0])
    )
    began = time.process_time()
    as_network(model, [one])  # looks whether the model has changed
    lookup = time.process_time() - began
    gc.collect()
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    at_deadline: list[float] = []  # processor time
    timer = threading.Timer(limits.get("seconds", 0.0) + lookup, lambda: at_deadline.append(time.process_time()))
    if "seconds" in limits:
        timer.start()
    began, processor_began = time.monotonic(), time.process_time()
    answer = _run(case, model, start, end, engine, limits)
    seconds, processor_ended = time.monotonic() - began, time.process_time()
    timer.cancel()
    processor = processor_ended - processor_began
    peak = _memory("VmHWM")
    points = min(sweep_plan(network).max_points(limits.get("memory", DEFAULT_MEMORY)), CHUNK_POINTS)
    began = time.process_time()
    network.evaluate([torch.stack([one] * points)], network.outputs)
    return {
        "pieces": answer.pieces,
        "reached": answer.reached,
        "seconds": seconds - lookup,
        "processor": processor - lookup,
        "late": processor_ended - at_deadline[0] if at_deadline else 0.0,
        "chunk": time.process_time() - began,
        "growth": peak - before - answer.result,
        "result": answer.result,
    }


def _memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) * 1024 for row in lines if row.startswith(key + ":"))


def run(name: str, engine: str, limits: dict[str, Any], timeout: float) -> list[str]:
    """One row of the table."""
    arguments = [sys.executable, __file__, "--one", json.dumps([name, engine, limits])]
    head = [name, engine, str(limits.get("seconds", "")), str(limits.get("memory", 0) // MIB or "")]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, env=os.environ, check=False)
    except subprocess.TimeoutExpired:
        return [*head, *[""] * 8, f"no answer in {timeout:g} s"]
    if done.returncode:
        return [*head, *[""] * 8, f"fails: {(done.stderr.strip().splitlines() or ['killed'])[-1][:120]}"]
    got = json.loads(done.stdout.splitlines()[-1])
    has_seconds = "seconds" in limits and CASES[name].call not in ("gradients", "error")
    late = has_seconds and got["late"] > max(TOLERANCE * limits["seconds"], got["chunk"])
    large = "memory" in limits and got["growth"] > (1 + TOLERANCE) * limits["memory"]
    return [
        *head,
        f"{got['pieces']:,}",
        f"{got['reached']:.3g}",
        f"{got['seconds']:.2f}",
        f"{got['processor']:.2f}",
        f"{got['late']:.2f}",
        f"{got['chunk']:.2f}",
        f"{got['growth'] / MIB:.0f}",
        f"{got['result'] / MIB:.0f}",
        " ".join(["late"] * late + ["large"] * large) or "yes",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--engines", nargs="*", default=["dense", "patches"])
    parser.add_argument("--limits", nargs="*", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--timeout", type=float, default=120)
    options = parser.parse_args()
    if options.one:
        name, engine, limits = json.loads(options.one)
        print(json.dumps(measure(name, engine, limits)))
        return
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    for name in options.cases:
        for engine in options.engines:
            for limit in options.limits:
                if "memory" not in LIMITS[limit] and CASES[name].call in ("gradients", "error"):
                    continue
                print(f"| {' | '.join(run(name, engine, LIMITS[limit], options.timeout))} |", flush=True)


if __name__ == "__main__":
    main()
