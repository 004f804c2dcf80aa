"""Networks of the legacy protocol, each as encoded layers and as a torch module that computes the same function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_wire import Window


def float32_normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw normal numbers that float32 holds exactly."""
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


@dataclass
class LegacyNetwork:
    """Encoded layers, and the same layers as functions of a batch (n, size)."""

    size: int
    layers: list[bytes] = field(default_factory=list)
    steps: list[Callable[[Tensor], Tensor]] = field(default_factory=list)

    def add(self, layer: bytes, step: Callable[[Tensor], Tensor]) -> LegacyNetwork:
        self.layers.append(layer)
        self.steps.append(step)
        return self

    def dense(self, weights: np.ndarray, biases: np.ndarray) -> LegacyNetwork:
        w, b = torch.from_numpy(weights.T.copy()), torch.from_numpy(biases)
        return self.add(wire.dense(weights, biases), lambda x: F.linear(x, w, b))

    def relu(self) -> LegacyNetwork:
        return self.add(wire.relu(), torch.relu)

    def hard_tanh(self) -> LegacyNetwork:
        return self.add(wire.hard_tanh(), F.hardtanh)

    def conv(self, w: Window, filters: np.ndarray, biases: np.ndarray) -> LegacyNetwork:
        return self.add(*make_conv(w, filters, biases))

    def relu_and_max_pool(self, w: Window) -> LegacyNetwork:
        """Add two layers and one function: the breaks are those of both together, in either order."""
        self.layers.append(wire.relu())
        step = lambda x: to_flat(torch.relu(F.max_pool2d(to_image(x, w), w.kernel, w.stride, w.pad)))  # noqa: E731
        return self.add(wire.max_pool(w), step)

    def average_pool(self, w: Window) -> LegacyNetwork:
        return self.add(
            wire.average_pool(w), lambda x: to_flat(F.avg_pool2d(to_image(x, w), w.kernel, w.stride, w.pad))
        )

    def normalize(self, means: np.ndarray, deviations: np.ndarray) -> LegacyNetwork:
        m, d = torch.from_numpy(means), torch.from_numpy(deviations)
        step = lambda x: ((x.unflatten(1, (-1, len(m))) - m) / d).flatten(1)  # noqa: E731
        return self.add(wire.normalize(means, deviations), step)

    def module(self) -> nn.Module:
        steps = self.steps

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.precision = nn.Parameter(
                    torch.zeros(1, dtype=torch.float64)
                )  # makes the capture use double precision

            def forward(self, x: Tensor) -> Tensor:
                for step in steps:
                    x = step(x)
                return x

        return Module().eval()

    def __call__(self, points: object) -> np.ndarray:
        """Evaluate at points (n, size) in float64."""
        x = torch.as_tensor(np.asarray(points, dtype=np.float64))
        for step in self.steps:
            x = step(x)
        return x.numpy()


def to_image(x: Tensor, w: Window) -> Tensor:
    """Reshape from flat in the order height, width, channel to channels first."""
    return x.reshape(-1, w.height, w.width, w.channels).permute(0, 3, 1, 2)


def to_flat(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(1)


def make_conv(w: Window, filters: np.ndarray, biases: np.ndarray) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    kernel, bias = torch.from_numpy(filters.transpose(3, 2, 0, 1).copy()), torch.from_numpy(biases)
    step = lambda x: to_flat(F.conv2d(to_image(x, w), kernel, bias, w.stride, w.pad))  # noqa: E731
    return wire.conv(w, filters, biases), step


def make_fully_connected(rng: np.random.Generator) -> LegacyNetwork:
    net = (
        LegacyNetwork(3)
        .dense(float32_normal(rng, 3, 8), float32_normal(rng, 8))
        .relu()
        .dense(float32_normal(rng, 8, 8), float32_normal(rng, 8))
        .relu()
    )
    return net.dense(float32_normal(rng, 8, 2), float32_normal(rng, 2))


def make_convolutional(rng: np.random.Generator) -> LegacyNetwork:
    """Different strides and paddings, then a pooling layer and a fully connected layer."""
    first = Window(6, 5, 2, (3, 2), 3, (1, 2), (1, 1))  # to 6 x 3 x 3
    pool = Window(6, 3, 3, (2, 2), 3, (2, 1), (1, 0))  # to 4 x 2 x 3
    net = LegacyNetwork(60).conv(first, float32_normal(rng, 3, 2, 2, 3), float32_normal(rng, 3)).relu_and_max_pool(pool)
    return net.dense(float32_normal(rng, 24, 4), float32_normal(rng, 4))


def make_averaging(rng: np.random.Generator) -> LegacyNetwork:
    """A Normalize layer first, whose size only a later layer determines; an average over zeros of the padding."""
    first = Window(4, 4, 3, (2, 2), 2, (1, 1))  # to 3 x 3 x 2
    pool = Window(3, 3, 2, (2, 2), 2, (1, 1), (1, 1))  # to 4 x 4 x 2
    net = LegacyNetwork(48).normalize(float32_normal(rng, 3), np.array([0.5, 2.0, 0.25]))
    net = net.conv(first, float32_normal(rng, 2, 2, 3, 2), float32_normal(rng, 2)).hard_tanh().average_pool(pool)
    return (
        net.normalize(float32_normal(rng, 2), np.array([1.0, 0.5]))
        .dense(float32_normal(rng, 32, 3), float32_normal(rng, 3))
        .relu()
    )


def make_concat_channels(rng: np.random.Generator) -> LegacyNetwork:
    """Two convolutions and the input itself concatenated along channels, then a pooling layer."""
    one, two = Window(4, 3, 2, (3, 3), 2, (1, 1), (1, 1)), Window(4, 3, 2, (1, 1), 1)
    (layer1, step1), (layer2, step2) = (
        make_conv(w, float32_normal(rng, *w.kernel, w.channels, w.out), float32_normal(rng, w.out)) for w in (one, two)
    )
    two_channels, one_channel = Window(4, 3, 2, (1, 1)), Window(4, 3, 1, (1, 1))

    def step(x: Tensor) -> Tensor:
        parts = ((step1(x), two_channels), (step2(x), one_channel), (x, two))
        return to_flat(torch.cat([to_image(v, w) for v, w in parts], 1))

    net = LegacyNetwork(24).add(wire.concat([layer1, layer2, wire.normalize([0.0], [1.0])], wire.ALONG_CHANNELS), step)
    return net.relu_and_max_pool(Window(4, 3, 5, (2, 3), 5, (2, 1)))


def make_concat_flat(rng: np.random.Generator) -> LegacyNetwork:
    """Nested flat concatenations."""
    a, b = (float32_normal(rng, 4, 3), float32_normal(rng, 3)), (float32_normal(rng, 4, 2), float32_normal(rng, 2))
    steps = [lambda x, w=w, c=c: x @ torch.from_numpy(w) + torch.from_numpy(c) for w, c in (a, b)]
    nested = wire.concat([wire.dense(*b), wire.hard_tanh()], wire.ALONG_FLAT)
    step = lambda x: torch.cat([steps[0](x), steps[1](x), F.hardtanh(x), torch.relu(x)], 1)  # noqa: E731
    net = LegacyNetwork(4).add(wire.concat([wire.dense(*a), nested, wire.relu()], wire.ALONG_FLAT), step)
    return net.relu().dense(float32_normal(rng, 13, 3), float32_normal(rng, 3))


NETWORK_MAKERS = [make_fully_connected, make_convolutional, make_averaging, make_concat_channels, make_concat_flat]
