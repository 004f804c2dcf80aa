"""A device that runs out of memory: the sweep continues with smaller parts and gives the same answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from exactline.engines.assemble import Assembler
from exactline.engines.dense import sweep as engine
from exactline.engines.dense.state import SweepState
from exactline.engines.dense.sweep import NodeInsertion, SweepLimits, sweep_lines
from exactline.lines import as_lines
from exactline.network import as_network


@pytest.mark.parametrize("capacity", [9, 40, 150])  # points
@pytest.mark.parametrize("stage", ["advancing", "inserting"])
@pytest.mark.every(3)
def test_dense_sweep_continues_with_half_the_points(capacity, stage, monkeypatch):
    monkeypatch.setattr(engine, "insert_relu_breaks", lambda *_: None)  # a device has no fused path
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)).double().eval()
    starts, ends = torch.randn(2, 5, 4, dtype=torch.float64) * 3
    network, lines = as_network(model, [starts[0]]), as_lines(starts, ends, ("starts", "ends"), many=True)

    def sweep(observer):
        limits = SweepLimits(10_000)
        assembler = Assembler(5, [network.nodes[i].shape for i in network.outputs], None, limits)
        return assembler.collect(sweep_lines(network, lines, limits, observer))

    refused = []

    def run_out_of_memory(state: SweepState) -> None:
        if len(state) > capacity:
            refused.append(len(state))
            raise torch.cuda.OutOfMemoryError("no room")

    expected = sweep(None)
    if stage == "inserting":
        apply = NodeInsertion.apply

        def limited_apply(self, start, stop):
            if stop - start > capacity:
                refused.append(stop - start)
                raise torch.cuda.OutOfMemoryError("no room")
            return apply(self, start, stop)

        monkeypatch.setattr(NodeInsertion, "apply", limited_apply)
    halved = sweep(run_out_of_memory if stage == "advancing" else None)
    assert refused
    assert expected.alphas.shape == halved.alphas.shape
    assert (expected.alphas - halved.alphas).abs().max() < 1e-14  # matrix products of fewer rows may round differently
    assert torch.equal(expected.offsets, halved.offsets)
    assert torch.equal(expected.origins, halved.origins)
    assert torch.equal(expected.ambiguous, halved.ambiguous)
    assert (expected.values[0] - halved.values[0]).abs().max() < 1e-14
