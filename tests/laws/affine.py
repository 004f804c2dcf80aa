"""Samples of affine operators: products with constants, sums, averages."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sample import add, halves

aten = torch.ops.aten

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SIZES = {1: (4,), 2: (2, 3), 3: (2, 2, 3)}

# products

add("linear", (4,), nn.Linear(4, 3))
add("linear", (4,), nn.Linear(4, 3, bias=False))
add("linear", (2, 3), nn.Linear(3, 2))
add("linear", (2, 2, 3), nn.Linear(3, 2))
add("linear", (4,), F.linear, halves(4))
add("linear", (2, 3), F.linear, halves(3))
add("linear", (4,), nn.Linear(4, 3), apart=True)

for n, size in SIZES.items():
    key, conv = f"conv{n}d", CONVS[n]
    add(key, (2, *size), conv(2, 2, 2))
    add(key, (1, *size), conv(1, 2, 2, stride=2, padding=1, bias=False))
    add(key, (2, *size), conv(2, 4, 2, groups=2, dilation=(2, *[1] * (n - 1)), padding=(1, *[0] * (n - 1))))
    add(key, (1, *size), conv(1, 2, 2, padding="same"))
    add(key, (1, *size), conv(1, 2, 2, padding="valid"))
    for mode in ("reflect", "replicate", "circular"):
        add(key, (1, *size), conv(1, 1, 2, padding=1, padding_mode=mode))
    add(key, (1, *size), conv(1, 1, 3, padding="same", padding_mode="circular"))

    key, conv = f"conv_transpose{n}d", TRANSPOSED[n]
    add(key, (1, *size), conv(1, 2, 2))
    add(key, (1, *size), conv(1, 2, 2, stride=2, padding=1, output_padding=1, bias=False))
    add(key, (2, *[2] * n), conv(2, 2, 2, groups=2, dilation=(2, *[1] * (n - 1)), stride=(*[1] * (n - 1), 2)))

    add("batch_norm", (2, *size), NORMS[n](2))
    key, pool = f"avg_pool{n}d", getattr(nn, f"AvgPool{n}d")
    add(key, (1, *size), pool(2))
    add(key, (1, *size), pool(2, 1, padding=1))
    add(key, (1, *size), pool(2, ceil_mode=True, count_include_pad=False))
    wider = tuple(s + 1 for s in size)
    add(key, (1, *wider), pool(3, 2, padding=1, ceil_mode=True, count_include_pad=False), dyadic=False)
    key, pool = f"adaptive_avg_pool{n}d", getattr(nn, f"AdaptiveAvgPool{n}d")
    add(key, (1, *size), pool(1), dyadic=False)
    add(key, (1, *wider), pool(2), dyadic=False)


class Recurrent(nn.Module):
    """The outputs of a recurrent layer of ReLUs, without its state."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.inner = nn.RNN(2, 2, nonlinearity="relu", batch_first=True, **settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


add("rnn_relu", (3, 2), Recurrent())
add("rnn_relu", (2, 2), Recurrent(num_layers=2, bias=False))
add("rnn_relu", (2, 2), Recurrent(bidirectional=True, dropout=0.5, num_layers=2))
add("conv2d", (1, 3, 3), lambda x, w: F.conv2d(x, w, stride=(2, 1)), halves(2, 1, 2, 2))
add("conv2d", (1, 3, 3), nn.Conv2d(1, 2, 2), apart=True)
add("avg_pool2d", (1, 4, 4), lambda x: F.avg_pool2d(x, (2, 3), (1, 2), divisor_override=4))
add("avg_pool2d", (1, 4, 4), nn.AvgPool2d((1, 4)))
add("_adaptive_avg_pool2d", (1, 5, 4), lambda x: aten._adaptive_avg_pool2d(x, [3, 2]), dyadic=False)
add("_adaptive_avg_pool3d", (1, 3, 2, 2), lambda x: aten._adaptive_avg_pool3d(x, [2, 2, 1]), dyadic=False)

add("batch_norm", (4,), nn.BatchNorm1d(4))
add("batch_norm", (4,), nn.BatchNorm1d(4, affine=False))


