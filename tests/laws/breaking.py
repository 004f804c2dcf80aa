"""Samples of breaking operators: elementwise, maxima, order statistics, and conditions that hide one of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .sample import add, halves

aten = torch.ops.aten

# elementwise

add("relu", (4,), nn.ReLU())
add("relu", (4,), nn.ReLU(inplace=True))
add("relu", (), nn.ReLU())
add("relu", (2, 1, 2), nn.ReLU())
add("leaky_relu", (4,), nn.LeakyReLU(0.125))
add("leaky_relu", (4,), nn.LeakyReLU(0.01), dyadic=False)
add("leaky_relu", (4,), nn.LeakyReLU(-0.5))
add("leaky_relu", (4,), nn.LeakyReLU(1.5))
add("rrelu", (4,), nn.RReLU(0.125, 0.375))
add("rrelu", (4,), nn.RReLU(), dyadic=False)
add("prelu", (4,), nn.PReLU())
add("prelu", (3, 2), nn.PReLU(3))
add("prelu", (3,), nn.PReLU(3))
add("prelu", (2, 2, 2), nn.PReLU(2), apart=True)
add("_prelu_kernel", (3, 2), lambda x, w: aten._prelu_kernel(x, w), halves(1, 3, 1))
add("_prelu_kernel", (3,), lambda x, w: aten._prelu_kernel(x, w), halves(1, 1))
add("hardtanh", (4,), nn.ReLU6())
add("hardtanh", (4,), nn.Hardtanh())
add("hardtanh", (4,), nn.Hardtanh(-0.75, 1.5))
add("hardtanh", (4,), nn.Hardtanh(-0.7, 1.3), dyadic=False)
add("hardtanh", (4,), nn.Hardtanh(0.25, 1.5, inplace=True))
add("relu6", (4,), lambda x: F.relu6(4 * x))
# torch's gradient of hardsigmoid is 1/6 in float32, even for float64
add("hardsigmoid", (4,), lambda x: F.hardsigmoid(4 * x), dyadic=False, autograd=False)
add("hardsigmoid", (4,), lambda x: 6 * F.hardsigmoid(2 * x), dyadic=False, autograd=False)
add("l1_loss", (4,), lambda x, c: F.l1_loss(x, c.expand_as(x), reduction="none"), halves(1, 4))
add("l1_loss", (4,), lambda x: aten.l1_loss(x, x.flip(1), 0))
add("softshrink", (4,), nn.Softshrink())
add("softshrink", (4,), nn.Softshrink(0.3), dyadic=False)
add("softshrink", (4,), nn.Softshrink(0.0))
add("abs", (4,), torch.abs)
add("abs", (4,), lambda x: (x - x.flip(1)).abs())
add("threshold", (4,), nn.Threshold(0.5, 0.5))
add("threshold", (4,), nn.Threshold(-1.25, -1.25))
add("threshold", (4,), nn.Threshold(0.1, 0.1), dyadic=False)

# bounds

add("clamp", (4,), lambda x: x.clamp(-0.5, 1.25))
add("clamp", (4,), lambda x: x.clamp(min=0.25))
add("clamp", (4,), lambda x: x.clamp(max=0.25))
add("clamp", (4,), lambda x: x.clamp(0.5, -0.5))
add("clamp", (4,), lambda x: x.clamp(-0.1, 0.7), dyadic=False)
add("clip", (4,), lambda x: torch.clip(x, -0.5, 1.25))
add("clip", (4,), lambda x, c: torch.clip(x, c, c + 1), halves(4))
add("clamp_min", (4,), lambda x: torch.clamp_min(x, -0.25))
add("clamp_min", (4,), torch.clamp_min, halves(4))
add("clamp_max", (4,), lambda x: torch.clamp_max(x, 0.75))
add("clamp_max", (4,), torch.clamp_max, halves(4))
add("clamp.Tensor", (4,), lambda x, c: x.clamp(c, c + 1), halves(4))
add("clamp.Tensor", (2, 2), lambda x, c: x.clamp(max=c), halves(2, 1))
add("clamp.Tensor", (2, 2), lambda x, c: x.clamp(min=c), halves(2))
add("clamp.Tensor", (4,), lambda x, c: x.clamp(c, -c), halves(4))
add("clamp.Tensor", (4,), lambda x: x.clamp(min=x.flip(1) - 1))
add("clamp.Tensor", (4,), lambda x: x.clamp(x.flip(1) - 1, x.roll(1, 1) + 0.5))
for name in ("maximum", "max.other", "fmax", "minimum", "min.other", "fmin"):
    function = {"max.other": torch.max, "min.other": torch.min}.get(name) or getattr(torch, name)
    add(name, (4,), lambda x, function=function: function(x, 1 - x.flip(1)))
    add(name, (4,), lambda x, c, function=function: function(x, c), halves(4))
    add(name, (4,), lambda x, c, function=function: function(c, x[:, None]), halves(2, 1))
add("maximum", (2, 2), lambda x: torch.maximum(x, x[:, :1, 1:] + 0.5))
add("maximum", (4,), lambda x: torch.maximum(x, torch.zeros_like(x)))
add("maximum", (4,), lambda x: torch.maximum(x.relu(), x.flip(1)), fused=True)
add("maximum", (4,), lambda x: torch.maximum(x, x.flip(1)).relu(), fused=True)
add("maximum", (4,), lambda x: torch.maximum(x[:, :2].relu(), x[:, 2:].relu()), fused=True)
add("minimum", (4,), lambda x: torch.minimum(x.relu(), x.flip(1)))

# maxima over windows

for n, size in ((1, (5,)), (2, (2, 4)), (3, (2, 2, 3))):
    pool, adaptive = getattr(nn, f"MaxPool{n}d"), getattr(nn, f"AdaptiveMaxPool{n}d")
    key = f"max_pool{n}d"
    add(key, (2, *size), pool(2))
    add(key, (1, *size), pool(2, 1))
    add(key, (1, *size), pool(2, 2, padding=1))
    add(key, (1, *size), pool((3, *[2] * (n - 1)), 2, padding=1, ceil_mode=True))
    add(key, (1, *[s + 2 for s in size]), pool(2, 1, dilation=2))
    add(key, (1, *[s + 1 for s in size]), pool(2, ceil_mode=True))
    add(key, (1, *size), nn.Sequential(nn.ReLU(), pool(2)), fused=True)
    add(key, (1, *size), nn.Sequential(pool(2, 1), nn.ReLU()), fused=True)
    add(key, (1, *size), nn.Sequential(nn.ReLU(), pool(2, padding=1), nn.ReLU()), fused=True)
    add(key, (2, *size), pool(2), apart=True)
    both = getattr(F, f"max_pool{n}d_with_indices")
    named = f"max_pool{n}d_with_indices"
    add(named, (1, *size), lambda x, both=both: both(x, 2)[0])
    add(named, (1, *size), lambda x, both=both: both(x, 2, 1, 1, ceil_mode=True)[0])
    add(f"adaptive_max_pool{n}d", (1, *[s + 1 for s in size]), adaptive(2))
    add(f"adaptive_max_pool{n}d", (1, *[s + 2 for s in size]), adaptive(3))
    add(f"adaptive_max_pool{n}d", (2, *size), nn.Sequential(nn.ReLU(), adaptive(1)), fused=True)
add("max_pool2d", (1, 4, 3), nn.MaxPool2d((2, 1), (1, 2), padding=(1, 0)))

for name in ("amax", "amin"):
    function = getattr(torch, name)
    add(name, (2, 3), lambda x, function=function: function(x, 1))
    add(name, (2, 3), lambda x, function=function: function(x, (1, 2)))
    add(name, (2, 3, 2), lambda x, function=function: function(x, (3, 1), keepdim=True))
add("amax", (2, 3), lambda x: x.relu().amax(2), fused=True)
add("amax", (2, 3), lambda x: x.amax(1, keepdim=True).relu(), fused=True)
add("amax", (4,), lambda x: torch.stack([x[:, :2].relu(), x[:, 2:]], 1).amax(1), fused=True)
add("amax", (4,), lambda x: torch.stack([x[:, :2].relu(), x[:, 2:]], 1).amax(2))  # one window has no ReLU
add("amax", (4,), lambda x: x.relu().amax(1, keepdim=True) - x.relu().flip(1), fused=True)
add("amax", (4,), lambda x: (y := x.relu()).amax(1, keepdim=True) - y)  # the ReLU has another reader
add("amax", (4,), lambda x: (y := x.amax(1, keepdim=True)).relu() + y)
add("amin", (2, 3), lambda x: x.relu().amin(2))
add("amin", (2, 3), lambda x: x.amin(2).relu())
for name in ("max", "min"):
    add(f"{name}.dim", (2, 3), lambda x, name=name: getattr(x, name)(1).values)
    add(f"{name}.dim", (2, 3), lambda x, name=name: getattr(x, name)(-1, keepdim=True)[0])
add("max.dim", (4,), lambda x: x.max(1).values - x.relu().max(1).values, fused=True)
add("aminmax", (2, 3), lambda x: torch.cat(torch.aminmax(x, dim=1), 1))
add("aminmax", (2, 3), lambda x: torch.aminmax(x, dim=2, keepdim=True).max)
for name in ("cummax", "cummin"):
    add(name, (4,), lambda x, name=name: getattr(x, name)(1).values)
    add(name, (3, 2), lambda x, name=name: getattr(x, name)(-2)[0])

# order statistics

add("sort", (4,), lambda x: x.sort().values)
add("sort", (3, 2), lambda x: x.sort(1, descending=True)[0])
add("sort", (4,), lambda x: x.sort().values, apart=True)
add("sort.stable", (4,), lambda x: torch.sort(x, dim=1, stable=True).values)
add("sort.stable", (2, 3), lambda x: torch.sort(x, dim=2, stable=True, descending=True).values)
add("topk", (4,), lambda x: x.topk(2).values)
add("topk", (4,), lambda x: x.topk(3, largest=False).values)
add("topk", (4, 2), lambda x: x.topk(1, dim=1).values)
add("topk", (4,), lambda x: x.topk(4).values)
add("median.dim", (5,), lambda x: x.median(1).values)
add("median.dim", (4, 2), lambda x: x.median(1, keepdim=True).values)
add("kthvalue", (4,), lambda x: x.kthvalue(1).values)
add("kthvalue", (4, 2), lambda x: x.kthvalue(3, 1, keepdim=True).values)

# conditions that hide one of these

add("gt", (4,), lambda x: x * (x > 0))
add("gt", (4,), lambda x: torch.where(x > 0, x, 0.25 * x))
add("gt", (4,), lambda x: torch.where(2 * x - 1 > 0, x, torch.full_like(x, 0.5)))
add("ge", (4,), lambda x: torch.where(x >= 0.5, x, 0.5))
add("ge", (4,), lambda x: x * (x >= 0).to(x.dtype))
add("lt", (4,), lambda x: torch.where(x < 0, -x, x))
add("lt", (4,), lambda x: x - (x < -1) * (x + 1))
add("le", (4,), lambda x: torch.where(x <= 0.25, x, 0.25))
add("eq", (4,), lambda x: torch.where(x == 0, 0.0, x.relu()))
add("ne", (4,), lambda x: torch.where(x != 1, x.abs(), 1.0))
add("sign", (4,), lambda x: x.sign() * x)
add("sign", (4,), lambda x: 0.5 * x + 0.5 * x * torch.sign(x))
add("sign", (4,), nn.Softshrink(0.25), apart=True)  # arrives in pieces
add("sgn", (4,), lambda x: x.sgn() * x)
add("logical_not", (4,), lambda x: torch.where(torch.logical_not(x > 0), 0.5 * x, x))
add("bitwise_not", (4,), lambda x: x * ~(x > 0))
add("logical_and", (4,), lambda x: torch.where(torch.logical_and(x > -1, x < 1), x, x.clamp(-1, 1)))
add("bitwise_and", (4,), lambda x: torch.where(torch.bitwise_and(x > -1, x <= 1), x, x.clamp(-1, 1)))
add("__and__", (4,), lambda x: torch.where((x > -1) & (x <= 1), x, x.clamp(-1, 1)))
add("logical_or", (4,), lambda x: torch.where(torch.logical_or(x < -1, x > 1), x.clamp(-1, 1), x))
add("bitwise_or", (4,), lambda x: torch.where(torch.bitwise_or(x < -1, x >= 1), x.clamp(-1, 1), x))
add("__or__", (4,), lambda x: torch.where((x < -1) | (x >= 1), x.clamp(-1, 1), x))
add("where", (4,), lambda x: torch.where(x > 0, x, torch.zeros_like(x)))
add("where", (4,), lambda x: torch.where(x > 1, 1.0, torch.where(x < -1, -1.0, x)))
add("where", (4,), lambda x, c: torch.where(c > 0, x, 2 * x.flip(1)), halves(4))
add("where", (4,), lambda x, c: torch.where(c > 0, x, c), halves(4))
add("where", (2, 2), lambda x, c: torch.where(c > 0, 0.5, x[:, None]), halves(2, 1, 2))
add("where", (4,), lambda x, c: torch.where(c > 0, x * (x > 0), x), halves(4))
add("masked_fill", (4,), lambda x: x.masked_fill(x < 0, 0.0))
add("masked_fill", (4,), lambda x, c: x.masked_fill(c > 0, -1.5), halves(4))
add("masked_fill", (4,), lambda x, c: x.masked_fill(c > 0, c[0]), halves(4))
add("masked_fill", (4,), lambda x: x.clone().masked_fill_(x < 0.5, 0.5))

# smooth tails

TAILS = {
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "_softmax": lambda x: aten._softmax(x, 1, False),
    "_log_softmax": lambda x: aten._log_softmax(x, 1, False),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
for name, tail in TAILS.items():
    add(name, (3,), nn.Linear(3, 4), tail=tail)
