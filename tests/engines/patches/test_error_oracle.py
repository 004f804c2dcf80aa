"""Errors on one line: values at its ends are evaluated once, for the estimate and for the sweep."""

from __future__ import annotations

import pytest
import torch

from exactline.budget import Budget, enforce_budget
from exactline.engines.patches.error_oracle import ErrorOracle
from exactline.lines import Lines
from exactline.network import as_network
from tests.numerics.equal_windows import make_model


@pytest.mark.parametrize("length", [1.0, 1e-3])
def test_values_at_both_ends_are_kept(length):
    model, start, end = make_model()
    network = as_network(model, [start])
    lines = Lines((start[None],), (torch.lerp(start, end, length)[None],))
    with enforce_budget(Budget()):
        kept = ErrorOracle.sample(network, lines, 0, len(network.nodes)).end_values
    assert {j for i in network.breaking_nodes for j in network.nodes[i].inputs} <= {*kept}
    ends = [torch.cat([lines.starts[0], lines.ends[0]])]
    for i, values in network.evaluate(ends, [*kept]).items():
        assert torch.allclose(kept[i], values, rtol=0, atol=1e-13)
