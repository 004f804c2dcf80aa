"""Networks and lines with known answers: every network is made from its seed, and nothing is stored.

Each network is written once, for two number systems: torch evaluates it as a module, and extended precision gives the
truth, its values and its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from .extended import ExtendedNumbers, TorchNumbers

INPUTS = 16  # coordinates of a point
COMPLEX_STEP = np.longdouble("1e-1000")


class CorpusNetwork(nn.Module):
    """A network whose `compute` runs in both number systems."""

    def forward(self, x: Tensor) -> Tensor:
        weights = {name.replace(".", "_"): value for name, value in self.named_parameters()}
        return self.compute(TorchNumbers, x, weights)

    def compute(self, f, x, w):
        raise NotImplementedError

    @cached_property
    def extended_weights(self):
        return {
            name.replace(".", "_"): value.detach().double().numpy().astype(np.longdouble)
            for name, value in self.named_parameters()
        }

    def true_values(self, x):  # (n, inputs) long double or complex -> (n, outputs)
        """The outputs in extended precision."""
        return self.compute(ExtendedNumbers, x, self.extended_weights)


def linear(x, weight, bias=None):
    product = x @ weight.T
    return product if bias is None else product + bias


class Mlp(CorpusNetwork):
    def __init__(self, activation: str, depth: int, width: int = 12, scale: float = 1.0) -> None:
        super().__init__()
        sizes = [INPUTS, *[width] * depth, 3]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation, self.scale = activation, scale

    def compute(self, f, x, w):
        act = getattr(f, self.activation)
        for k in range(len(self.layers) - 1):
            x = act(linear(x, w[f"layers_{k}_weight"], w[f"layers_{k}_bias"]) * self.scale)
        last = len(self.layers) - 1
        return linear(x, w[f"layers_{last}_weight"], w[f"layers_{last}_bias"])


class NormRelu(CorpusNetwork):
    """LayerNorm followed by ReLU: kinks behind a smooth operator."""

    def __init__(self, softmax: bool) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(INPUTS, 12), nn.LayerNorm(12), nn.Linear(12, 3)
        self.softmax = softmax

    def compute(self, f, x, w):
        x = f.layer_norm(linear(x, w["one_weight"], w["one_bias"]), w["norm_weight"], w["norm_bias"], 1e-5)
        x = linear(f.relu(x), w["two_weight"], w["two_bias"])
        return f.softmax(x) if self.softmax else x


class ReluTail(CorpusNetwork):
    """A piecewise-linear body before a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(INPUTS, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def compute(self, f, x, w):
        x = f.relu(linear(x, w["one_weight"], w["one_bias"]))
        x = f.relu(linear(x, w["two_weight"], w["two_bias"]))
        return f.softmax(linear(x, w["three_weight"], w["three_bias"]) * 4)


class Encoder(CorpusNetwork):
    """A transformer encoder of 4 tokens, normalised before each block."""

    def __init__(self, layers: int, eps: float, bias: bool, activation: str = "gelu", width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width, bias=bias)
        names = ("norm1", "norm2")
        self.norms = nn.ModuleDict({f"{n}_{k}": nn.LayerNorm(width) for k in range(layers) for n in names})
        shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 16), "down": (16, width)}
        self.blocks = nn.ModuleDict({f"{n}_{k}": nn.Linear(*s) for k in range(layers) for n, s in shapes.items()})
        self.head = nn.Linear(width, 3)
        self.layers, self.eps, self.activation, self.heads = layers, eps, activation, 2

    def compute(self, f, x, w):
        x = linear(x.reshape(len(x), 4, 4), w["embed_weight"], w.get("embed_bias"))
        for k in range(self.layers):
            x = x + self.attend(f, self.norm(f, x, w, f"norm1_{k}"), w, k)
            y = linear(self.norm(f, x, w, f"norm2_{k}"), w[f"blocks_up_{k}_weight"], w[f"blocks_up_{k}_bias"])
            y = getattr(f, self.activation)(y)
            x = x + linear(y, w[f"blocks_down_{k}_weight"], w[f"blocks_down_{k}_bias"])
        return linear(x.mean(1), w["head_weight"], w["head_bias"])

    def norm(self, f, x, w, name):
        return f.layer_norm(x, w[f"norms_{name}_weight"], w[f"norms_{name}_bias"], self.eps)

    def attend(self, f, x, w, k):
        width = x.shape[-1]
        qkv = linear(x, w[f"blocks_qkv_{k}_weight"], w[f"blocks_qkv_{k}_bias"])
        parts = [qkv[..., i * width : (i + 1) * width] for i in range(3)]
        q, key, v = (f.swap_heads(p.reshape(len(x), 4, self.heads, width // self.heads)) for p in parts)
        scores = q @ f.transpose(key) / (width // self.heads) ** 0.5
        mixed = f.swap_heads(f.softmax(scores) @ v).reshape(len(x), 4, width)
        return linear(mixed, w[f"blocks_out_{k}_weight"], w[f"blocks_out_{k}_bias"])


class GatedConvolution(CorpusNetwork):
    """A convolution with SiLU, squeeze and excitation: a product of branches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.squeeze, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def compute(self, f, x, w):
        x = f.silu(f.convolution(x.reshape(len(x), 1, 4, 4), w["conv_weight"], w["conv_bias"]))
        x = f.silu(f.convolution(x, w["second_weight"], w["second_bias"]))
        gate = f.sigmoid(linear(x.reshape(len(x), 4, 16).mean(-1), w["squeeze_weight"], w["squeeze_bias"]))
        x = x.reshape(len(x), 4, 16) * gate[:, :, None]
        return linear(x.mean(-1), w["head_weight"], w["head_bias"])


class Lstm(CorpusNetwork):
    """A recurrent network over 4 steps of 4 numbers."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(4, 4 * width), nn.Linear(width, 4 * width), nn.Linear(width, 3)
        self.width = width

    def compute(self, f, x, w):
        steps, n = x.reshape(len(x), 4, 4), self.width
        h = c = steps[:, 0, :1] * 0 + w["head_weight"][0] * 0
        for t in range(4):
            gates = linear(steps[:, t], w["inner_weight"], w["inner_bias"]) + linear(h, w["outer_weight"])
            i, forget, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
            c = f.sigmoid(forget) * c + f.sigmoid(i) * f.tanh(g)
            h = f.sigmoid(o) * f.tanh(c)
        return linear(h, w["head_weight"], w["head_bias"])


@dataclass(frozen=True)
class CorpusLine:
    """One line of the corpus."""

    name: str
    network: CorpusNetwork
    start: Tensor  # (inputs,)
    end: Tensor  # (inputs,)

    def true_values(self, alphas):  # (n,) -> (n, outputs) long double
        """The outputs on the line in extended precision."""
        return self.network.true_values(self._points(alphas))

    def true_gradients(self, alphas, target):  # (n,) -> (n, inputs) long double
        """The gradient of one output, from imaginary steps along each coordinate."""
        points = self._points(alphas)
        steps = np.eye(INPUTS, dtype=np.longdouble) * COMPLEX_STEP
        stepped = (points[:, None] + 1j * steps).reshape(-1, INPUTS).astype(np.clongdouble)
        values = self.network.true_values(stepped)[:, target].imag / COMPLEX_STEP
        return values.reshape(len(points), INPUTS)

    def _points(self, alphas):
        a, b = (t.double().numpy().astype(np.longdouble) for t in (self.start, self.end))
        part = np.asarray(alphas, dtype=np.longdouble)[:, None]
        return (1 - part) * a + part * b


FAMILIES: dict[str, Callable[[], CorpusNetwork]] = {
    **{f"{act} MLP, depth {d}": (lambda act=act, d=d: Mlp(act, d)) for d in (2, 4)
       for act in ("gelu", "silu", "tanh", "sigmoid", "softplus")},
    **{f"steep {act} MLP": (lambda act=act: Mlp(act, 3, scale=6.0)) for act in ("gelu", "tanh", "softplus")},
    "LayerNorm, ReLU": lambda: NormRelu(False),
    "LayerNorm, ReLU, softmax": lambda: NormRelu(True),
    "ReLU, softmax": ReluTail,
    **{f"encoder, {n} layers": (lambda n=n: Encoder(n, 1e-5, True)) for n in (1, 2, 4, 8)},
    "encoder, 2 layers, ReLU": lambda: Encoder(2, 1e-5, True, "relu"),
    "gated convolution": GatedConvolution,
    "LSTM": Lstm,
    "zero residual stream, eps 1e-5": lambda: Encoder(2, 1e-5, False),
    "zero residual stream, eps 1e-12": lambda: Encoder(2, 1e-12, False),
}  # fmt: skip
SEEDS = 4  # networks of each family
LINES = 6  # of each network


def make_network(family: str, seed: int) -> CorpusNetwork:
    """A network with random weights and biases; torch's own generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = FAMILIES[family]()
        for name, value in network.named_parameters():
            if name.endswith("bias"):  # attention and norms start with biases of zero, trained networks do not have
                nn.init.normal_(value, std=0.3)
    return network.eval()


def corpus_lines(seeds: int = SEEDS, lines: int = LINES) -> Iterator[CorpusLine]:
    """All lines, family after family: from noise to noise, and from zero, as integrated gradients do."""
    for number, family in enumerate(FAMILIES):
        for seed in range(seeds):
            network = make_network(family, 1000 * number + seed)
            generator = torch.Generator().manual_seed(seed)
            for k in range(lines):
                end = torch.rand(INPUTS, generator=generator, dtype=torch.float64)
                noise = torch.randn(INPUTS, generator=generator, dtype=torch.float64)
                starts_at_zero = k % 2 == 0 or family.startswith("zero")
                start = torch.zeros_like(end) if starts_at_zero else noise
                yield CorpusLine(f"{family}, seed {seed}, line {k}", network, start, end)
