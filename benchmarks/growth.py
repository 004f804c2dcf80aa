"""How pieces and time grow with depth, width and the number of lines: measured exponents and a picture.

    python benchmarks/growth.py [--picture docs/images/growth.png]

Processor time of one thread, float64, the best of several runs after a warm-up. An exponent is the slope of a straight
line through the logarithms of the last four measurements of a family, where what is fixed no longer counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import torch
from shapes import mlp
from timing import table
from torch import Tensor, nn

import exactline as xl
from exactline.plot.palette import CLASS_COLOURS

INPUTS, OUTPUTS = 16, 10
LAST = 4  # measurements through which the line is drawn
RUNS = 5


@dataclass(frozen=True)
class Family:
    """Networks, or lines, that differ in one size."""

    name: str
    sizes: tuple[int, ...]
    network: Callable[[int], nn.Module]
    lines: Callable[[int], int]


@dataclass(frozen=True)
class Measured:
    """One member of a family."""

    size: int
    pieces: int
    seconds: float


def bent(depth: int, width: int) -> nn.Module:
    """A network whose signals stay alike from layer to layer, so that every layer breaks about as often."""
    torch.manual_seed(0)
    model = mlp(INPUTS, *[width] * depth, OUTPUTS)
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.normal_(layer.bias, 0.0, 0.1)
    return model.eval()


FAMILIES = (
    Family("depth", (1, 2, 4, 8, 16, 32), lambda size: bent(size, 64), lambda _: 1),
    Family("width", (32, 64, 128, 256, 512, 1024, 2048), lambda size: bent(4, size), lambda _: 1),
    Family("lines", (1, 4, 16, 64, 256, 1024), lambda _: bent(4, 64), lambda size: size),
)
LABELS = {"depth": "layers of 64 units", "width": "units in each of 4 layers", "lines": "lines, 4 layers of 64 units"}


def ends(lines: int) -> tuple[Tensor, Tensor]:  # each (lines, INPUTS)
    """Lines from random points to others; the first ones are always the same."""
    torch.manual_seed(1)
    pairs = torch.randn(lines, 2, INPUTS, dtype=torch.float64) * 4
    return pairs[:, 0], pairs[:, 1]


def measured(family: Family, size: int) -> Measured:
    """Pieces, and the fewest seconds."""
    model, (starts, stops) = family.network(size), ends(family.lines(size))
    pieces, fewest = int(xl.restrict_many(model, starts, stops).pieces.sum()), float("inf")
    for _ in range(RUNS):
        began = process_time()
        xl.restrict_many(model, starts, stops)
        fewest = min(fewest, process_time() - began)
    return Measured(size, pieces, fewest)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope through the last logarithms."""
    return float(np.polyfit(np.log(x[-LAST:]), np.log(y[-LAST:]), 1)[0])


def draw(found: dict[str, list[Measured]], path: Path) -> None:
    """Pieces and microseconds for each piece against each size."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(11, 3.4), layout="constrained")
    for ax, (name, rows) in zip(axes, found.items(), strict=True):
        sizes, pieces = [row.size for row in rows], [row.pieces for row in rows]
        seconds = [row.seconds for row in rows]
        for values, label, colour in (
            (pieces, "pieces", CLASS_COLOURS[0]),
            ([s * 1e6 for s in seconds], "µs", CLASS_COLOURS[1]),
        ):
            slope = exponent(sizes, values)
            ax.loglog(sizes, values, "o-", color=colour, label=f"{label}, exponent {slope:.2f}")
        ax.set_xlabel(LABELS[name])
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Measure all families, print a table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="where to draw the families")
    picture = parser.parse_args().picture
    torch.set_num_threads(1)
    found = {family.name: [measured(family, size) for size in family.sizes] for family in FAMILIES}
    rows = [
        [name, f"{row.size:g}", f"{row.pieces:,}", f"{row.seconds * 1e3:.1f}", f"{row.seconds / row.pieces * 1e6:.1f}"]
        for name, members in found.items()
        for row in members
    ]
    print(table(("family", "size", "pieces", "ms", "us / piece"), rows), end="\n\n")
    for name, members in found.items():
        sizes, pieces, seconds = zip(*((m.size, m.pieces, m.seconds) for m in members), strict=True)
        print(
            f"{name}: pieces grow as its power {exponent(sizes, pieces):.2f}, time as {exponent(sizes, seconds):.2f};"
            f" time as power {exponent(pieces, seconds):.2f} of the pieces"
        )
    if picture is not None:
        draw(found, picture)


if __name__ == "__main__":
    main()
