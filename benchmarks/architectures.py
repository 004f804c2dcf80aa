"""Thirteen published image classifiers with random weights, built from their papers; only torch is needed.

Weights are drawn from a fixed seed. BatchNorm statistics are either random ("random") or those of one batch of noise
("batch"), so that signals neither die out nor explode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 1000


def conv(before: int, after: int, kernel: int | tuple[int, int], **settings: Any) -> nn.Module:
    """A convolution without bias, BatchNorm and ReLU."""
    layers = (nn.Conv2d(before, after, kernel, bias=False, **settings), nn.BatchNorm2d(after), nn.ReLU())
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """A branch and a shortcut, added; then ReLU unless the block is linear at its end."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut, self.activation = branch, shortcut, activation

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return self.activation(self.branch(x) + self.shortcut(x))


class Parallel(nn.Module):
    """Branches of one input, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """The concatenation."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def head(channels: int) -> list[nn.Module]:
    """Global average pooling and a linear classifier."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def _projection(before: int, after: int, stride: int) -> nn.Module:
    if (before, stride) == (after, 1):
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


def _basic(before: int, width: int, stride: int) -> nn.Module:
    branch = (
        conv(before, width, 3, stride=stride, padding=1),
        nn.Conv2d(width, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
    )
    return Residual(nn.Sequential(*branch), _projection(before, width, stride), nn.ReLU())


def _bottleneck(before: int, width: int, after: int, stride: int, groups: int = 1) -> nn.Module:
    branch = (
        conv(before, width, 1),
        conv(width, width, 3, stride=stride, padding=1, groups=groups),
        nn.Conv2d(width, after, 1, bias=False),
        nn.BatchNorm2d(after),
    )
    return Residual(nn.Sequential(*branch), _projection(before, after, stride), nn.ReLU())


def _resnet_stem() -> list[nn.Module]:
    return [conv(3, 64, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1)]


def resnet18() -> nn.Module:
    """ResNet18 (He et al., 2016)."""
    layers, before = _resnet_stem(), 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(_basic(before, width, 2 if stage and not block else 1))
            before = width
    return nn.Sequential(*layers, *head(before))


def _deep_resnet(width_factor: int, groups: int) -> nn.Module:
    layers, before = _resnet_stem(), 64
    for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(_bottleneck(before, width * width_factor, 4 * width, stride, groups))
            before = 4 * width
    return nn.Sequential(*layers, *head(before))


def resnet50() -> nn.Module:
    """ResNet50 (He et al., 2016)."""
    return _deep_resnet(1, 1)


def resnext50() -> nn.Module:
    """ResNeXt50 32x4d (Xie et al., 2017): grouped convolutions."""
    return _deep_resnet(2, 32)


def _vgg(widths: Sequence[int], *, batch_norm: bool) -> nn.Module:
    """A VGG network; a width of 0 is a max pool."""
    layers: list[nn.Module] = []
    before = 3
    for width in widths:
        if width:
            normalization = [nn.BatchNorm2d(width)] if batch_norm else []
            layers += [nn.Conv2d(before, width, 3, 1, 1), *normalization, nn.ReLU()]
            before = width
        else:
            layers.append(nn.MaxPool2d(2))
    classifier = (nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, CLASSES))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *classifier)


def vgg11_bn() -> nn.Module:
    """VGG11 with BatchNorm (Simonyan and Zisserman, 2015)."""
    return _vgg((64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0), batch_norm=True)


def vgg16() -> nn.Module:
    """VGG16 (Simonyan and Zisserman, 2015)."""
    return _vgg((64, 64, 0, 128, 128, 0, *(256,) * 3, 0, *(512,) * 3, 0, *(512,) * 3, 0), batch_norm=False)


def alexnet() -> nn.Module:
    """AlexNet (Krizhevsky, 2014)."""
    features = (
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
    )
    classifier = (nn.Linear(256 * 36, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, CLASSES))
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *classifier)


def googlenet() -> nn.Module:
    """GoogLeNet (Szegedy et al., 2015) with BatchNorm."""

    def inception(before: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> nn.Module:
        return Parallel(
            conv(before, one, 1),
            nn.Sequential(conv(before, three[0], 1), conv(three[0], three[1], 3, padding=1)),
            nn.Sequential(conv(before, five[0], 1), conv(five[0], five[1], 3, padding=1)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv(before, pool, 1)),
        )

    def pool(kernel: int = 3) -> nn.Module:
        return nn.MaxPool2d(kernel, 2, ceil_mode=True)

    return nn.Sequential(
        *(conv(3, 64, 7, stride=2, padding=3), pool(), conv(64, 64, 1), conv(64, 192, 3, padding=1), pool()),
        *(inception(192, 64, (96, 128), (16, 32), 32), inception(256, 128, (128, 192), (32, 96), 64), pool()),
        *(inception(480, 192, (96, 208), (16, 48), 64), inception(512, 160, (112, 224), (24, 64), 64)),
        *(inception(512, 128, (128, 256), (24, 64), 64), inception(512, 112, (144, 288), (32, 64), 64)),
        *(inception(528, 256, (160, 320), (32, 128), 128), pool(2), inception(832, 256, (160, 320), (32, 128), 128)),
        inception(832, 384, (192, 384), (48, 128), 128),
        *head(1024),
    )


def inception_v3() -> nn.Module:
    """InceptionV3 (Szegedy et al., 2016), for inputs of 75 x 75 and more."""

    def mean() -> nn.Module:
        return nn.AvgPool2d(3, 1, 1)

    def block_a(before: int, pool: int) -> nn.Module:
        return Parallel(
            conv(before, 64, 1),
            nn.Sequential(conv(before, 48, 1), conv(48, 64, 5, padding=2)),
            nn.Sequential(conv(before, 64, 1), conv(64, 96, 3, padding=1), conv(96, 96, 3, padding=1)),
            nn.Sequential(mean(), conv(before, pool, 1)),
        )

    def wide(before: int, after: int) -> nn.Module:
        return conv(before, after, (1, 7), padding=(0, 3))

    def tall(before: int, after: int) -> nn.Module:
        return conv(before, after, (7, 1), padding=(3, 0))

    def block_c(mid: int) -> nn.Module:
        return Parallel(
            conv(768, 192, 1),
            nn.Sequential(conv(768, mid, 1), wide(mid, mid), tall(mid, 192)),
            nn.Sequential(conv(768, mid, 1), tall(mid, mid), wide(mid, mid), tall(mid, mid), wide(mid, 192)),
            nn.Sequential(mean(), conv(768, 192, 1)),
        )

    def split(before: int) -> nn.Module:
        return Parallel(conv(before, 384, (1, 3), padding=(0, 1)), conv(before, 384, (3, 1), padding=(1, 0)))

    def block_e(before: int) -> nn.Module:
        return Parallel(
            conv(before, 320, 1),
            nn.Sequential(conv(before, 384, 1), split(384)),
            nn.Sequential(conv(before, 448, 1), conv(448, 384, 3, padding=1), split(384)),
            nn.Sequential(mean(), conv(before, 192, 1)),
        )

    deep = nn.Sequential(conv(288, 64, 1), conv(64, 96, 3, padding=1), conv(96, 96, 3, stride=2))
    reduce_b = Parallel(conv(288, 384, 3, stride=2), deep, nn.MaxPool2d(3, 2))
    first = nn.Sequential(conv(768, 192, 1), conv(192, 320, 3, stride=2))
    second = nn.Sequential(conv(768, 192, 1), wide(192, 192), tall(192, 192), conv(192, 192, 3, stride=2))
    reduce_d = Parallel(first, second, nn.MaxPool2d(3, 2))
    stem = (conv(3, 32, 3, stride=2), conv(32, 32, 3), conv(32, 64, 3, padding=1), nn.MaxPool2d(3, 2))
    more = (conv(64, 80, 1), conv(80, 192, 3), nn.MaxPool2d(3, 2))
    middle = (block_a(192, 32), block_a(256, 64), block_a(288, 64), reduce_b, *map(block_c, (128, 160, 160, 192)))
    return nn.Sequential(*stem, *more, *middle, reduce_d, block_e(1280), block_e(2048), *head(2048))


class DenseLayer(nn.Module):
    """BatchNorm, ReLU and convolution twice; the result is appended to the input."""

    def __init__(self, before: int, growth: int = 32) -> None:
        super().__init__()
        self.way = nn.Sequential(
            *(nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, 4 * growth, 1, bias=False)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Input and new features."""
        return torch.cat([x, self.way(x)], 1)


