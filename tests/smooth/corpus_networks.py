"""Networks for tests of error estimates, each written once for two number systems.

Torch evaluates them as modules, and extended precision gives the truth, their values and their gradients.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
from torch import Tensor, nn

from .extended import ExtendedNumbers, TorchNumbers

INPUTS = 16  # coordinates of a point


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


class InvertedResiduals(CorpusNetwork):
    """Blocks as in MobileNet: a depthwise convolution with SiLU, squeeze and excitation, and a residual sum."""

    def __init__(self, blocks: int = 2, channels: int = 4) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, channels, 3, padding=1), nn.Linear(channels, 3)
        self.depthwise = nn.ModuleList(nn.Conv2d(channels, channels, 3, groups=channels) for _ in range(blocks))
        shapes = {"expand": channels, "squeeze": 2, "excite": channels, "project": channels}
        sizes = {"expand": channels, "squeeze": channels, "excite": 2, "project": channels}
        self.linear = nn.ModuleDict(
            {f"{n}_{k}": nn.Linear(sizes[n], out) for k in range(blocks) for n, out in shapes.items()}
        )
        self.blocks, self.channels = blocks, channels

    def compute(self, f, x, w):
        n, c = len(x), self.channels
        x = f.convolution(x.reshape(n, 1, 4, 4), w["stem_weight"], w["stem_bias"]).reshape(n, c, 16)
        for k in range(self.blocks):
            expand, squeeze, excite, project = (
                (w[f"linear_{name}_{k}_weight"], w[f"linear_{name}_{k}_bias"])
                for name in ("expand", "squeeze", "excite", "project")
            )
            y = f.silu(expand[0] @ x + expand[1][:, None]).reshape(n, c, 4, 4)
            kernels, biases = w[f"depthwise_{k}_weight"], w[f"depthwise_{k}_bias"]
            one = (slice(i, i + 1) for i in range(c))
            channels = [f.convolution(y[:, i], kernels[i], biases[i]) for i in one]
            y = f.silu(f.concatenate([part.reshape(n, 1, 16) for part in channels], 1))
            gate = f.sigmoid(linear(f.silu(linear(y.mean(-1), *squeeze)), *excite))
            x = x + project[0] @ (y * gate[:, :, None]) + project[1][:, None]
        return linear(f.silu(x).mean(-1), w["head_weight"], w["head_bias"])


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
