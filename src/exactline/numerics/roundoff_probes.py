"""Error estimates by random roundings that are propagated through the network along with the values.

Worst-case bounds explode with depth while the true error stays near the unit roundoff. A few probes, each one random
rounding per operation, follow the branches taken: errors that cancel do cancel, and errors that add up do add up.
"""

from __future__ import annotations

import weakref
from copy import copy

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input
from ..ops.masks import is_on_host
from ..tolerances import PROBE_COUNT, SMALLEST_SUBNORMAL
from .plan import sweep_plan

MAX_CACHED_SIGNS = 1 << 20  # signs per node that are cached on a CPU; a GPU caches all of them
_cached_signs: weakref.WeakKeyDictionary[Network, dict[tuple[int, int, torch.device], Tensor]] = (
    weakref.WeakKeyDictionary()
)


class RoundoffProbes:
    """Values and probes of every live tensor at some points; evaluation can be resumed node by node."""

    def __init__(
        self,
        network: Network,
        points: list[Tensor],  # (k, *in) each
        errors: list[Tensor],  # (k, *in) each, the rounding errors of the points themselves
        count: int = PROBE_COUNT,  # 0: values only
    ) -> None:
        self.network, self.count = network, count
        self.node = max(network.inputs)  # the last node that was evaluated
        self.values = dict(zip(network.inputs, points, strict=True))  # (k, *shape) each
        self.probes = {
            i: probe_signs(network, i, count, e) * e for i, e in zip(network.inputs, errors, strict=True)
        }  # (count, k, *shape) each

    def advance_to(self, target: int) -> Tensor:
        """Evaluate up to node ``target`` and return the size of its errors, (k, *shape)."""
        last_use = sweep_plan(self.network).last_use
        while self.node < target:
            self.node += 1
            node = self.network.nodes[self.node]
            if self.node in last_use and not isinstance(node.op, Input):
                self._evaluate(self.node)
            for j in set(node.inputs):
                if last_use.get(j) == self.node:
                    del self.values[j], self.probes[j]
        return self.probes[target].abs().amax(0) if self.count else torch.zeros_like(self.values[target])

    def select(self, rows: Tensor) -> RoundoffProbes:
        """The probes at some of the points."""
        values = {j: v.index_select(0, rows) for j, v in self.values.items()}
        return self._replace(values, {j: v.index_select(1, rows) for j, v in self.probes.items()})

    def drop_first(self, count: int) -> RoundoffProbes:
        """The probes without the first ``count`` points."""
        values = {j: v[count:] for j, v in self.values.items()}
        return self._replace(values, {j: v[:, count:] for j, v in self.probes.items()})

    def insert(self, source_index: Tensor, new_index: Tensor, other: RoundoffProbes) -> RoundoffProbes:
        """Take the rows ``source_index``, then overwrite the rows ``new_index`` with those of ``other``."""
        other.advance_to(self.node)
        values = {
            j: v.index_select(0, source_index).index_copy_(0, new_index, other.values[j])
            for j, v in self.values.items()
        }
        probes = {
            j: v.index_select(1, source_index).index_copy_(1, new_index, other.probes[j])
            for j, v in self.probes.items()
        }
        return self._replace(values, probes)

    def _replace(self, values: dict[int, Tensor], probes: dict[int, Tensor]) -> RoundoffProbes:
        replaced = copy(self)
        replaced.values, replaced.probes = values, probes
        return replaced

    def _evaluate(self, i: int) -> None:
        """Evaluate node ``i``: its values, the propagated probes, and its own rounding added to them."""
        node = self.network.nodes[i]
        op, xs = node.op, [self.values[j] for j in node.inputs]
        eps = torch.finfo(xs[0].dtype).eps
        value = op.evaluate(*xs)
        if isinstance(op, Affine) and is_on_host(value) and not bool(torch.isfinite(value.sum())):
            value = op.evaluate_scaled(*xs)
        self.values[i] = value
        if not self.count:
            self.probes[i] = value[None, :0]
            return
        local_error = value.abs() * (eps if op.rounding_terms else 0.0)
        inputs = [self.probes[j] for j in node.inputs]
        if isinstance(op, Affine):
            out = op.linear(*(p.flatten(0, 1) for p in inputs))
            probes = out.view(*inputs[0].shape[:2], *out.shape[1:])
            if op.rounding_terms:
                rounding = eps * (1 + op.rounding_terms**0.5 / 4)
                summation_error = op.error_spread(*(x.abs() * rounding for x in xs))
                local_error = torch.hypot(local_error, summation_error) + SMALLEST_SUBNORMAL
        elif isinstance(op, Breaking):
            probes = op.jvp(xs[0], inputs[0])
        else:
            raise TypeError(f"{node.name} is neither affine nor breaking")
        self.probes[i] = probes + probe_signs(self.network, i, self.count, local_error) * local_error


def probe_signs(network: Network, i: int, count: int, like: Tensor) -> Tensor:
    """Random signs (count, 1, *shape) for a node; equal at all points, so that a point's neighbours do not matter."""
    shape, device = (count, 1, *like.shape[1:]), like.device
    cache, key = _cached_signs.setdefault(network, {}), (i, count, device)
    if key in cache:
        return cache[key]
    if device.type == "cpu":
        generator = torch.Generator().manual_seed(i)
        signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8, device="cpu").mul_(2).sub_(1)
    else:
        signs = _hashed_signs(i, shape, device)
    if device.type != "cpu" or signs.numel() <= MAX_CACHED_SIGNS:
        cache[key] = signs
    return signs


def _hashed_signs(seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random signs from a hashed counter: on a GPU this is much faster than a sequential generator."""
    bits = torch.arange(torch.Size(shape).numel(), device=device).mul_(0x5851F42D4C957F2D).add_(seed * 0x14057B7EF767)
    for shift, factor in ((31, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35)):
        bits = bits.bitwise_xor_(bits >> shift).mul_(factor)
    return (bits < 0).view(shape).to(torch.int8).mul_(2).sub_(1)
