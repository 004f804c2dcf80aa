"""Samples of operators that move elements, name them anew or make constants of their shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sample import add, halves, whole

aten = torch.ops.aten


def written(write: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function that changes a copy of its input in place."""

    def call(x: Tensor, *constants: Tensor) -> Tensor:
        y = x.clone()
        write(y, x, *constants)
        return y

    return call


# shapes

add("view", (2, 3), lambda x: x.view(-1, 6))
add("view", (2, 3), lambda x: x.view(x.shape[0], 3, 2))
add("reshape", (2, 3), lambda x: x.transpose(1, 2).reshape(-1, 6))
add("_unsafe_view", (2, 3), lambda x: aten._unsafe_view(x, [x.shape[0], 6]))
add("flatten", (2, 3), lambda x: x.flatten(1))
add("flatten", (2, 3), nn.Flatten())
add("unflatten", (6,), lambda x: x.unflatten(1, (2, 3)))
add("squeeze", (1, 3, 1), lambda x: x.squeeze(1))
add("squeeze", (1, 3, 1), lambda x: x.squeeze((1, 3)))
add("unsqueeze", (3,), lambda x: x.unsqueeze(-1))
add("unsqueeze", (), lambda x: x.unsqueeze(1))
add("view_as", (2, 3), lambda x: x.view_as(x.flip(2).transpose(1, 2)))
add("reshape_as", (2, 3), lambda x: x.transpose(1, 2).reshape_as(x))

# moves

add("permute", (2, 3), lambda x: x.permute(0, 2, 1))
add("transpose", (2, 3), lambda x: x.transpose(1, -1))
add("t", (3,), lambda x: x.sum(1).t())
add("movedim", (2, 3), lambda x: x.movedim(2, 1))
add("moveaxis", (2, 3), lambda x: x.moveaxis(1, 2))
add("swapaxes", (2, 3), lambda x: x.swapaxes(1, 2))
add("expand", (3,), lambda x: x[:, None].expand(-1, 2, 3))
add("expand_as", (1, 3), lambda x: x.expand_as(x.repeat(1, 2, 1)))
add("broadcast_tensors", (3,), lambda x, c: sum(torch.broadcast_tensors(x[:, None], c)), halves(2, 1))
add("broadcast_tensors", (2, 3), lambda x: torch.cat(torch.broadcast_tensors(x[:, :1], x), 1))
add("repeat", (3,), lambda x: x.repeat(1, 2))
add("tile", (3,), lambda x: x.tile(2))
add("slice", (4,), lambda x: x[:, 1:4:2])
add("select", (2, 3), lambda x: x[:, 1])
add("narrow", (4,), lambda x: x.narrow(1, 1, 2))
add("index", (4,), lambda x, i: x[:, i], whole(3, 1, 1))
add("index", (3, 3), lambda x, i, j: x[:, i, j], whole(2, 0), whole(1, 1))
add("index_select", (4,), lambda x, i: x.index_select(1, i), whole(3, 0, 3))
add("gather", (4,), lambda x, i: x.gather(1, i.expand(x.shape[0], -1)), whole([3, 0]))
add("diagonal", (3, 3), lambda x: x.diagonal(1, 1, 2))
add("unfold", (5,), lambda x: x.unfold(1, 3, 2))
add("cat", (3,), lambda x: torch.cat([x, 2 * x, x], 1))
add("cat", (3,), lambda x, c: torch.cat([c.expand(x.shape[0], -1), x], 1), halves(1, 2))
add("concat", (3,), lambda x: torch.concat([x, 2 * x], -1))
add("stack", (3,), lambda x: torch.stack([x, 2 * x], 1))
add("hstack", (3,), lambda x: torch.hstack([x, 2 * x]))
add("flip", (2, 3), lambda x: x.flip(1, 2))
add("roll", (2, 3), lambda x: x.roll((1, -1), (1, 2)))
add("rot90", (2, 3), lambda x: x.rot90(1, (1, 2)))
add("repeat_interleave", (3,), lambda x: x.repeat_interleave(2, 1))
add("repeat_interleave", (3,), lambda x, i: x.repeat_interleave(i, 1, output_size=4), whole(2, 1, 1))
add("split", (5,), lambda x: torch.cat(x.split(2, 1)[::-1], 1))
add("split_with_sizes", (5,), lambda x: torch.cat(torch.split_with_sizes(x, [2, 3], 1)[::-1], 1))
add("unbind", (2, 3), lambda x: x.unbind(1)[1] - x.unbind(1)[0])
add("unsafe_split", (5,), lambda x: torch.cat(torch.unsafe_split(x, 2, 1)[::-1], 1))
add("chunk", (5,), lambda x: torch.cat(x.chunk(3, 1)[::-1], 1))
add("unsafe_chunk", (5,), lambda x: torch.cat(x.unsafe_chunk(2, -1)[::-1], 1))
add("tril", (3, 3), torch.tril)
add("triu", (3, 3), lambda x: x.triu(1))
add("diag_embed", (3,), lambda x: x.diag_embed())
add("im2col", (1, 3, 4), nn.Unfold((2, 2), padding=1, stride=2))
add("pixel_shuffle", (4, 2, 1), nn.PixelShuffle(2))
add("pixel_unshuffle", (1, 2, 4), nn.PixelUnshuffle(2))
add("channel_shuffle", (4, 1, 2), nn.ChannelShuffle(2))

# padding and repeating

