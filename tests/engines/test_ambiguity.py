"""Ambiguous units: sweeps mark the pieces that have some, and few others."""

from contextlib import contextmanager
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn

import exactline as xl
from exactline import api
from exactline.engines import ambiguity


class ComputedTwice(nn.Module):
    """A convolution whose channels a later activation sees once more, computed anew."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        with torch.no_grad():  # values cancel: rounding errors are as large as inputs make them
            self.first.weight -= self.first.weight.mean((1, 2, 3), keepdim=True)
        self.again = deepcopy(self.first)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return torch.cat([self.again(x), y], 1).relu().sum((2, 3))


def _model_and_line(offset):
    torch.manual_seed(0)
    start = offset + torch.rand(3, 32, 32, dtype=torch.float64)
    return ComputedTwice().double().eval(), start, start + 0.01 * torch.randn(3, 32, 32, dtype=torch.float64)


@contextmanager
def _counts(monkeypatch):
    """The rows that are counted, with the counts of all pieces, whether marked or not."""
    found, count = [], ambiguity.count_ambiguous

    def count_all(network, lines, rows, limits):
        everywhere = ambiguity.BreakRows(rows.line, rows.alphas, rows.nodes, torch.ones_like(rows.candidates))
        some, every = (count(network, lines, r, limits) for r in (rows, everywhere))
        found.append((rows, some, every))
        return some

    with monkeypatch.context() as patch:
        patch.setattr(api, "count_ambiguous", count_all)
        yield found


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("offset", [100, 1000])
def test_sweeps_mark_all_pieces_with_ambiguous_units(offset, engine, monkeypatch):
    with _counts(monkeypatch) as counts:
        line = xl.restrict(*_model_and_line(offset), engine=engine)
    ((_, some, every),) = counts
    assert line.ambiguous > 0
    assert torch.equal(some, every)


def test_a_unit_that_leaves_a_knot_slowly_marks_the_piece_beside_it(monkeypatch):
    with _counts(monkeypatch) as counts:
        line = xl.restrict(*_model_and_line(10), engine="patches")
    ((rows, _, _),) = counts
    assert len(line) > 90
    assert 0 < int(rows.candidates.count_nonzero()) < 0.7 * len(line)


@pytest.mark.parametrize("shares", [False, True])
def test_what_rules_candidates_out_keeps_all_counts(shares, monkeypatch):
    """Each filter of the pieces, compared with a count of all of them at all nodes."""
    model, start, end = _model_and_line(1000)
    monkeypatch.setattr(ambiguity, "is_short_line", lambda lines, line: shares)
    filtered = xl.restrict(model, start, end, engine="dense").ambiguous
    last = partial(torch.full_like, fill_value=10**6)
    monkeypatch.setattr(ambiguity._PieceErrors, "find", lambda self, shares: last(self.before).cpu())
    assert filtered == xl.restrict(model, start, end, engine="dense").ambiguous > 0
