"""What is promised on a GPU, in one command: published architectures, whole lines with gradients, a large plane.

    python benchmarks/gpu.py [PART ...] [--device cuda] [--seconds 60] [--max-breaks 1000]

Parts are "architectures" (thirteen networks at 224 x 224, a restriction over a plain forward of as many points),
"gradients" (whole lines under noise of 0.01, and ResNet18 at 64 x 64 from black), and "plane" (a million polygons).
Every row is printed as soon as it is measured, with the aim behind it. Only torch and numpy are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from architectures import ARCHITECTURES
from real_lines import COLUMNS, measure
from shapes import mlp
from timing import Clock, table
from torch import nn

import exactline as xl

PLANE_WIDTHS, PLANE_SIZE = (2, 512, 512, 512, 4), 3.0
PLANE_AIM = "5 s for a million polygons"


def architectures(options: argparse.Namespace) -> Iterator[list[str]]:
    """Restrictions against forwards at the input size of each architecture."""
    for name in ARCHITECTURES:
        limits = _line_options(options, size=224, noise=0.01, max_breaks=options.max_breaks, gradients=False)
        yield [*measure(name, limits), "1 forward"]


def gradients(options: argparse.Namespace) -> Iterator[list[str]]:
    """Whole lines with their integrated gradients."""
    for name in ("ResNet50", "VGG16", "MobileNetV2"):
        row = measure(name, _line_options(options, size=224, noise=0.01, max_breaks=None, gradients=True))
        yield [*row, "15 s each"]
    row = measure("ResNet18", _line_options(options, size=64, noise=0.0, max_breaks=None, gradients=True))
    yield [*row, "20 s together"]


def plane(options: argparse.Namespace) -> Iterator[list[str]]:
    """A plane of about a million polygons, after a small one."""
    torch.manual_seed(0)
    model = mlp(*PLANE_WIDTHS).eval()
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.3)
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    clock = Clock(options.device)

    def cut(size: float) -> tuple[float, xl.PlaneRestriction]:
        began = clock()
        found = xl.restrict_plane(model, size * corners, device=options.device)
        return clock() - began, found

    first, _ = cut(PLANE_SIZE / 10)
    took, found = cut(PLANE_SIZE)
    widths = "-".join(map(str, PLANE_WIDTHS))
    yield [widths, f"{len(found):,}", f"{first:.1f}", f"{took:.2f}", "-", "-", "-", "polygons", PLANE_AIM]


def _line_options(
    options: argparse.Namespace, *, size: int, noise: float, max_breaks: int | None, gradients: bool
) -> argparse.Namespace:
    """The options of `real_lines.measure`."""
    return argparse.Namespace(
        device=options.device,
        seconds=options.seconds,
        size=size,
        noise=noise,
        max_breaks=max_breaks,
        gradients=gradients,
    )


PARTS = {"architectures": architectures, "gradients": gradients, "plane": plane}


def main() -> None:
    """Measure the parts asked for: each row as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--max-breaks", type=int, default=1000)
    options = parser.parse_args()
    rows = list[list[str]]()
    for part in options.parts:
        for row in PARTS[part](options):
            rows.append(row)
            print(*row, sep="\t", flush=True)
    print(table((*COLUMNS, "at most"), rows))


if __name__ == "__main__":
    main()
