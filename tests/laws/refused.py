"""Operators that are refused, each in the middle of a model, and models that mix the points of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sample import Body, Function, Shape, halves

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Offender:
    """A body that holds an operator we refuse, and how the error must call it."""

    name: str
    shape: Shape
    body: nn.Module

    def __str__(self) -> str:
        return self.name

    def model(self) -> nn.Module:
        return Middle(self.body, self.shape).eval()


class Middle(nn.Module):
    """Something in the middle of a model."""

    def __init__(self, body: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.middle = body.eval()
        with torch.no_grad():
            width = body(torch.rand(2, *shape)).reshape(2, -1).shape[1]
        self.last = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(F.relu(x)).reshape(x.shape[0], -1))


OFFENDERS: list[Offender] = []


def add(name: str, shape: Shape, body: Body, *constants: Tensor) -> None:
    """One more offender."""
    OFFENDERS.append(Offender(name, shape, body if isinstance(body, nn.Module) else Function(body, constants)))


class Recurrent(nn.Module):
    """The outputs of a recurrent module, without its state."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Attention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


# smooth

for name in ("gelu", "silu", "mish", "elu", "celu", "selu", "softplus"):
    add(name, (4,), getattr(F, name))
add("log_sigmoid", (4,), F.logsigmoid)
for name in ("exp", "expm1", "log1p", "reciprocal", "erf", "sin", "cos", "tan", "atan", "sinh", "cosh"):
    add(name, (4,), getattr(torch, name))
for name in ("log", "log2", "sqrt", "rsqrt", "asin", "acos"):
    add(name, (4,), lambda x, name=name: getattr(torch, name)(x + 0.5))
add("logsumexp", (4,), lambda x: x.logsumexp(1, keepdim=True))
add("softmax", (4,), lambda x: x.softmax(1))
add("log_softmax", (4,), lambda x: x.log_softmax(1))
add("sigmoid", (4,), torch.sigmoid)
add("tanh", (4,), torch.tanh)
for name, kind in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn_tanh", nn.RNN)):
    add(name, (3, 4), Recurrent(kind(4, 2, batch_first=True)))

# products of data

for name in ("hardswish", "glu"):
    add(name, (4,), getattr(F, name))
add("square", (4,), torch.square)
add("pow", (4,), lambda x: x**2)
add("pow", (4,), lambda x: 2.0**x)
add("prod", (4,), lambda x: x.prod(1))
add("cumprod", (4,), lambda x: x.cumprod(1))
for name in ("var", "std"):
    add(name, (4,), lambda x, name=name: getattr(x, name)(1))
    both = getattr(torch, f"{name}_mean")
    add(f"{name}_mean", (4,), lambda x, both=both: torch.cat(both(x, dim=1, keepdim=True), 1))
add("bilinear", (4,), lambda x, w: F.bilinear(x, x, w), halves(2, 4, 4))
add("mul", (4,), lambda x: x * x.flip(1))
add("mul", (4,), lambda x: x * x)
add("div", (4,), lambda x: x / (x.flip(1) + 1))
add("div", (4,), lambda x: torch.div(x, 2, rounding_mode="floor"))
add("addcmul", (4,), lambda x: torch.addcmul(x, x, x.flip(1)))
add("lerp", (4,), lambda x: torch.lerp(x, x.flip(1), x))
add("matmul", (2, 2), lambda x: x @ x.transpose(1, 2))
add("bmm", (2, 2), lambda x: torch.bmm(x, x.transpose(1, 2)))
add("einsum", (2, 2), lambda x: torch.einsum("bij,bkj->bik", x, x))
add("scaled_dot_product_attention", (3, 4), lambda x: F.scaled_dot_product_attention(x, x, x))
add("scaled_dot_product_attention", (3, 4), Attention())
HEADS = (halves(12, 4), halves(12), halves(4, 4), halves(4))
add(
    "_native_multi_head_attention",
    (3, 4),
    lambda x, *w: aten._native_multi_head_attention(x, x, x, 4, 2, *w)[0],
    *HEADS,
)

# norms

