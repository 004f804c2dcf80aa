"""Certified integrated gradients and curves: sub-intervals, gradients, proven bounds, true errors and times.

    python benchmarks/certified.py [--layers 1 2 4] [--lines 5] [--curves]

Networks are trained on the bundled 8x8 digits from a fixed seed: a GELU MLP 64-64x3-10, and transformer encoders of
width 32 with 16 tokens. Lines lead from a blank image to test digits. The true error is the distance from a rule with
40 Gauss-Legendre nodes on each of 40 panels. Times are processor seconds of one thread, without tracing.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from exactline.smooth.certified.attributions import certified_integrated_gradients
from exactline.smooth.certified.curve import certify_curve
from exactline.smooth.certified.decisions import certify_decisions
from exactline.smooth.certified.record import record_gradients, record_values
from exactline.zoo.digits import digits_set

TRAINING_STEPS = 300
BATCH_DIGITS = 128


class Encoder(nn.Module):
    """A transformer encoder on 16 tokens of four pixels, with the mean over tokens and a linear head."""

    def __init__(self, layers: int, width: int = 32, tokens: int = 16) -> None:
        super().__init__()
        self.tokens = tokens
        self.embed = nn.Linear(64 // tokens, width)
        self.position = nn.Parameter(torch.randn(tokens, width) * 0.1)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:  # (n, 64)
        """Logits, (n, 10)."""
        hidden = self.embed(x.view(len(x), self.tokens, -1)) + self.position
        return self.head(self.norm(self.encoder(hidden)).mean(1))


def gelu_mlp() -> nn.Sequential:
    """The MLP 64-64x3-10."""
    layers = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def load_digits(part: str) -> tuple[Tensor, Tensor]:  # (n, 64) in [0, 1], (n,)
    """Flat images and their labels."""
    images, labels = digits_set(part)
    flat = images.flatten(1).to(torch.float64)
    return flat / flat.max(), labels.long()


def train(layers: int) -> nn.Module:
    """Train a network on digits from a fixed seed; 0 layers stands for the MLP."""
    torch.manual_seed(layers)
    model = Encoder(layers) if layers else gelu_mlp()
    images, labels = load_digits("train")
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(TRAINING_STEPS):
        rows = torch.randint(0, len(images), (BATCH_DIGITS,))
        loss = nn.functional.cross_entropy(model(images[rows].float()), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.double().eval().requires_grad_(False)


def fine_integrated_gradients(model: nn.Module, end: Tensor, target: int) -> Tensor:
    """Integrated gradients from a blank image by 40 nodes on each of 40 panels."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    alphas = torch.from_numpy(np.concatenate([(k + (nodes + 1) / 2) / 40 for k in range(40)]))
    points = (alphas[:, None] * end).requires_grad_()
    (gradients,) = torch.autograd.grad(model(points)[:, target].sum(), points)
    return torch.from_numpy(np.tile(weights / 80, 40)) @ gradients * end


def measure_attributions(layers: int, lines: int, table: Table) -> None:
    """Add a row for each tolerance and network: medians over lines, and how many contain the finer rule."""
    model = train(layers)
    images = load_digits("test")[0][:lines]
    tape = record_gradients(model, [images[0]])
    for tol in (1e-6, 1e-10):
        rows: list[tuple[float, ...]] = []
        contained = 0
        for end in images:
            target = int(model(end[None]).argmax())
            began = time.process_time()
            result = certified_integrated_gradients(tape, torch.zeros(64), end, target, tol)
            seconds = time.process_time() - began
            truth = fine_integrated_gradients(model, end, target)
            distance = (result.attributions[0] - truth).abs()
            norm = float(truth.abs().sum())
            contained += bool((distance <= result.truncation[0] + 1e-13 * norm).all()) and result.error <= tol
            row = (len(result.sub_intervals), result.gradients, result.error, result.rounding_error)
            rows.append((*row, float(distance.sum()) / norm, seconds))
        parts, gradients, error, rounding, true_error, seconds = np.median(np.array(rows), axis=0)
        slowest = max(row[-1] for row in rows)
        table.add_row(
            f"encoder, {layers} layers" if layers else "GELU MLP 64-64x3-10",
            *(f"{tol:.0e}", f"{contained} of {lines}", f"{parts:.0f}", f"{gradients:.0f}", f"{error:.1e}"),
            *(f"{rounding:.0e}", f"{true_error:.0e}", f"{seconds:.1f}", f"{slowest:.1f}"),
        )


def measure_curves(layers: int, lines: int, table: Table) -> None:
    """Add a row for each network: curves between test digits to 1e-8, and their decisions."""
    model = train(layers)
    images = load_digits("test")[0]
    tape = record_values(model, [images[0]])
    rows: list[tuple[float, ...]] = []
    for k in range(lines):
        began = time.process_time()
        curve = certify_curve(tape, images[k], images[k + lines], 1e-8)
        decisions = certify_decisions(curve)
        seconds = time.process_time() - began
        brackets = [d.right - d.left for d in decisions if not d.is_certain]
        row = (len(curve.pieces), curve.evaluations, curve.error, curve.rounding_error, sum(brackets))
        rows.append((*row, seconds))
    pieces, evaluations, error, rounding, undecided, seconds = np.median(np.array(rows), axis=0)
    name = f"encoder, {layers} layers" if layers else "GELU MLP 64-64x3-10"
    figures = (f"{pieces:.0f}", f"{evaluations:.0f}", f"{error:.1e}", f"{rounding:.0e}", f"{undecided:.0e}")
    table.add_row(name, *figures, f"{seconds:.1f}")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1, 2, 4], help="0 stands for the MLP")
    parser.add_argument("--lines", type=int, default=5)
    parser.add_argument("--curves", action="store_true", help="curves and decisions instead of attributions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = ("network", "tol", "contained", "parts", "gradients", "bound", "rounding", "true", "s", "slowest s")
    if options.curves:
        columns = ("network", "pieces", "evaluations", "bound", "rounding", "undecided", "s")
    table = Table(*columns)
    for layers in options.layers:
        (measure_curves if options.curves else measure_attributions)(layers, options.lines, table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
