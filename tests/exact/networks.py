"""Networks built by hand for the tests of the rational oracle, and their evaluation in plain fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from exactline.network.graph import Network, Node
from exactline.ops.affine import Product
from exactline.ops.base import Input, Op
from exactline.ops.functions import relu
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order

LayerWeights = tuple[list[list[Fraction]], list[Fraction]]  # rows of weights, and offsets


def chain(shape: tuple[int, ...], *ops: Op) -> Network:
    """A network that applies operators in turn; nodes are named after them and numbered."""
    x = torch.zeros(1, *shape, dtype=torch.float64)
    nodes = [Node("x", Input(), (), shape)]
    for i, op in enumerate(ops):
        x = op.evaluate(x)
        nodes.append(Node(f"{op.title}_{i}", op, (i,), tuple(x.shape[1:])))
    return Network(tuple(nodes), (len(ops),), (None,))


def linear(weight: list[list[float]] | Tensor, offset: list[float] | Tensor) -> Product:
    """weight x + offset."""
    w, b = torch.as_tensor(weight, dtype=torch.float64), torch.as_tensor(offset, dtype=torch.float64)
    return Product(F.linear, w, b, "linear", F.linear)


def window(size: int, *, floor: bool = False, sign: int = 1) -> Network:
    """The maximum (or minimum) of all elements."""
    return chain((size,), Maximum(torch.arange(size)[None], (1,), sign, floor))


def ranked(size: int, ranks: list[int]) -> Network:
    """Some ranks of all elements."""
    return chain((size,), Order(torch.arange(size)[None], torch.tensor(ranks), (len(ranks),)))


def tent(depth: int) -> Network:
    """A tent map applied several times: 2^depth pieces with breaks at k / 2^depth."""
    ops: list[Op] = []
    weight, offset = [[2.0], [4.0]], [0.0, -2.0]
    for _ in range(depth):
        ops += [linear(weight, offset), relu()]
        weight, offset = [[2.0, -2.0], [4.0, -4.0]], [0.0, -2.0]
    return chain((1,), *ops, linear([[1.0, -1.0]], [0.0]))


def mlp(widths: list[int], *, integer_weights: bool = False, dtype: torch.dtype = torch.float64) -> Network:
    """A random ReLU network; integer weights between -2 and 2 make ties common."""
    ops: list[Op] = []
    for inputs, outputs in pairwise(widths):
        w, b = torch.randn(outputs, inputs, dtype=dtype), torch.randn(outputs, dtype=dtype)
        if integer_weights:
            w, b = w.round().clamp(-2, 2), b.round().clamp(-2, 2)
        ops += [linear(w.double(), b.double()), relu()]
    return chain((widths[0],), *ops[:-1])


def layer_weights(network: Network) -> list[LayerWeights]:
    """The weights of an `mlp` as fractions."""
    layers: list[LayerWeights] = []
    for op in (node.op for node in network.nodes):
        if isinstance(op, Product) and op.offset is not None:
            rows = [[Fraction(w) for w in row] for row in op.weight.tolist()]
            layers.append((rows, [Fraction(b) for b in op.offset.flatten().tolist()]))
    return layers


def activations(network: Network, start: Tensor, end: Tensor, alpha: Fraction) -> list[list[Fraction]]:
    """The input of every ReLU of an `mlp` at one point of a line, and its output, as fractions."""
    line = zip(start.tolist(), end.tolist(), strict=True)
    x = [Fraction(a) + alpha * (Fraction(b) - Fraction(a)) for a, b in line]
    inputs: list[list[Fraction]] = []
    for rows, offsets in layer_weights(network):
        z = [sum((w * v for w, v in zip(row, x, strict=True)), b) for row, b in zip(rows, offsets, strict=True)]
        inputs.append(z)
        x = [max(v, Fraction(0)) for v in z]
    return inputs


def paper_breaks(network: Network, start: Tensor, end: Tensor) -> list[Fraction]:
    """The breaks of an `mlp` by the recursion of the paper, which evaluates the network at all breaks of each layer."""
    alphas = [Fraction(0), Fraction(1)]
    for depth in range(len(layer_weights(network)) - 1):
        values = [activations(network, start, end, alpha)[depth] for alpha in alphas]
        new = {
            lo + (hi - lo) * a / (a - b)
            for (lo, hi), (left, right) in zip(pairwise(alphas), pairwise(values), strict=True)
            for a, b in zip(left, right, strict=True)
            if a < 0 < b or b < 0 < a
        }
        alphas = sorted({*alphas, *new})
    return alphas