add("layer_norm", (4,), nn.LayerNorm(4))
add("native_layer_norm", (4,), lambda x: aten.native_layer_norm(x, [4], None, None, 1e-5)[0])
add("group_norm", (4, 2), nn.GroupNorm(2, 4))
add("native_group_norm", (4, 2), lambda x: aten.native_group_norm(x, None, None, x.shape[0], 4, 2, 2, 1e-5)[0])
add("instance_norm", (2, 3), nn.InstanceNorm1d(2))
add("rms_norm", (4,), nn.RMSNorm(4))
add("linalg_vector_norm", (4,), lambda x: torch.linalg.vector_norm(x, dim=1))
add("linalg_vector_norm", (4,), F.normalize)
add("norm", (4,), lambda x: aten.norm.ScalarOpt_dim(x, 2, [1]))
add("cdist", (2, 3), lambda x, c: torch.cdist(x, c), halves(2, 3))
add("pairwise_distance", (4,), lambda x, c: F.pairwise_distance(x, c), halves(1, 4))
add("cosine_similarity", (4,), lambda x, c: F.cosine_similarity(x, c), halves(1, 4))
add("batch_norm", (4,), nn.BatchNorm1d(4, track_running_stats=False))
add(
    "_native_batch_norm_legit",
    (4,),
    lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)[0],
)
STATISTICS = (halves(4), halves(4), halves(4), halves(4).abs())
add(
    "_native_batch_norm_legit_functional",
    (4,),
    lambda x, *s: aten._native_batch_norm_legit_functional(x, *s, True, 0.1, 1e-5)[0],
    *STATISTICS,
)
add("native_batch_norm", (4,), lambda x: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0])

# jumps

add("hardshrink", (4,), F.hardshrink)
for name in ("round", "floor", "ceil", "trunc", "frac"):
    add(name, (4,), getattr(torch, name))
for name in ("fmod", "remainder", "floor_divide"):
    add(name, (4,), lambda x, name=name: getattr(torch, name)(x, 2))
add("heaviside", (4,), lambda x, c: torch.heaviside(x, c), halves(1))
add("sign", (4,), torch.sign)
add("where", (4,), lambda x: torch.where(x > 0, x, x + 1))
add("threshold", (4,), nn.Threshold(0.5, 0.0))
for name in ("argmax", "argmin"):
    add(name, (4,), lambda x, name=name: getattr(x, name)(1, keepdim=True).to(x.dtype))
add("argsort", (4,), lambda x: x.argsort(1).to(x.dtype))
add("bucketize", (4,), lambda x, c: torch.bucketize(x, c).to(x.dtype), torch.tensor([0.0, 1.0]))
add("searchsorted", (4,), lambda x, c: torch.searchsorted(c, x).to(x.dtype), torch.tensor([0.0, 1.0]))
add("max_unpool2d", (1, 4, 4), lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))
add("max_unpool3d", (1, 2, 2, 2), lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2))
add("embedding", (4,), lambda x, c: F.embedding(x.long(), c), halves(9, 2))
add("embedding_bag", (4,), lambda x, c: F.embedding_bag(x.long(), c, mode="sum"), halves(9, 2))
add("to", (4,), lambda x: x.half().to(x.dtype))

# chance

for name in ("rand", "randn"):
    add(name, (4,), lambda x, name=name: x + getattr(torch, name)(4))
    add(f"{name}_like", (4,), lambda x, name=name: x + getattr(torch, f"{name}_like")(x))
add("bernoulli", (4,), lambda x: torch.bernoulli(x.clamp(0, 1)))
add("normal", (4,), lambda x: torch.normal(x, 1.0))
add("multinomial", (4,), lambda x: torch.multinomial(x + 1, 2).to(x.dtype))
add("dropout", (4,), lambda x: F.dropout(x, 0.5, training=True))

# affine, one day

add("upsample_bicubic2d", (1, 3, 3), nn.Upsample(scale_factor=2, mode="bicubic"))

add(
    "grid_sampler",
    (1, 3, 3),
    lambda x, g: F.grid_sample(x, g.expand(x.shape[0], 2, 2, 2), align_corners=True),
    halves(2),
)
for n in (2, 3):
    sampler, grid = getattr(aten, f"grid_sampler_{n}d"), halves(*[2] * n, n)
    body = lambda x, g, sampler=sampler: sampler(x, g.expand(x.shape[0], *g.shape), 0, 0, True)  # noqa: E731
    add(f"grid_sampler_{n}d", (1, *[3] * n), body, grid)
add("fft_fft", (4,), lambda x: torch.fft.fft(x).real)