def densenet121() -> nn.Module:
    """DenseNet121 (Huang et al., 2017)."""
    layers, now = _resnet_stem(), 64
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(DenseLayer(now))
            now += 32
        if stage < 3:
            layers += [nn.BatchNorm2d(now), nn.ReLU(), nn.Conv2d(now, now // 2, 1, bias=False), nn.AvgPool2d(2)]
            now //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(now), nn.ReLU(), *head(now))


def _inverted(
    before: int, after: int, stride: int, expand: int, kernel: int, act: Callable[[], nn.Module]
) -> nn.Module:
    """An inverted residual: expansion, depthwise convolution, linear projection."""
    mid = before * expand
    layers: list[nn.Module] = []
    if expand > 1:
        layers += [nn.Conv2d(before, mid, 1, bias=False), nn.BatchNorm2d(mid), act()]
    layers += [nn.Conv2d(mid, mid, kernel, stride, kernel // 2, groups=mid, bias=False), nn.BatchNorm2d(mid), act()]
    branch = nn.Sequential(*layers, nn.Conv2d(mid, after, 1, bias=False), nn.BatchNorm2d(after))
    return Residual(branch, nn.Identity(), nn.Identity()) if (before, stride) == (after, 1) else branch


def _mobile(
    stages: Sequence[tuple[int, int, int, int, int]], now: int, act: Callable[[], nn.Module]
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for expand, after, count, stride, kernel in stages:
        for block in range(count):
            layers.append(_inverted(now, after, 1 if block else stride, expand, kernel, act))
            now = after
    return layers


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 (Sandler et al., 2018): depthwise convolutions and ReLU6."""
    stages = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3))
    stages = (*stages, (6, 160, 3, 2, 3), (6, 320, 1, 1, 3))
    stem = (nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
    top = (nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6())
    return nn.Sequential(*stem, *_mobile(stages, 32, nn.ReLU6), *top, *head(1280))


def mnasnet() -> nn.Module:
    """MNASNet 1.0 (Tan et al., 2019)."""
    stages = (
        (3, 24, 3, 2, 3),
        (3, 40, 3, 2, 5),
        (6, 80, 3, 2, 5),
        (6, 96, 2, 1, 3),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    stem = (
        conv(3, 32, 3, stride=2, padding=1),
        conv(32, 32, 3, padding=1, groups=32),
        *(nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16)),
    )
    return nn.Sequential(*stem, *_mobile(stages, 16, nn.ReLU), conv(320, 1280, 1), *head(1280))


class Shuffle(nn.Module):
    """A ShuffleNetV2 unit: half of the channels passes, the halves are interleaved afterwards."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        half = after // 2
        self.stride = stride
        inner = before if stride > 1 else half
        self.main = nn.Sequential(
            conv(inner, half, 1),
            *(nn.Conv2d(half, half, 3, stride, 1, groups=half, bias=False), nn.BatchNorm2d(half)),
            conv(half, half, 1),
        )
        self.side = nn.Identity()
        if stride > 1:
            depthwise = (nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False), nn.BatchNorm2d(before))
            self.side = nn.Sequential(*depthwise, conv(before, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Both halves, shuffled."""
        first, second = (x, x) if self.stride > 1 else x.chunk(2, 1)
        out = torch.cat([self.side(first), self.main(second)], 1)
        n, c, h, w = out.shape
        return out.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2() -> nn.Module:
    """ShuffleNetV2 x1.0 (Ma et al., 2018): channel shuffles."""
    layers: list[nn.Module] = [conv(3, 24, 3, stride=2, padding=1), nn.MaxPool2d(3, 2, 1)]
    now = 24
    for after, count in ((116, 4), (232, 8), (464, 4)):
        for block in range(count):
            layers.append(Shuffle(now, after, 1 if block else 2))
            now = after
    return nn.Sequential(*layers, conv(now, 1024, 1), *head(1024))


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1 (Iandola et al., 2016)."""

    def fire(before: int, squeeze: int, expand: int) -> nn.Module:
        one = nn.Sequential(nn.Conv2d(squeeze, expand, 1), nn.ReLU())
        three = nn.Sequential(nn.Conv2d(squeeze, expand, 3, padding=1), nn.ReLU())
        return nn.Sequential(nn.Conv2d(before, squeeze, 1), nn.ReLU(), Parallel(one, three))

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), fire(64, 16, 64), fire(128, 16, 64), pool()),
        *(fire(128, 32, 128), fire(256, 32, 128), pool(), fire(256, 48, 192), fire(384, 48, 192)),
        *(fire(384, 64, 256), fire(512, 64, 256), nn.Conv2d(512, CLASSES, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def regnet_x() -> nn.Module:
    """RegNetX-400MF (Radosavovic et al., 2020)."""
    layers: list[nn.Module] = [conv(3, 32, 3, stride=2, padding=1)]
    before = 32
    for width, count in ((32, 1), (64, 2), (160, 7), (400, 12)):
        for block in range(count):
            layers.append(_bottleneck(before, width, width, 1 if block else 2, width // 16))
            before = width
    return nn.Sequential(*layers, *head(before))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "ResNet18": resnet18,
    "ResNet50": resnet50,
    "ResNeXt50": resnext50,
    "VGG11-BN": vgg11_bn,
    "GoogLeNet": googlenet,
    "InceptionV3": inception_v3,
    "DenseNet121": densenet121,
    "MobileNetV2": mobilenet_v2,
    "ShuffleNetV2": shufflenet_v2,
    "SqueezeNet": squeezenet,
    "AlexNet": alexnet,
    "MNASNet": mnasnet,
    "RegNet-X": regnet_x,
}
OTHERS: dict[str, Callable[[], nn.Module]] = {"VGG16": vgg16}  # measured by name only


def input_size(name: str, size: int = 64) -> int:
    """The side of the input: InceptionV3 needs 75 pixels at least."""
    return max(size, 96) if name == "InceptionV3" else size


def build(name: str, statistics: str = "random", seed: int = 0, size: int = 64) -> nn.Module:
    """An architecture in eval mode; ``statistics`` of BatchNorm are "random" or of one "batch" of noise."""
    torch.manual_seed(seed)
    model = (ARCHITECTURES | OTHERS)[name]()
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.05)
        elif isinstance(part, nn.BatchNorm2d) and statistics == "random":
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1)
    _calibrate(model, input_size(name, size), spread=0.3 if statistics == "random" else 0.0)
    return model.eval()


def _calibrate(model: nn.Module, size: int, spread: float) -> None:
    """Set BatchNorm statistics from one batch of noise, each multiplied by a random factor around 1."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # cumulative: one batch decides
    model.train()
    with torch.no_grad():
        model(torch.randn(4, 3, size, size))
        for part in model.modules():
            if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None and part.running_var is not None:
                part.running_mean += spread * part.running_var.sqrt() * torch.randn_like(part.running_mean)
                part.running_var *= torch.exp(spread * torch.randn_like(part.running_var))
