"""A device that runs out of memory: the work is halved and goes on, with the same answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exactline.engines.assemble import Assembler
from exactline.engines.dense import sweep as engine
from exactline.engines.dense.state import SweepState
from exactline.engines.dense.sweep import SweepLimits, sweep_lines
from exactline.lines import as_lines
from exactline.network import as_network


@pytest.mark.parametrize("roomy", [9, 40, 150])
@pytest.mark.parametrize("place", ["advancing", "inserting"])
def test_dense_sweep_goes_on_in_halves(roomy, place, monkeypatch):
    monkeypatch.setattr(engine, "insert_relu_breaks", lambda *_: None)  # not taken on a device
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)).double().eval()
    starts, ends = torch.randn(2, 5, 4, dtype=torch.float64) * 3
    network, lines = as_network(model, [starts[0]]), as_lines(starts, ends, ("Q", "R"), many=True)

    def swept(watch):
        limits = SweepLimits(10_000)
        found = Assembler(5, [network.nodes[i].shape for i in network.outputs], None, limits)
        return found.collect(sweep_lines(network, lines, limits, watch))

    refused = []

    def small(state: SweepState) -> None:
        if len(state) > roomy:
            refused.append(len(state))
            raise torch.cuda.OutOfMemoryError("no room")

    plain = swept(None)
    if place == "inserting":
        insert = engine._insert

        def cramped(*args):
            if args[-1] - args[-2] > roomy:
                refused.append(args[-1] - args[-2])
                raise torch.cuda.OutOfMemoryError("no room")
            return insert(*args)

        monkeypatch.setattr(engine, "_insert", cramped)
    halved = swept(small if place == "advancing" else None)
    assert refused
    assert plain.alphas.shape == halved.alphas.shape
    assert (plain.alphas - halved.alphas).abs().max() < 1e-14  # products of fewer rows may round otherwise
    assert torch.equal(plain.offsets, halved.offsets)
    assert torch.equal(plain.origins, halved.origins)
    assert torch.equal(plain.ambiguous, halved.ambiguous)
    assert (plain.values[0] - halved.values[0]).abs().max() < 1e-14