def _normed(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return aten._native_batch_norm_legit_no_training(x, w, b, mean, var, 0.1, 0.25)[0]


STATISTICS = (halves(2, seed=1), torch.tensor([0.75, 3.75]), halves(2, seed=2), halves(2, seed=3))
add("_native_batch_norm_legit_no_training", (2, 3), _normed, *STATISTICS)


def _each(x: Tensor, w: Tensor) -> Tensor:
    """A constant matrix for every point."""
    return w.expand(x.shape[0], -1, -1)


add("matmul", (2, 3), torch.matmul, halves(3, 2))
add("matmul", (2, 3), torch.matmul, halves(3))
add("matmul", (2, 3), lambda x, w: w @ x, halves(2, 2))
add("matmul", (2, 3), lambda x, w: w @ x, halves(2))
add("matmul", (3,), torch.matmul, halves(3, 2))
add("matmul", (2, 2, 3), torch.matmul, halves(2, 3, 2))
add("matmul", (2, 3), lambda x, w: w @ x[:, None], halves(2, 2, 2))
add("bmm", (2, 3), lambda x, w: torch.bmm(x, _each(x, w)), halves(3, 2))
add("bmm", (2, 3), lambda x, w: torch.bmm(_each(x, w), x), halves(3, 2))
add("mm", (3,), torch.mm, halves(3, 2))
add("mv", (3,), torch.mv, halves(3))
add("addmm", (3,), lambda x, b, w: torch.addmm(b, x, w), halves(2), halves(3, 2))
add("addmm", (3,), lambda x, b, w: torch.addmm(b, x, w, beta=0.5, alpha=-1.5), halves(2), halves(3, 2))
add("addmm", (3,), lambda x, w: torch.addmm(x[:, :2], x, w, beta=-0.5, alpha=2), halves(3, 2))
add("baddbmm", (2, 2), lambda x, b, w: torch.baddbmm(b, x, _each(x, w)), halves(1, 2, 2), halves(2, 2))
add("baddbmm", (2, 2), lambda x, w: torch.baddbmm(x, x, _each(x, w), beta=2, alpha=-1), halves(2, 2))
add("addmv", (3,), lambda x, b, w: torch.addmv(b, x, w), halves(1), halves(3))
add("addmv", (3,), lambda x, w: torch.addmv(x[:, 0], x, w, beta=0.5, alpha=2), halves(3))
add("einsum", (3,), lambda x, w: torch.einsum("bi,ij->bj", x, w), halves(3, 2))
add("einsum", (2, 3), lambda x, w: torch.einsum("oc,bcl->bol", w, x), halves(2, 2))
add("einsum", (2, 3), lambda x, w: torch.einsum("bcl,ocl->bo", x, w), halves(2, 2, 3))
add("einsum", (2, 3), lambda x: torch.einsum("bcl->bc", x))
add("einsum", (2, 3), lambda x: torch.einsum("bcl->blc", x))
add("einsum", (2, 3), lambda x, w: torch.einsum("...l,lk", x, w), halves(3, 2))
add("einsum", (), lambda x, w: torch.einsum("b,j->bj", x, w), halves(3))
add("einsum", (3, 3), lambda x: torch.einsum("bii->b", x))
add("tensordot", (2, 3), lambda x, w: torch.tensordot(x, w, dims=([2], [0])), halves(3, 2))
add("tensordot", (2, 3), lambda x, w: torch.tensordot(x, w, dims=([1, 2], [1, 0])), halves(3, 2, 2))

# sums

add("add.Tensor", (4,), lambda x, c: x + c, halves(4))
add("add.Tensor", (2, 2), lambda x, c: x + c, halves(2, 1))
add("add.Tensor", (4,), lambda x, c: x[:, None] + c, halves(3, 1))
add("add.Tensor", (4,), lambda x: x + x.flip(1))
add("add.Tensor", (2, 2), lambda x: x + x[:, :1])
add("add.Tensor", (4,), lambda x: torch.add(x, x.flip(1), alpha=-0.5))
add("add.Tensor", (4,), lambda x, c: torch.add(c, x, alpha=2), halves(4))
add("add.Tensor", (4,), lambda x: x + 1.5)
add("add.Scalar", (4,), lambda x: aten.add.Scalar(x, 1.5))
add("add.Scalar", (4,), lambda x: aten.add.Scalar(x, 1.5, 2))
add("sub.Tensor", (4,), lambda x, c: c - x, halves(4))
add("sub.Tensor", (4,), lambda x: torch.sub(x, x.roll(1, 1), alpha=2))
add("sub.Scalar", (4,), lambda x: aten.sub.Scalar(x, 1.5))
add("rsub.Scalar", (4,), lambda x: 1 - x)
add("rsub.Scalar", (4,), lambda x: torch.rsub(x, 1.5, alpha=2))
add("rsub.Tensor", (4,), lambda x, c: torch.rsub(x, c), halves(4))
add("rsub.Tensor", (4,), lambda x: torch.rsub(x, x.flip(1), alpha=0.5))
add("mul.Tensor", (4,), lambda x, c: x * c, halves(4))
add("mul.Tensor", (3,), lambda x, c: c * x[:, None], halves(2, 1))
add("mul.Tensor", (4,), lambda x: -1.5 * x)
add("mul.Scalar", (4,), lambda x: aten.mul.Scalar(x, -1.5))
add("div.Tensor", (4,), lambda x, c: x / c, halves(4).sign() * 2)
add("div.Tensor", (4,), lambda x: x / 3, dyadic=False)
add("div.Scalar", (4,), lambda x: aten.div.Scalar(x, 4))
add("neg", (4,), lambda x: -x)
add("neg", (4,), lambda x: -(x * (x > 0)))
add("addcmul", (4,), lambda x, c: torch.addcmul(x, x.flip(1), c, value=-0.5), halves(4))
add("addcmul", (4,), lambda x, c: torch.addcmul(c, c, x), halves(4))
add("addcdiv", (4,), lambda x, c: torch.addcdiv(x, x.flip(1), c, value=-0.5), halves(4).sign() * 2)
add("addcdiv", (4,), lambda x, c: torch.addcdiv(c, x, c), halves(4).sign() * 2)
add("lerp.Scalar", (4,), lambda x: torch.lerp(x, x.flip(1), 0.25))
add("lerp.Tensor", (4,), lambda x, c: torch.lerp(x, x.flip(1), c), halves(4))
add("diff", (4,), torch.diff)
add("diff", (3, 2), lambda x: torch.diff(x, dim=1))

# averages

add("mean.dim", (4, 2), lambda x: x.mean(1))
add("mean.dim", (2, 3, 2), lambda x: x.mean((1, -1), keepdim=True))
add("mean.dim", (2, 3), lambda x: x.mean(-1), dyadic=False)
add("sum.dim_IntList", (2, 3), lambda x: x.sum(1))
add("sum.dim_IntList", (2, 3), lambda x: x.sum((-1, 1), keepdim=True))
add("nansum", (2, 3), lambda x: torch.nansum(x, 2))
add("cumsum", (2, 3), lambda x: x.cumsum(-1))
add("cumsum", (3, 2), lambda x: x.cumsum(1))
add("col2im", (4, 2), nn.Fold((2, 3), (2, 2)))
add("col2im", (4, 2), nn.Fold((2, 3), (2, 2), stride=(2, 1), padding=(1, 0), dilation=(2, 1)))
for key, size in (("upsample_linear1d", (4,)), ("upsample_bilinear2d", (2, 3)), ("upsample_trilinear3d", (2, 2, 2))):
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    add(key, (1, *size), nn.Upsample(scale_factor=2, mode=mode))
    add(key, (1, *size), nn.Upsample(size=[s + 1 for s in size], mode=mode), dyadic=False)
    add(key, (1, *size), nn.Upsample(size=[s + 2 for s in size], mode=mode, align_corners=True), dyadic=False)
    add(key, (1, *size), nn.Upsample(scale_factor=1.5, mode=mode), dyadic=False)