add("pad", (2, 3), lambda x: F.pad(x, (1, 2)))
add("pad", (2, 3), lambda x: F.pad(x, (1, -1, 0, 1), value=1.5))
add("pad", (2, 3), lambda x: F.pad(x, (1, 2), mode="reflect"))
add("pad", (1, 2, 3), lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"))
add("pad", (1, 2, 3), lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"))
add("constant_pad_nd", (2, 3), lambda x: torch.constant_pad_nd(x, [1, 2], 0.5))
add("_pad_circular", (2, 3), lambda x: aten._pad_circular(x, [1, 2]))
for n, size in ((1, (3,)), (2, (3, 2)), (3, (2, 2, 3))):
    for mode in ("reflection", "replication"):
        function = getattr(aten, f"{mode}_pad{n}d")
        add(f"{mode}_pad{n}d", (1, *size), lambda x, function=function, n=n: function(x, [1] * (2 * n)))
    add(f"upsample_nearest{n}d", (1, *size), nn.Upsample(scale_factor=2, mode="nearest"))
    add(f"upsample_nearest{n}d", (1, *size), nn.Upsample(size=[s + 2 for s in size], mode="nearest"))
    add(f"_upsample_nearest_exact{n}d", (1, *size), nn.Upsample(size=[s + 1 for s in size], mode="nearest-exact"))
    add(f"_upsample_nearest_exact{n}d", (1, *size), nn.Upsample(scale_factor=1.5, mode="nearest-exact"))

# writing into a copy

add("select_scatter", (2, 3), lambda x: torch.select_scatter(x, 2 * x[:, 1], 1, 0))
add("select_scatter", (4,), written(lambda y, x: y[:, 0].mul_(2)))
add("slice_scatter", (4,), lambda x: torch.slice_scatter(x, x[:, :2].flip(1), 1, 2))
add("slice_scatter", (4,), written(lambda y, x: y[:, 1:3].add_(1)))
add("slice_scatter", (4,), written(lambda y, x, c: y.__setitem__((slice(None), slice(0, 2)), c)), halves(2))
add("diagonal_scatter", (3, 3), lambda x: torch.diagonal_scatter(x, x[:, 0], 0, 1, 2))
add("index_put", (4,), written(lambda y, x, i: y.__setitem__((slice(None), i), 1.5)), whole(2, 0))
add("index_put", (4,), written(lambda y, x, i: y.__setitem__((slice(None), i), x[:, :2])), whole(2, 0))
add("index_put", (4,), lambda x, i: aten.index_put(x, [None, i], x[:, :2] + 1), whole(3, 0))
add("index_copy", (4,), lambda x, i: x.index_copy(1, i, x[:, :2]), whole(3, 1))
add("fill", (4,), written(lambda y, x: y.__setitem__((slice(None), 0), 0)))
add("fill", (4,), written(lambda y, x: y[:, 1:3].fill_(1.5)))
add("copy", (4,), written(lambda y, x: y.__setitem__((slice(None), 0), x[:, 1])))
add("copy", (4,), written(lambda y, x: y[:, :2].copy_(x[:, 2:])))

# masks

add("index", (4,), lambda x, mask: x[:, mask], torch.tensor([True, False, True, True]))
add("index", (2, 3), lambda x, mask: 2 * x[:, mask] - 1, torch.tensor([[True, False, True], [False, True, True]]))
add("index_put", (4,), written(lambda y, x: y.__setitem__(y < 0.5, 0.5)))
add("index_put", (4,), written(lambda y, x: y.__setitem__(x > 1, 1)))

# memory that is written before it is read

add("empty_like", (4,), lambda x: torch.empty_like(x).copy_(2 * x))


def _fill_new(x: Tensor) -> Tensor:
    y = x.new_empty(x.shape[0], 6)
    y[:, :4], y[:, 4:] = x, 1.5
    return y


add("new_empty", (4,), _fill_new)

# the same numbers again

add("clone", (4,), torch.clone)
add("detach", (4,), lambda x: x.detach() + x, autograd=False)
add("alias", (4,), lambda x: aten.alias(x))
add("contiguous", (2, 3), lambda x: x.transpose(1, 2).contiguous())
add("lift", (4,), lambda x: aten.lift(x))
add("lift_fresh_copy", (4,), lambda x: aten.lift_fresh_copy(x))
add("positive", (4,), lambda x: +x)
add("nan_to_num", (4,), torch.nan_to_num)
add("dropout", (4,), nn.Dropout())
add("feature_dropout", (2, 3), nn.Dropout1d())
add("feature_dropout", (2, 2, 2), nn.Dropout2d())
add("alpha_dropout", (4,), nn.AlphaDropout())
add("feature_alpha_dropout", (2, 3), nn.FeatureAlphaDropout())
add("_to_copy", (4,), lambda x: x.to(torch.float64), apart=True)
add("to.dtype", (4,), lambda x: x.to(torch.float64))
add("to.dtype", (4,), lambda x: x.double() + x)
add("to.device", (4,), lambda x: aten.to.device(x, "cpu", torch.float64))
add("to.dtype_layout", (4,), lambda x: x.to("cpu"))
add("to.other", (4,), lambda x, c: aten.to.other(x, c), halves(4).double())
add("type_as", (4,), lambda x, c: x.type_as(c), halves(4).double())

# constants of the data's shape

add("zeros_like", (4,), lambda x: torch.cat([x, torch.zeros_like(x)], 1))
add("zeros_like", (4,), lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)))
add("zeros_like", (4,), lambda x: torch.where(torch.zeros_like(x, dtype=torch.bool), 1.0, x))
add("ones_like", (4,), lambda x: x - torch.ones_like(x))
add("full_like", (4,), lambda x: torch.full_like(x, 1.5) - x)
add("new_zeros", (4,), lambda x: torch.cat([x, x.new_zeros(x.shape[0], 1)], 1))
add("new_ones", (4,), lambda x: x + x.new_ones(4))
add("new_full", (4,), lambda x: x * x.new_full((x.shape[0], 1), -1.5))
