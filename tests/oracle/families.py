"""Random networks of every kind we support, and small-integer ones that are full of ties."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

Family = Callable[[torch.Generator], tuple[nn.Module, tuple[int, ...]]]


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Concat(nn.Module):
    """Branches side by side, along the first dim after the batch."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def pick(generator: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def activation(generator: torch.Generator) -> nn.Module:
    """One of the breaking operators that act on each unit."""
    makers: list[Callable[[], nn.Module]] = [
        nn.ReLU,
        lambda: nn.LeakyReLU(0.25),
        nn.ReLU6,
        lambda: nn.Hardtanh(-0.5, 0.75),
        nn.Hardsigmoid,
        lambda: Apply(torch.abs),
        lambda: Apply(lambda x: x.clamp(-0.25, 1.5)),
        lambda: nn.Softshrink(0.25),
        lambda: nn.PReLU(init=0.125),
    ]
    return makers[pick(generator, 0, len(makers) - 1)]()


def mlp(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Plain ReLU layers."""
    widths = [pick(g, 2, 6), *(pick(g, 4, 14) for _ in range(pick(g, 1, 3))), pick(g, 1, 4)]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (widths[0],)


def mixed(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Layers with leaky, clamped and other activations."""
    widths = [pick(g, 2, 6), *(pick(g, 4, 10) for _ in range(pick(g, 1, 3))), pick(g, 1, 4)]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), activation(g)]
    return nn.Sequential(*layers[:-1]), (widths[0],)


def conv(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolution, ReLU and max-pooling in either order, and a linear layer."""
    channels, size = pick(g, 1, 2), pick(g, 5, 6)
    kernel, stride, padding = pick(g, 2, 3), pick(g, 1, 2), pick(g, 0, 1)
    first = [nn.ReLU(), nn.MaxPool2d(2, stride=pick(g, 1, 2), padding=pick(g, 0, 1))]
    if pick(g, 0, 1):
        first.reverse()
    body = nn.Sequential(nn.Conv2d(channels, 3, kernel, stride, padding), *first, nn.Flatten())
    width = body(torch.zeros(1, channels, size, size)).shape[1]
    return nn.Sequential(body, nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, 2)), (channels, size, size)


def normed(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Batch norms with learnt statistics, and average pooling."""
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.running_mean.copy_(torch.randn(3, generator=g))  # type: ignore[union-attr]
        norm.running_var.copy_(torch.rand(3, generator=g) + 0.2)  # type: ignore[union-attr]
        norm.weight.copy_(torch.randn(3, generator=g))
        norm.bias.copy_(torch.randn(3, generator=g))
    body = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), norm, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(body, nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2)), (1, 4, 4)


def residual(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Skip connections around layers, some of them nested."""
    width = pick(g, 3, 7)
    inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    block = Residual(nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True), Residual(inner)))
    return nn.Sequential(nn.Linear(3, width), block, nn.ReLU(), nn.Linear(width, 2)), (3,)


def concat(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Branches with different breaks, joined; a maximum of branches at the end."""
    a, b = pick(g, 2, 5), pick(g, 2, 5)
    left = nn.Sequential(nn.Linear(4, a), nn.LeakyReLU(0.125))
    right = nn.Sequential(nn.Linear(4, b), nn.ReLU(), nn.Linear(b, b), nn.Hardtanh())
    tail = Apply(lambda x: torch.maximum(x[:, :3], x[:, 3:]))
    return nn.Sequential(Concat(left, right), nn.Linear(a + b, 6), nn.ReLU(), nn.Linear(6, 6), tail), (4,)


def ordered(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Sorts, medians and top-k between layers."""
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.sort(1).values,
        lambda x: x.topk(3, 1).values,
        lambda x: x.median(1, keepdim=True).values,
        lambda x: x.kthvalue(2, 1, keepdim=True).values,
        lambda x: x.amax(1, keepdim=True) - x.amin(1, keepdim=True),
    ]
    function = functions[pick(g, 0, len(functions) - 1)]
    width = function(torch.zeros(1, 5)).shape[1]
    return nn.Sequential(nn.Linear(3, 5), Apply(function), nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 2)), (3,)


FAMILIES: dict[str, Family] = {
    "mlp": mlp,
    "mixed": mixed,
    "conv": conv,
    "normed": normed,
    "residual": residual,
    "concat": concat,
    "ordered": ordered,
}


def seeded(model: nn.Module, generator: torch.Generator, scale: float = 1.0) -> nn.Module:
    """Weights from the generator, in eval mode."""
    with torch.no_grad():
        for weight in model.parameters():
            fan = max(1, weight[0].numel()) if weight.dim() > 1 else 1
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale / fan**0.5)
    return model.eval()


def small_integers(generator: torch.Generator, model: nn.Module, most: int = 2) -> nn.Module:
    """The same network with weights from -most to most: ties everywhere."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randint(-most, most + 1, weight.shape, generator=generator).float())
    return model.eval()
