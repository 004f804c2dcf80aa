"""A sample, captured once for all laws: its networks, its lines, and torch's own answers."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from types import TracebackType
from unittest import mock

import torch
from torch import Tensor

import exactline as xl
from exactline.network.aten import RULES
from exactline.network.capture import capture_module
from exactline.network.simplify import simplify_network

from .rounding import error_bound
from .sample import Model, Sample

LINES = 2  # random lines for each sample
TIED = 4  # lines between points with small whole coordinates
INSIDE = (0.25, 0.5, 0.75)  # parts of a piece


@dataclass(frozen=True, eq=False)
class Answer:
    """One line, and what the sweep says about it."""

    start: Tensor  # (*in)
    end: Tensor  # (*in)
    line: xl.Restriction
    bound: Tensor  # (*out): the largest error of a value anywhere on the line

    def points(self, alphas: Tensor) -> Tensor:  # (n,) -> (n, *in)
        """Places on the line."""
        return torch.lerp(self.start, self.end, alphas.view(-1, *[1] * self.start.dim()))


@dataclass(frozen=True, eq=False)
class Study:
    """What the laws look at."""

    sample: Sample
    double: Model  # torch's own model in float64
    network: xl.Network
    plain: xl.Network  # the same with ReLU and maximum kept apart
    calls: tuple[str, ...]  # how often capture obeyed the operator's rule, and for which overloads

    @property
    def networks(self) -> dict[str, xl.Network]:
        """Both networks, or one if rewriting changes nothing."""
        found = {"rewritten": self.network, "plain": self.plain}
        same = [n.op.title for n in self.network.nodes] == [n.op.title for n in self.plain.nodes]
        return {"rewritten": self.network} if same else found

    def forward(self, x: Tensor) -> Tensor:
        """Torch's own values (n, *out), before a smooth tail."""
        with torch.no_grad():
            return self.double.before_tail(x)

    def gradient(self, x: Tensor) -> Tensor:  # (n, *in) -> (n, *out, *in)
        """Torch's own Jacobian at every point."""
        x = x.clone().requires_grad_()
        out = self.double.before_tail(x)
        columns = out.reshape(len(x), -1).sum(0)  # points do not mix, so each gets its own gradient
        rows = [torch.autograd.grad(c, x, retain_graph=True, materialize_grads=True)[0] for c in columns]
        return torch.stack(rows, 1).view(len(x), *out.shape[1:], *x.shape[1:])

    @cached_property
    def lines(self) -> list[Answer]:
        """Random lines through the network."""
        generator = self._generator()
        return [self.answer(self._drawn(generator), self._drawn(generator)) for _ in range(LINES)]

    def answer(self, start: Tensor, end: Tensor) -> Answer:
        """The network on one line."""
        bound = error_bound(self.network, [(start, end)])[0]
        return Answer(start, end, xl.restrict(self.network, start, end), bound)

    def tied_lines(self) -> list[tuple[Tensor, Tensor]]:
        """End points with small whole coordinates."""
        generator = self._generator()
        shape = (TIED, 2, *self.sample.shape)
        ends = torch.randint(-2, 3, shape, generator=generator).to(torch.float64)
        return [(q, r) for q, r in ends]

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(str(self.sample).encode()))

    def _drawn(self, generator: torch.Generator) -> Tensor:
        return 2 * torch.randn(self.sample.shape, generator=generator, dtype=torch.float64)


def study(sample: Sample) -> Study:
    """A sample's study, made once; a capture that fails fails every law, but is tried only once."""
    found, trace = _studied(sample)
    if isinstance(found, Exception):
        raise found.with_traceback(trace)
    return found


@cache
def _studied(sample: Sample) -> tuple[Study | Exception, TracebackType | None]:
    rule, calls, model = RULES[sample.key], [], sample.model()

    def counted(b, a):
        calls.append(b.target)
        return rule(b, a)

    with mock.patch.dict(RULES, {sample.key: counted}):
        try:
            network = capture_module(model, [torch.zeros(sample.shape)])
        except Exception as problem:  # noqa: BLE001 whatever it is, it is raised again
            return problem, problem.__traceback__
    double = copy.deepcopy(model).double()
    return Study(
        sample, double, simplify_network(network), simplify_network(network, rewrite=False), tuple(calls)
    ), None


def inner(alphas: Tensor) -> Tensor:  # (n,) -> (n - 1, 3)
    """Alphas inside every piece."""
    parts = [[a + w * (b - a) for w in INSIDE] for a, b in pairwise(alphas.tolist())]
    return torch.tensor(parts, dtype=torch.float64)