# models that mix the points of a batch, all for points of shape (3,)
BATCH: dict[str, Callable[[Tensor], Tensor]] = {
    "mean(0)": lambda x: x.mean(0).expand_as(x),
    "x - x.mean(0)": lambda x: x - x.mean(0),
    "x - x.mean(0, keepdim)": lambda x: x - x.mean(0, keepdim=True),
    "x - x.mean()": lambda x: x - x.mean(),
    "x + x.sum()": lambda x: x + x.sum(),
    "x.sum((0, 1))": lambda x: x + x.sum((0, 1)),
    "amax(0)": lambda x: x - x.amax(0),
    "max()": lambda x: x - x.max(),
    "flip(0)": lambda x: x.flip(0),
    "flip(0, 1)": lambda x: x.flip(0, 1),
    "roll(0)": lambda x: x.roll(1, 0),
    "roll()": lambda x: x.roll(1),
    "cumsum(0)": lambda x: x.cumsum(0),
    "cummax(0)": lambda x: x.cummax(0).values,
    "sort(0)": lambda x: x.sort(0).values,
    "msort": torch.msort,
    "topk(1, 0)": lambda x: x.topk(1, 0).values.expand_as(x),
    "softmax(0)": lambda x: x.softmax(0),
    "view(1, -1)": lambda x: x.view(1, -1),
    "view(1, -1) and back": lambda x: x.view(1, -1).flip(1).view(-1, 3),
    "transpose(0, 1)": lambda x: x.transpose(0, 1),
    "transpose and back": lambda x: x.t().roll(1, 1).t(),
    "flatten(0)": lambda x: x.flatten().flip(0).view(-1, 3),
    "x[backwards]": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
    "x[randperm]": lambda x: x[torch.randperm(x.shape[0])],
    "x[arange]": lambda x: x[torch.arange(x.shape[0])],
    "x[0]": lambda x: x + x[0],
    "x[:1]": lambda x: x + x[:1],
    "x @ x.T": lambda x: x @ x.T,
    "x @ x.T @ x": lambda x: x @ x.T @ x,
    "einsum over the batch": lambda x: torch.einsum("bi->i", x).expand_as(x),
    "einsum batches apart": lambda x: torch.einsum("bi,cj->bj", x, torch.ones_like(x)),
    "x * x.shape[0]": lambda x: x * x.shape[0],
    "x / len(x)": lambda x: x / x.shape[0],
    "x + arange(n)": lambda x: x + torch.arange(x.shape[0])[:, None],
    "x * ones(n).sum()": lambda x: x * torch.ones(x.shape[0]).sum(),
    "cat of batches": lambda x: torch.cat([x, x]),
    "repeat of the batch": lambda x: x.repeat(2, 1),
    "repeat_interleave of the batch": lambda x: x.repeat_interleave(2, 0)[::2],
    "the neighbour as a channel": lambda x: torch.stack([x.roll(1, 0), x], 1),
    "tril": lambda x: x.tril(),
    "select_scatter into a point": lambda x: x.select_scatter(torch.zeros(3), 0, 0),
    "slice_scatter into a point": lambda x: x.slice_scatter(torch.zeros(1, 3), 0, 0, 1),
    "index_copy into a point": lambda x: x.index_copy(0, torch.tensor([0]), torch.zeros(1, 3)),
    "index_put into a point": lambda x: x.index_put((torch.tensor([0]),), torch.zeros(())),
    "diagonal_scatter over points": lambda x: x.diagonal_scatter(torch.zeros(3), 0, 0, 1),
    "ones(n, n) @ x": lambda x: torch.ones(x.shape[0], x.shape[0]) @ x,
    "einsum with ones(n, n)": lambda x: torch.einsum("cb,bi->ci", x.new_ones(x.shape[0], x.shape[0]), x),
    "x * ones(n).cumsum(0)": lambda x: x * torch.ones(x.shape[0], 1).cumsum(0),
    "where(ones(n).cumsum(0) > 1)": lambda x: torch.where(torch.ones(x.shape[0], 1).cumsum(0) > 1, x.flip(1), x),
    "batch norm of the batch": lambda x: F.batch_norm(x, None, None, training=True),
    "conv over the batch": lambda x: F.conv1d(x[None], torch.ones(1, 1, 1).expand(1, x.shape[0], 1))[0].expand_as(x),
    "unbatched pool": lambda x: F.max_pool2d(x[None], 2, 1, padding=1)[0, :-1, :-1],
    "pad the batch": lambda x: F.pad(x, (0, 0, 1, 0))[:-1],
    "gather over the batch": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "index_select over the batch": lambda x: x.index_select(0, torch.arange(x.shape[0])),
}
