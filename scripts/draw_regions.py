"""Draw the linear regions of a small network while it learns two spirals: an animation and a picture for the docs.

    python scripts/draw_regions.py [FOLDER]

Writes regions_training.gif and regions_training.png, to docs/images by default. Deterministic; takes about a minute.
"""

from __future__ import annotations

import io
import math
import sys
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

import exactline as xl

EPOCHS, FRAMES = 600, 24
BOX = ((-1.2, 1.2), (-1.2, 1.2))
CLASS_COLOURS = ("#CDE3F3", "#F9E3C8")
POINT_COLOURS = ("#0072B2", "#D55E00")
LAYER_COLOURS = ("#0072B2", "#E69F00", "#D55E00")


def spirals(each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:  # (2 each, 2) and (2 each,)
    """Two noisy spirals and their classes."""
    turn = torch.rand(2, each, 1, generator=generator, dtype=torch.float64).sqrt() * 3 * math.pi
    arm = torch.cat([turn.cos(), turn.sin()], 2) * turn / (3 * math.pi)
    points = arm * torch.tensor([1.0, -1.0])[:, None, None]
    points += 0.02 * torch.randn(points.shape, generator=generator, dtype=torch.float64)
    return points.reshape(-1, 2), torch.arange(2).repeat_interleave(each)


def draw_frame(plane: xl.PlaneRestriction, points: Tensor, labels: Tensor, epoch: int) -> Image.Image:
    """All regions of the square, on a background of the class that the network gives every point."""
    figure = Figure(figsize=(4.2, 4.4), dpi=100, layout="constrained")
    ax = figure.subplots()
    decided = plane.decisions().polygons
    ends = decided.offsets.tolist()
    classes = [decided.corners[decided.rings[i:j]].numpy() for i, j in pairwise(ends)]
    colours = [CLASS_COLOURS[label] for label in decided.labels.tolist()]
    ax.add_collection(PolyCollection(classes, facecolors=colours, edgecolors="face", linewidths=0.3))
    polygons = [polygon.corners.numpy() for polygon in plane]
    ax.add_collection(PolyCollection(polygons, facecolors="none", edgecolors="#444444", linewidths=0.3))
    ax.scatter(*points.T, s=3, c=[POINT_COLOURS[i] for i in labels.tolist()], linewidths=0)
    ax.set(xlim=BOX[0], ylim=BOX[1], aspect="equal", xticks=[], yticks=[])
    ax.set_title(f"epoch {epoch}: {len(plane):,} linear regions", fontsize=10)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return Image.open(data).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def draw_history(records: list[xl.callbacks.RegionRecord], layers: list[tuple[int, list[int]]]) -> Figure:
    """Density around data points, and crossings by layer on lines between the spirals."""
    figure = Figure(figsize=(8.6, 3.0), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [r.step for r in records]
    left.plot(steps, [r.local_complexity for r in records], color="#0072B2", label="on the axes, exactly")
    left.plot(steps, [r.vertex_complexity for r in records], color="#D55E00", linestyle="--", label="at the corners")
    left.set(xlabel="epoch", ylabel="switching units around a point", ylim=(0, None))
    left.legend(frameon=False)
    for layer, colour in enumerate(LAYER_COLOURS):
        counts = [crossings[layer] for _, crossings in layers]
        right.plot([epoch for epoch, _ in layers], counts, color=colour, label=f"layer {layer + 1}")
    right.set(xlabel="epoch", ylabel="crossings on 40 lines", ylim=(0, None))
    right.legend(frameon=False)
    return figure


def main() -> None:
    """Train, measure and draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs/images"
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    points, labels = spirals(200, generator)
    starts = points[torch.randperm(200, generator=generator)[:40]]
    ends = points[200 + torch.randperm(200, generator=generator)[:40]]
    torch.manual_seed(0)
    widths = [nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)]
    model = nn.Sequential(*widths).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    monitor = xl.callbacks.RegionDensity(points[::40], every=20, radius=0.2, max_overhead=None)
    frames: list[Image.Image] = []
    layers: list[tuple[int, list[int]]] = []
    for epoch in range(EPOCHS + 1):
        monitor.step(model, epoch)
        if epoch % (EPOCHS // FRAMES) == 0:
            frames.append(draw_frame(xl.grid(model.eval(), [0.0, 0.0], box=BOX), points, labels, epoch))
            lines = xl.restrict_many(model, starts, ends, values=False, record="layers")
            table = lines.breaks.layers
            layers.append((epoch, [] if table is None else table.crossings.sum(0).tolist()))
        model.train()
        loss = nn.functional.cross_entropy(model(points), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    durations = [180] * (len(frames) - 1) + [2500]
    path = folder / "regions_training.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    draw_history(monitor.history, layers).savefig(folder / "regions_training.png")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {len(frames)} frames")


if __name__ == "__main__":
    main()
