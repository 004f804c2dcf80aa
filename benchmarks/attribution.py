"""Exact integrated gradients against a restriction of the same lines, and against captum's sums over samples.

    python benchmarks/attribution.py [--peak | --drop-in]

Everything is in float64. Every time is the best of several runs after a warm-up; calls that are compared take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from drop_in import measure_drop_in
from rich.console import Console
from rich.table import Table
from shapes import CASES, Case, Model, noises
from timing import best, peak_mib
from torch import Tensor, nn

from exactline.attr import PathIntegral, path_integral
from exactline.fp_context import full_precision
from exactline.lines import as_lines
from exactline.network import as_network

MOST = 3.0  # times a restriction of the same lines
STEPS = (50, 100, 300, 1000)  # of captum, whose default is 50
BATCH = 100  # points at a time, with which captum is fastest here
TARGET = 0
RUNS = 5


SMALL, BIG = (replace(CASES[name], draw=noises) for name in ("convSmall", "convBig"))
SHOWN = (CASES["784-1024x4-10"], CASES["5-50x6-5, 100 lines"], SMALL)


def integral(case: Case, model: Model) -> PathIntegral:
    """Gradients of one output along all lines of a case, integrated exactly."""
    starts, ends = case.ends()
    with full_precision(kernels=False):
        network = as_network(model, [starts[0]])
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    return path_integral(network, lines, torch.full((case.lines,), TARGET))


def against_restrict() -> Table:
    """One row for each case: what the way back costs beside the way there."""
    table = Table(title="exact integrated gradients and restrict, the same lines", title_justify="left")
    for name in ("network", "pieces", "runs", "exact IG, s", "restrict, s", "ratio", "at most"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for case in SHOWN:
        model = case.model()
        pieces = integral(case, model).pieces
        calls: list[Callable[[], object]] = [
            lambda c=case, m=model: integral(c, m),
            lambda c=case, m=model: c.restrict(m),
        ]
        ours, restrict = best(calls, case.runs)
        numbers = f"{pieces:,}", str(case.runs), f"{ours:.4f}", f"{restrict:.4f}", f"{ours / restrict:.2f}", f"{MOST}"
        table.add_row(case.name, *numbers)
    return table


@dataclass(frozen=True)
class Method:
    """One way to integrate gradients: its name, its points, and the attributions it finds."""

    name: str
    points: int
    call: Callable[[], Tensor]


def reference(case: Case, plain: nn.Module) -> Tensor:  # (*in)
    """The same attributions another way: torch's own gradient in the middle of each piece that restrict finds."""
    start, end = (side[0] for side in case.ends())
    alphas = case.restrict(case.model())[0].alphas
    middles = (alphas[1:] + alphas[:-1]) / 2
    total = torch.zeros_like(start)
    for at, width in zip(middles.split(512), alphas.diff().split(512), strict=True):
        points = torch.lerp(start, end, at.view(-1, *[1] * start.dim())).requires_grad_()
        (grads,) = torch.autograd.grad(plain(points)[:, TARGET].sum(), points)
        total += torch.tensordot(width, grads, 1)
    return total * (end - start)


def methods(case: Case, model: Model, plain: nn.Module) -> list[Method]:
    """Ours, and captum's where it is installed."""
    starts, ends = case.ends()
    ours = Method("exact", integral(case, model).pieces, lambda: integral(case, model).gradients[0] * (ends - starts))
    if find_spec("captum") is None:
        return [ours]
    from captum.attr import IntegratedGradients

    sampled: Any = IntegratedGradients(plain)

    def captum(steps: int) -> Callable[[], Tensor]:
        return lambda: sampled.attribute(ends, starts, target=TARGET, n_steps=steps, internal_batch_size=BATCH)

    return [ours, *(Method(f"captum, n_steps={steps}", steps, captum(steps)) for steps in STEPS)]


def against_captum(case: Case) -> Table:
    """One row for each method: its time, and how far it is from the sum over all pieces."""
    model = case.model()
    if not isinstance(model, nn.Module):
        raise TypeError("captum takes modules")
    plain = deepcopy(model).double()
    start, end = case.ends()
    truth = reference(case, plain)
    with torch.inference_mode():
        change = float((plain(end) - plain(start))[0, TARGET])
    table = Table(title=f"integrated gradients of {case.name}", title_justify="left")
    for name in ("method", "gradients", "runs", "seconds", "to exact", "relative error", "completeness"):
        table.add_column(name, justify="left" if name == "method" else "right")
    chosen = methods(case, model, plain)
    times = best([method.call for method in chosen], RUNS)
    for method, seconds in zip(chosen, times, strict=True):
        found = method.call()[0].detach()
        error = float((found - truth).norm() / truth.norm())
        gap = abs(float(found.sum()) - change) / abs(change)
        numbers = (
            f"{method.points:,}",
            str(RUNS),
            f"{seconds:.4f}",
            f"{seconds / times[0]:.2f}",
            f"{error:.1e}",
            f"{gap:.1e}",
        )
        table.add_row(method.name, *numbers)
    if len(chosen) == 1:
        table.add_row("captum is not installed")
    return table


def print_peak(case: Case) -> None:
    """Integrate once, then print this process's peak resident memory."""
    found = integral(case, case.model())
    print(f"exact IG of {case.name}: {found.pieces:,} pieces, peak {peak_mib('cpu'):,.0f} MiB")


def main() -> None:
    """Print both tables, or the peak memory of the largest network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", action="store_true", help="only print the peak memory of exact IG of convBig")
    parser.add_argument("--drop-in", action="store_true", help="only compare scripts of five networks with captum")
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(BIG)
        return
    console = Console(width=max(Console().width, 150))
    if arguments.drop_in:
        torch.set_num_threads(1)
        console.print(f"torch {torch.__version__}, one thread, processor time", highlight=False)
        console.print(measure_drop_in())
        return
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", highlight=False)
    console.print(against_restrict())
    console.print(against_captum(SMALL))


if __name__ == "__main__":
    main()
