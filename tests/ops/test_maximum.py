"""Maxima: errors of members that may lead, and pools of pools."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.ops.maximum import Maximum


def _largest_error(op: Maximum, low, high, errors):
    """Errors of the output, member by member: of all lines that may be the maximum, the largest error."""
    out = torch.zeros(*errors.shape[:2], len(op.table), dtype=torch.float64)
    for point in range(len(low)):
        for window, members in enumerate(op.table.tolist()):
            ends = [(op.sign * low[point, m], op.sign * high[point, m]) for m in members]
            least = max(min(e) for e in ends)
            least = max(least, torch.zeros(())) if op.floor else least
            for kind in range(len(errors)):
                for member, pair in zip(members, ends, strict=True):
                    error = errors[kind, point, member]
                    if max(pair) >= least and error.abs() > out[kind, point, window].abs():
                        out[kind, point, window] = error
    return out


@pytest.mark.parametrize(("sign", "floor"), [(1, False), (1, True), (-1, False)])
def test_the_largest_error_of_all_members_that_may_lead_counts(sign, floor):
    torch.manual_seed(0)
    table = torch.randint(0, 12, (20, 4))
    op = Maximum(table, (20,), sign, floor)
    values, width = torch.randn(3, 12, dtype=torch.float64), 0.3 * torch.rand(3, 12, dtype=torch.float64)
    errors = torch.randn(2, 3, 12, dtype=torch.float64)
    found = op.propagate_errors(values - width, values + width, errors)
    assert torch.equal(found, _largest_error(op, values - width, values + width, errors))


@pytest.mark.parametrize("relu", [False, True])
def test_a_pool_of_a_pool_is_one_maximum(relu):
    torch.manual_seed(0)
    pools = [nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 1, 1)]
    model = nn.Sequential(*([nn.ReLU()] if relu else []), *pools)
    points = torch.randn(4, 3, 11, 11, dtype=torch.float64)
    network = as_network(model, [points[0]])
    (op,) = [node.op for node in network.nodes if isinstance(node.op, Maximum)]
    assert op.native is not None
    assert torch.equal(op.evaluate(points), model(points))
    by_table = Maximum(op.table, op.shape, floor=op.floor)
    assert torch.equal(by_table.evaluate(points), model(points))
    leaders = op.branch_at(points)
    assert torch.equal(points.flatten(1).gather(1, leaders.clamp(min=0)) * (leaders >= 0), model(points).flatten(1))
    assert len(xl.restrict(model, points[0], points[1])) > 1
