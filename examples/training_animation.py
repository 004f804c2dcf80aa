"""The linear regions of a small network while it learns two spirals: an animation, and curves of their number.

    python examples/training_animation.py [FOLDER]

With a FOLDER, trains for 600 epochs, which takes about a minute, and writes regions_training.gif and
regions_training.png to it; without, trains for 50 epochs and prints the number of regions. Deterministic.
"""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

import exactline as xl
from exactline.plot.palette import CLASS_COLOURS

EPOCHS, QUICK_EPOCHS = 600, 50
EPOCHS_PER_FRAME = 25
BOX = ((-1.2, 1.2), (-1.2, 1.2))


def spirals(each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:  # (2 each, 2) and (2 each,)
    """Two noisy spirals and their classes."""
    turn = torch.rand(2, each, 1, generator=generator, dtype=torch.float64).sqrt() * 3 * math.pi
    arm = torch.cat([turn.cos(), turn.sin()], 2) * turn / (3 * math.pi)
    points = arm * torch.tensor([1.0, -1.0])[:, None, None]
    points += 0.02 * torch.randn(points.shape, generator=generator, dtype=torch.float64)
    return points.reshape(-1, 2), torch.arange(2).repeat_interleave(each)


def draw_frame(model: nn.Module, points: Tensor, labels: Tensor, epoch: int, count: int) -> Image.Image:
    """All regions of the square, the decision boundary and the data."""
    figure = Figure(figsize=(4.2, 4.4), dpi=100, layout="constrained")
    ax = figure.subplots()
    title = f"epoch {epoch}: {count:,} linear regions"
    xl.plot_regions(model, (points, labels), BOX, ax=ax, title=title, theme="light")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    if legend := ax.get_legend():  # its text changes from frame to frame, and the width of the picture with it
        legend.remove()
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return Image.open(data).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def draw_history(records: list[xl.callbacks.RegionRecord], layers: list[tuple[int, list[int]]]) -> Figure:
    """Density around data points, and crossings by layer on lines between the spirals."""
    figure = Figure(figsize=(8.6, 3.0), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [r.step for r in records]
    left.plot(steps, [r.local_complexity for r in records], color=CLASS_COLOURS[0], label="on the axes, exactly")
    corners = [r.vertex_complexity for r in records]
    left.plot(steps, corners, color=CLASS_COLOURS[1], linestyle="--", label="at the corners")
    left.set(xlabel="epoch", ylabel="switching units around a point", ylim=(0, None))
    left.legend(frameon=False)
    for layer in range(len(layers[0][1])):
        counts = [crossings[layer] for _, crossings in layers]
        right.plot([epoch for epoch, _ in layers], counts, color=CLASS_COLOURS[layer], label=f"layer {layer + 1}")
    right.set(xlabel="epoch", ylabel="crossings on 40 lines", ylim=(0, None))
    right.legend(frameon=False)
    return figure


def main() -> None:
    """Train, measure and draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
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
    for epoch in range((QUICK_EPOCHS if folder is None else EPOCHS) + 1):
        monitor.step(model, epoch)
        if epoch % EPOCHS_PER_FRAME == 0:
            count = len(xl.grid(model.eval(), [0.0, 0.0], axes=(0, 1), box=BOX))
            print(f"epoch {epoch}: {count:,} linear regions")
            lines = xl.restrict_many(model, starts, ends, values=False, record="layers")
            table = lines.breaks.layers
            layers.append((epoch, [] if table is None else table.crossings.sum(0).tolist()))
            if folder is not None:
                frames.append(draw_frame(model, points, labels, epoch, count))
        model.train()
        loss = nn.functional.cross_entropy(model(points), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if folder is not None:
        durations = [180] * (len(frames) - 1) + [2500]
        path = folder / "regions_training.gif"
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
        draw_history(monitor.history, layers).savefig(folder / "regions_training.png")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {len(frames)} frames")


if __name__ == "__main__":
    main()
