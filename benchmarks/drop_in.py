"""Five networks with a script's own calls: our classes and captum's, first and later calls, and captum's errors.

    python benchmarks/attribution.py --drop-in

Inputs and weights are in float32, as scripts have them. Seconds are processor time of one thread, the best of several
runs; compared calls take turns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import torch
from rich.table import Table
from shapes import conv_small, mlp
from timing import best
from torch import Tensor, nn

import exactline.attr

STEPS = (50, 300)  # captum's default, and what careful users take
SMALL_BATCH = 64  # of captum's internal_batch_size, for images


class BasicBlock(nn.Module):
    """A residual block of two convolutions with BatchNorm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)),
        )
        across = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.shortcut = across if (before, stride) != (after, 1) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet8() -> nn.Module:
    """A ResNet of three blocks for images of 32 x 32."""
    stem = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = (BasicBlock(16, 16, 1), BasicBlock(16, 32, 2), BasicBlock(32, 64, 2))
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):  # as after training: without shifts the network is linear on rays from 0
            nn.init.normal_(part.bias, 0.0, 0.3)
            nn.init.normal_(part.get_buffer("running_mean"), 0.0, 0.3)
    return model


class TextNetwork(nn.Module):
    """Convolutions over the embeddings of words, the maximum over places, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.fc = nn.Embedding(5000, 50), nn.Linear(60, 1)
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 20, (size, 50)) for size in (3, 4, 5)])

    def forward(self, ids: Tensor) -> Tensor:  # (n, words) -> (n, 1)
        """The score of each sentence."""
        words = self.embedding(ids).unsqueeze(1)
        found = [torch.relu(part(words)).squeeze(3) for part in self.convolutions]
        return self.fc(torch.cat([torch.max_pool1d(f, f.shape[2]).squeeze(2) for f in found], 1))


@dataclass(frozen=True)
class Script:
    """One network with the call that a script makes."""

    name: str
    network: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    target: int | None = 0
    layer: str | None = None  # LayerIntegratedGradients of this submodule instead of IntegratedGradients
    batch: int | None = None  # captum's internal_batch_size
    runs: int = 3

    def method(self, package: Any, model: nn.Module) -> Any:
        """The attribution object."""
        if self.layer is None:
            return package.IntegratedGradients(model)
        return package.LayerIntegratedGradients(model, model.get_submodule(self.layer))


SCRIPTS = (
    Script("table: 8-64-32-1, 100 rows", lambda: mlp(8, 64, 32, 1), lambda: torch.randn(100, 8), target=None),
    Script(
        "softmax end: 784-256-128-10, 10 rows",
        lambda: nn.Sequential(mlp(784, 256, 128, 10), nn.Softmax(1)),
        lambda: torch.rand(10, 784),
    ),
    Script("convSmall, 1 image", conv_small, lambda: torch.randn(1, 3, 32, 32), batch=SMALL_BATCH),
    Script("ResNet8, 1 image", resnet8, lambda: torch.randn(1, 3, 32, 32), batch=SMALL_BATCH, runs=1),
    Script(
        "text: 30 words, embedding",
        TextNetwork,
        lambda: torch.randint(1, 5000, (1, 30)),
        target=None,
        layer="embedding",
    ),
)


def measure_drop_in() -> Table:
    """One row for each network."""
    import captum.attr

    columns = ("network", "pieces", "first, s", "later, s", *(f"captum {n}, s" for n in STEPS), "same time, steps")
    table = Table(title="IntegratedGradients and captum's, one thread", title_justify="left")
    for name in (*columns, *(f"error of {n}" for n in STEPS)):
        table.add_column(name, justify="left" if name == "network" else "right")
    warnings.simplefilter("ignore")
    for script in SCRIPTS:
        torch.manual_seed(0)
        model, inputs = script.network().eval(), script.inputs()
        ours, theirs = script.method(exactline.attr, model), script.method(captum.attr, model)
        start = process_time()
        exact = ours.attribute(inputs, target=script.target)
        first = process_time() - start

        def sample(steps: int, script: Script = script, theirs: Any = theirs, inputs: Tensor = inputs) -> Tensor:
            options = {"n_steps": steps, "internal_batch_size": script.batch}
            return theirs.attribute(inputs, target=script.target, **options).detach()

        calls: list[Callable[[], object]] = [lambda s=script, o=ours, x=inputs: o.attribute(x, target=s.target)]
        calls += [lambda n=n, f=sample: f(n) for n in STEPS]
        later, *sampled = best(calls, script.runs, process_time)
        errors = [float((sample(n) - exact).abs().sum() / exact.abs().sum()) for n in STEPS]
        table.add_row(
            script.name,
            f"{ours.report.pieces:,}",
            f"{first:.2f}",
            f"{later:.3f}",
            *(f"{s:.3f}" for s in sampled),
            f"{later / sampled[1] * STEPS[1]:,.0f}",
            *(f"{e:.1e}" for e in errors),
        )
    return table
