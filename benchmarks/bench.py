"""Seconds of a restriction, against the dense engine and against plain batched forwards over the same points.

    python benchmarks/bench.py [--device cuda] [--processor] [NAME ...]

Everything is in float64, but for the forwards of the column "to float32". A time is the best of several runs after a
warm-up, the network captured before the clock starts; calls that are compared take turns. A plain forward is given the
points in batches that fit into memory.
Memory is the peak of a process of its own that restricts once; on a GPU it is what tensors took there. A time with ~ is
extrapolated from the part there was time for. NAME is the beginning of a network's name.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from shapes import CASES, Case, Model
from timing import Clock, Forward, best, peak_mib, table
from torch import nn

import exactline as xl

HEAD = ("network", "pieces", "engine", "seconds", "to dense", "to forward", "to float32", "at most", "peak, MiB")
PATIENCE = 240.0  # seconds for one line through a network for GPUs; the dense engine may not get to its end


def measure(case: Case, options: argparse.Namespace) -> list[list[str]]:
    """One row of the table for each engine."""
    model, clock = case.model(), Clock(options.device, options.processor)
    start = case.ends()[0][:1]
    xl.restrict_many(model, start, start, device=options.device)  # captures the network before the clock starts
    swept, seconds, shares = swept_by(case, model, clock, options.device)
    lines = swept[shares.index(max(shares))]
    kinds = (torch.float64, torch.float32) if isinstance(model, nn.Module) else (torch.float64,)
    forwards = [Forward(case, model, lines, options.device, kind) for kind in kinds]
    if case.runs > 1:
        calls = [lambda e=e: case.restrict(model, engine=e, device=options.device) for e in case.engines]
        found = best([*calls, *forwards], case.runs, clock)
        seconds, plain = found[: len(calls)], found[len(calls) :]
    else:
        plain = [seconds_of(forward, clock) / max(shares) for forward in forwards]
    rows: list[list[str]] = []
    for engine, found, took, share in zip(case.engines, swept, seconds, shares, strict=True):
        name = engine if engine != "auto" else f"auto: {found.engine.split()[0]}"
        whole = took / share
        of_plain = [f"{whole / one:.2f}" for one in plain]
        ratios = (f"{whole / seconds[0] * shares[0]:.2f}", *of_plain, *[""] * (2 - len(of_plain)))
        most = "" if case.most is None else f"{case.most:g}"
        pieces = f"{'' if share == 1 else '~'}{int(found.pieces.sum()) / share:,.0f}"
        time = f"{'' if share == 1 else '~'}{whole:.4f}" if whole < 10 else f"{'' if share == 1 else '~'}{whole:.1f}"
        rows.append([case.name, pieces, name, time, *ratios, most, peak_of(case, engine, options.device)])
    return rows


def seconds_of(forward: Forward, clock: Clock) -> float:
    """Seconds of one forward over all points, extrapolated if there was no time for all."""
    began = clock()
    share = forward()
    return (clock() - began) / share


def swept_by(
    case: Case, model: Model, clock: Clock, device: str
) -> tuple[list[xl.Restrictions], list[float], list[float]]:
    """What every engine finds, its seconds, and the share of the line it got to."""
    swept: list[xl.Restrictions] = []
    seconds: list[float] = []
    shares: list[float] = []
    for engine in case.engines:
        began = clock()
        swept.append(case.restrict(model, engine=engine, device=device, seconds=PATIENCE if case.gpu else None))
        seconds.append(clock() - began)
        shares.append(float(swept[-1].alphas[-1]) if case.lines == 1 else 1.0)
    return swept, seconds, shares


def peak_of(case: Case, engine: str, device: str) -> str:
    """Peak memory of a process that restricts once and does nothing else."""
    command = [sys.executable, __file__, "--device", device, "--peak", case.name, engine]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return f"{float(done.stdout):,.0f}"


def print_peak(case: Case, engine: str, device: str) -> None:
    """Restrict once, then print the peak in MiB."""
    case.restrict(case.model(), engine=engine, device=device, seconds=PATIENCE if case.gpu else None)
    print(peak_mib(device))


def machine(device: str) -> str:
    """Where this runs."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    names = (
        [s.split(":", 1)[1].strip() for s in info.read_text().splitlines() if s.startswith("model name")]
        if info.exists()
        else []
    )
    return f"{names[0] if names else platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def chosen(names: Sequence[str], device: str) -> list[Case]:
    """The cases whose names begin so; without names those that are meant for the device."""
    if names:
        return [case for case in CASES.values() if any(case.name.startswith(name) for name in names)]
    if device.startswith("cuda"):
        return [case for case in CASES.values() if case.gpu or case.name == "convBig"]
    return [case for case in CASES.values() if not case.gpu]


def first_calls(clock: Clock) -> str:
    """What the first call on a new module costs, and a later one, for the shape of ACAS Xu."""
    case, times = CASES["5-50x6-5, 1 line"], list[tuple[float, ...]]()
    for _ in range(5):
        model, laps = case.model(), [clock()]
        for _ in range(2):
            case.restrict(model)
            laps.append(clock())
        times.append((laps[1] - laps[0], laps[2] - laps[1]))
    first, later = (min(column) for column in zip(*times, strict=True))
    return f"{case.name}: first call on a new module {first:.3f} s, captured anew; later calls {later:.4f} s"


def main() -> None:
    """Measure the cases asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"what to measure: {'; '.join(CASES)} (default: all for the device)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--processor", action="store_true", help="processor time of one thread, for busy machines")
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "ENGINE"), help="print the peak memory of one case in MiB")
    options = parser.parse_args()
    if options.peak:
        print_peak(CASES[options.peak[0]], options.peak[1], options.device)
        return
    if options.processor:
        torch.set_num_threads(1)
    found = chosen(options.name, options.device)
    if not found:
        parser.error(f"no network's name begins with {' or '.join(options.name)}")
    kind = "processor time" if options.processor else "seconds on the wall"
    print(f"{machine(options.device)}, torch {torch.__version__}, float64, {kind}\n")
    print(table(HEAD, [row for case in found for row in measure(case, options)]))
    if not options.name and options.device == "cpu":
        print("\n" + first_calls(Clock("cpu", options.processor)))


if __name__ == "__main__":
    main()
