"""The networks and lines that are measured, in one place; only torch and numpy are needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import cos, pi, sin
from pathlib import Path

import torch
from torch import Tensor, nn

import exactline as xl
from exactline.formats import load_network

Model = nn.Module | xl.Network
Draw = Callable[..., tuple[Tensor, Tensor]]  # (lines, *shape) -> starts and ends, each (lines, *shape)
BOX = (-6000.0, 10000.0, -6000.0, 6000.0)  # x and y around the ownship of ACAS Xu, feet
BOTH = ("dense", "patches", "auto")


@dataclass(frozen=True)
class Case:
    """One network and one or many lines through it; ``draw`` makes their ends."""

    name: str
    network: Callable[[], Model]
    shape: tuple[int, ...]
    draw: Draw
    lines: int = 1
    runs: int = 5
    batch: int = 16384  # points of a plain forward at a time
    engines: tuple[str, ...] = ("dense",)
    most: float | None = None  # the ratio to a forward that we hold ourselves to
    gpu: bool = False  # whether it takes a GPU

    def ends(self) -> tuple[Tensor, Tensor]:  # each (lines, *shape)
        """Starts and ends."""
        return _drawn(self.draw, (self.lines, *self.shape))

    def model(self) -> Model:
        """The network with random weights, always the same, or a published one."""
        torch.manual_seed(0)
        made = self.network()
        return made.eval() if isinstance(made, nn.Module) else made

    def restrict(self, model: Model, **options: object) -> xl.Restrictions:
        """All lines in one call."""
        return xl.restrict_many(model, *self.ends(), **options)  # pyright: ignore[reportArgumentType]


@cache
def _drawn(draw: Draw, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return draw(*shape)


def mlp(*widths: int) -> nn.Module:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def acas_shape() -> nn.Module:
    """The shape of the ACAS Xu networks, 5-50x6-5."""
    return mlp(5, *[50] * 6, 5)


def conv_small() -> nn.Module:
    """The shape of the CIFAR network convSmall: 4,852 ReLU units."""
    front = (nn.Conv2d(3, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU())
    return nn.Sequential(*front, nn.Flatten(), mlp(1152, 100, 10))


def conv_med() -> nn.Module:
    """The shape of the CIFAR network convMed: 7,144 ReLU units."""
    front = (nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU())
    return nn.Sequential(*front, nn.Flatten(), mlp(2048, 1000, 10))


def conv_big() -> nn.Module:
    """The shape of the CIFAR network convBig: 62,464 ReLU units."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        mlp(4096, 512, 512, 10),
    )


def vgg16() -> nn.Module:
    """VGG16 at 224 x 224: 13 convolutions, 5 max pools, 3 linear layers."""
    layers: list[nn.Module] = []
    channels = 3
    for wide, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, wide, 3, 1, 1), nn.ReLU()]
            channels = wide
        layers.append(nn.MaxPool2d(2))
    return spread_out(nn.Sequential(*layers, nn.Flatten(), mlp(25088, 4096, 4096, 1000)))


class Bottleneck(nn.Module):
    """A residual block of ResNet50."""

    def __init__(self, before: int, wide: int, stride: int) -> None:
        super().__init__()
        after = 4 * wide
        self.way = nn.Sequential(
            *(nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()),
            *(nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)),
        )
        across = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.across = across if (before, stride) != (after, 1) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The block with its shortcut."""
        return torch.relu(self.way(x) + self.across(x))


def resnet50() -> nn.Module:
    """ResNet50 at 224 x 224: BatchNorm, residual sums, a max pool."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for place, (wide, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for number in range(count):
            layers.append(Bottleneck(before, wide, 2 if place and not number else 1))
            before = 4 * wide
    return spread_out(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)))


def spread_out(model: nn.Module) -> nn.Module:
    """Random weights under which signals neither die out nor explode."""
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return model


def uniform(*shape: int) -> tuple[Tensor, Tensor]:
    """Both ends anywhere between 0 and 1."""
    starts, ends = torch.rand(2, *shape, dtype=torch.float64)
    return starts, ends


def box(*shape: int) -> tuple[Tensor, Tensor]:
    """Ends so far apart that a line has about as many breaks as one through an ACAS Xu network."""
    starts, ends = torch.rand(2, *shape, dtype=torch.float64) * 8 - 4
    return starts, ends


def noises(*shape: int) -> tuple[Tensor, Tensor]:
    """From one image of noise to another."""
    starts, ends = torch.randn(2, *shape, dtype=torch.float64)
    return starts, ends


def from_black(*shape: int) -> tuple[Tensor, Tensor]:
    """From black to an image, normalised as images usually are."""
    return torch.zeros(*shape, dtype=torch.float64), torch.randn(*shape, dtype=torch.float64)


def nudged(*shape: int) -> tuple[Tensor, Tensor]:
    """From an image to the same one under noise of size 0.01."""
    starts = torch.rand(*shape, dtype=torch.float64)
    return starts, starts + 0.01 * torch.randn(*shape, dtype=torch.float64)


def distances(lines: int, *shape: int) -> tuple[Tensor, Tensor]:
    """The paper's distance lines: around an ownship, from distance 0 to the edge of a box."""
    thetas = torch.linspace(-pi, pi, lines, dtype=torch.float64).tolist()
    starts = torch.tensor([[0.0, theta, -pi, 150.0, 150.0] for theta in thetas], dtype=torch.float64)
    ends = starts.clone()
    ends[:, 0] = torch.tensor([_edge(theta) for theta in thetas], dtype=torch.float64)
    return starts.view(lines, *shape), ends.view(lines, *shape)


def _edge(theta: float) -> float:
    """How far the edge of the box is in one direction."""
    x, y = cos(theta), sin(theta)
    left, right, low, high = BOX
    across = (right if x > 0 else left) / x if x else float("inf")
    return min(across, (high if y > 0 else low) / y if y else float("inf"))


def acas(number: str) -> xl.Network | None:
    """A published ACAS Xu network from the folder that EXACTLINE_DATA names, where there is one."""
    folder = os.environ.get("EXACTLINE_DATA")
    found = sorted(Path(folder, "acasxu", "nnet").glob(f"*_{number}_*.nnet")) if folder else []
    return load_network(found[0]) if found else None


def _published(number: str) -> Callable[[], Model]:
    return lambda: acas(number) or acas_shape()


def _cases() -> list[Case]:
    image = (3, 32, 32)
    small = [
        Case(f"5-50x6-5, {lines:,} line{'s' if lines > 1 else ''}", acas_shape, (5,), box, lines, runs, most=most)
        for lines, runs, most in ((1, 50, None), (10, 30, None), (100, 20, 2.0), (10000, 1, None))
    ]
    published = [
        Case(f"ACAS Xu {number}, 100 lines", _published(number), (5,), distances, 100, 10)
        for number in ("1_1", "2_3")
        if acas(number) is not None
    ]
    return [
        *small,
        *published,
        Case("784-1024x4-10", lambda: mlp(784, *[1024] * 4, 10), (784,), uniform, most=1.2),
        Case("convSmall", conv_small, image, from_black, batch=1024, engines=BOTH),
        Case("convMed", conv_med, image, from_black, batch=1024, engines=BOTH),
        Case("convBig", conv_big, image, from_black, runs=1, batch=256, engines=BOTH),
        Case("VGG16, noise of 0.01", vgg16, (3, 224, 224), nudged, 1, 1, 8, BOTH, gpu=True),
        Case("ResNet50, noise of 0.01", resnet50, (3, 224, 224), nudged, 1, 1, 8, BOTH, gpu=True),
    ]


CASES = {case.name: case for case in _cases()}
