"""Networks of the old protocol, each twice: as its layers, and as a module of torch that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.rpc import wire
from tests.rpc.wire import Window


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers that float32 holds exactly."""
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


@dataclass
class Twice:
    """Layers for the wire, and functions of a batch (n, size) for torch."""

    size: int
    layers: list[bytes] = field(default_factory=list)
    steps: list[Callable[[Tensor], Tensor]] = field(default_factory=list)

    def add(self, layer: bytes, step: Callable[[Tensor], Tensor]) -> Twice:
        self.layers.append(layer)
        self.steps.append(step)
        return self

    def dense(self, weights: np.ndarray, biases: np.ndarray) -> Twice:
        w, b = torch.from_numpy(weights.T.copy()), torch.from_numpy(biases)
        return self.add(wire.dense(weights, biases), lambda x: F.linear(x, w, b))

    def relu(self) -> Twice:
        return self.add(wire.relu(), torch.relu)

    def hard_tanh(self) -> Twice:
        return self.add(wire.hard_tanh(), F.hardtanh)

    def conv(self, w: Window, filters: np.ndarray, biases: np.ndarray) -> Twice:
        return self.add(*conv(w, filters, biases))

    def relu_and_max_pool(self, w: Window) -> Twice:
        """As one step of torch: the breaks are those of the two together, in whichever order."""
        self.layers.append(wire.relu())
        step = lambda x: flat(torch.relu(F.max_pool2d(image(x, w), w.kernel, w.stride, w.pad)))  # noqa: E731
        return self.add(wire.max_pool(w), step)

    def average_pool(self, w: Window) -> Twice:
        return self.add(wire.average_pool(w), lambda x: flat(F.avg_pool2d(image(x, w), w.kernel, w.stride, w.pad)))

    def normalize(self, means: np.ndarray, deviations: np.ndarray) -> Twice:
        m, d = torch.from_numpy(means), torch.from_numpy(deviations)
        step = lambda x: ((x.unflatten(1, (-1, len(m))) - m) / d).flatten(1)  # noqa: E731
        return self.add(wire.normalize(means, deviations), step)

    def module(self) -> nn.Module:
        steps = self.steps

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.precision = nn.Parameter(torch.zeros(1, dtype=torch.float64))  # captured in double precision

            def forward(self, x: Tensor) -> Tensor:
                for step in steps:
                    x = step(x)
                return x

        return Module().eval()

    def __call__(self, points: object) -> np.ndarray:
        """The truth at points (n, size), in float64."""
        x = torch.as_tensor(np.asarray(points, dtype=np.float64))
        for step in self.steps:
            x = step(x)
        return x.numpy()


def image(x: Tensor, w: Window) -> Tensor:
    """Flat in height, width, channel order to channels first."""
    return x.reshape(-1, w.height, w.width, w.channels).permute(0, 3, 1, 2)


def flat(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(1)


def conv(w: Window, filters: np.ndarray, biases: np.ndarray) -> tuple[bytes, Callable[[Tensor], Tensor]]:
    kernel, bias = torch.from_numpy(filters.transpose(3, 2, 0, 1).copy()), torch.from_numpy(biases)
    step = lambda x: flat(F.conv2d(image(x, w), kernel, bias, w.stride, w.pad))  # noqa: E731
    return wire.conv(w, filters, biases), step


def fully_connected(rng: np.random.Generator) -> Twice:
    net = Twice(3).dense(small(rng, 3, 8), small(rng, 8)).relu().dense(small(rng, 8, 8), small(rng, 8)).relu()
    return net.dense(small(rng, 8, 2), small(rng, 2))


def convolutional(rng: np.random.Generator) -> Twice:
    """Strides and pads that differ, then a pool and a fully connected layer that reads height, width, channel."""
    first = Window(6, 5, 2, (3, 2), 3, (1, 2), (1, 1))  # to 6 x 3 x 3
    pool = Window(6, 3, 3, (2, 2), 3, (2, 1), (1, 0))  # to 4 x 2 x 3
    net = Twice(60).conv(first, small(rng, 3, 2, 2, 3), small(rng, 3)).relu_and_max_pool(pool)
    return net.dense(small(rng, 24, 4), small(rng, 4))


def averaging(rng: np.random.Generator) -> Twice:
    """Normalize first, as clients do, whose size only a later layer tells; zeros of the padding count."""
    first = Window(4, 4, 3, (2, 2), 2, (1, 1))  # to 3 x 3 x 2
    pool = Window(3, 3, 2, (2, 2), 2, (1, 1), (1, 1))  # to 4 x 4 x 2
    net = Twice(48).normalize(small(rng, 3), np.array([0.5, 2.0, 0.25]))
    net = net.conv(first, small(rng, 2, 2, 3, 2), small(rng, 2)).hard_tanh().average_pool(pool)
    return net.normalize(small(rng, 2), np.array([1.0, 0.5])).dense(small(rng, 32, 3), small(rng, 3)).relu()


def by_channels(rng: np.random.Generator) -> Twice:
    """Two convolutions and the input itself side by side, then a pool over all channels."""
    one, two = Window(4, 3, 2, (3, 3), 2, (1, 1), (1, 1)), Window(4, 3, 2, (1, 1), 1)
    (layer1, step1), (layer2, step2) = (
        conv(w, small(rng, *w.kernel, w.channels, w.out), small(rng, w.out)) for w in (one, two)
    )
    step = lambda x: flat(torch.cat([image(v, w) for v, w in ((step1(x), ones), (step2(x), single), (x, two))], 1))  # noqa: E731
    ones, single = Window(4, 3, 2, (1, 1)), Window(4, 3, 1, (1, 1))
    net = Twice(24).add(wire.concat([layer1, layer2, wire.normalize([0.0], [1.0])], wire.CHANNELS), step)
    return net.relu_and_max_pool(Window(4, 3, 5, (2, 3), 5, (2, 1)))


def side_by_side(rng: np.random.Generator) -> Twice:
    """Concatenated flat, one inside of another."""
    a, b = (small(rng, 4, 3), small(rng, 3)), (small(rng, 4, 2), small(rng, 2))
    steps = [lambda x, w=w, c=c: x @ torch.from_numpy(w) + torch.from_numpy(c) for w, c in (a, b)]
    nested = wire.concat([wire.dense(*b), wire.hard_tanh()], wire.FLAT)
    step = lambda x: torch.cat([steps[0](x), steps[1](x), F.hardtanh(x), torch.relu(x)], 1)  # noqa: E731
    net = Twice(4).add(wire.concat([wire.dense(*a), nested, wire.relu()], wire.FLAT), step)
    return net.relu().dense(small(rng, 13, 3), small(rng, 3))


ALL = [fully_connected, convolutional, averaging, by_channels, side_by_side]
