"""Values and their errors at some points, node by node from the input.

Worst-case bounds explode with depth while the true error stays near rounding. So a few probes, each a set of random
roundings, go through the network along the branches taken: errors that cancel cancel, errors that add up add up.
"""

from __future__ import annotations

import weakref
from copy import copy

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input
from ..ops.masks import is_on_host
from .plan import sweep_plan

PROBE_COUNT = 8
MAX_CACHED_SIGNS = 1 << 20  # signs of a node that are kept in a processor's memory; a GPU keeps them all
SMALLEST_SUBNORMAL = 5e-324
_cached_signs: weakref.WeakKeyDictionary[Network, dict[tuple[int, int, torch.device], Tensor]] = (
    weakref.WeakKeyDictionary()
)


class RoundoffProbes:
    """What every live tensor is at some points, and what each probe adds to it; it can be taken up again."""

    def __init__(
        self,
        network: Network,
        points: list[Tensor],  # each (k, *in)
        errors: list[Tensor],  # each (k, *in), of the points themselves
        count: int = PROBE_COUNT,  # with 0 of them errors are not asked for
    ) -> None:
        self.network, self.count = network, count
        self.node = max(network.inputs)  # the last node that was evaluated
        self.values = dict(zip(network.inputs, points, strict=True))  # (k, *shape) each
        self.probes = {
            i: probe_signs(network, i, count, e) * e for i, e in zip(network.inputs, errors, strict=True)
        }  # (count, k, ...)

    def advance_to(self, place: int) -> Tensor:
        """Go on to a node; the size of its errors, (k, *shape)."""
        last = sweep_plan(self.network).last_use
        while self.node < place:
            self.node += 1
            node = self.network.nodes[self.node]
            if self.node in last and not isinstance(node.op, Input):
                self._evaluate(self.node)
            for j in set(node.inputs):
                if last.get(j) == self.node:
                    del self.values[j], self.probes[j]
        return self.probes[place].abs().amax(0) if self.count else torch.zeros_like(self.values[place])

    def select(self, rows: Tensor) -> RoundoffProbes:
        """The same walk for some of its points."""
        values = {j: v.index_select(0, rows) for j, v in self.values.items()}
        return self._replace(values, {j: v.index_select(1, rows) for j, v in self.probes.items()})

    def drop_first(self, count: int) -> RoundoffProbes:
        """The same walk without the first points."""
        values = {j: v[count:] for j, v in self.values.items()}
        return self._replace(values, {j: v[:, count:] for j, v in self.probes.items()})

    def insert(self, left: Tensor, at: Tensor, other: RoundoffProbes) -> RoundoffProbes:
        """These points where ``left`` says, then those of another walk put in at some places."""
        other.advance_to(self.node)
        values = {j: v.index_select(0, left).index_copy_(0, at, other.values[j]) for j, v in self.values.items()}
        probes = {j: v.index_select(1, left).index_copy_(1, at, other.probes[j]) for j, v in self.probes.items()}
        return self._replace(values, probes)

    def _replace(self, values: dict[int, Tensor], probes: dict[int, Tensor]) -> RoundoffProbes:
        made = copy(self)
        made.values, made.probes = values, probes
        return made

    def _evaluate(self, i: int) -> None:
        node = self.network.nodes[i]
        op, xs = node.op, [self.values[j] for j in node.inputs]
        unit = torch.finfo(xs[0].dtype).eps
        value = op.evaluate(*xs)
        if isinstance(op, Affine) and is_on_host(value) and not bool(torch.isfinite(value.sum())):
            value = op.evaluate_scaled(*xs)
        self.values[i] = value
        if not self.count:
            self.probes[i] = value[None, :0]
            return
        local = value.abs() * (unit if op.rounding_terms else 0.0)
        carried = [self.probes[j] for j in node.inputs]
        if isinstance(op, Affine):
            out = op.linear(*(p.flatten(0, 1) for p in carried))
            probes = out.view(*carried[0].shape[:2], *out.shape[1:])
            if op.rounding_terms:
                rounding = unit * (1 + op.rounding_terms**0.5 / 4)
                local = torch.hypot(local, op.error_spread(*(x.abs() * rounding for x in xs))) + SMALLEST_SUBNORMAL
        elif isinstance(op, Breaking):
            probes = op.jvp(xs[0], carried[0])
        else:
            raise TypeError(f"{node.name} is neither affine nor breaking")
        self.probes[i] = probes + probe_signs(self.network, i, self.count, local) * local


def probe_signs(network: Network, i: int, count: int, like: Tensor) -> Tensor:
    """Random signs (probes, 1, *shape) for a node, the same for every point so that neighbours do not matter."""
    shape, device = (count, 1, *like.shape[1:]), like.device
    known, key = _cached_signs.setdefault(network, {}), (i, count, device)
    if key in known:
        return known[key]
    if device.type == "cpu":
        generator = torch.Generator().manual_seed(i)
        made = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8, device="cpu").mul_(2).sub_(1)
    else:
        made = _hashed_signs(i, shape, device)
    if device.type != "cpu" or made.numel() <= MAX_CACHED_SIGNS:
        known[key] = made
    return made


def _hashed_signs(seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The same where drawing numbers one after another would take longer than all else: bits of a mixed-up counter."""
    bits = torch.arange(torch.Size(shape).numel(), device=device).mul_(0x5851F42D4C957F2D).add_(seed * 0x14057B7EF767)
    for shift, factor in ((31, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35)):
        bits = bits.bitwise_xor_(bits >> shift).mul_(factor)
    return (bits < 0).view(shape).to(torch.int8).mul_(2).sub_(1)
