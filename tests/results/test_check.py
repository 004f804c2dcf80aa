"""Checks and certificates: complete for correct results, and never for wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import exactline as xl
from tests.adversarial.truth import (
    assert_refused,
    assert_same_line,
    mlp,
    restrict_and_verify,
    vector,
)
from tests.oracle.compare import mismatch
from tests.oracle.families import FAMILIES, seeded, small_integers

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


def small_networks() -> list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]]:
    networks = []
    for kind in ("mlp", "conv", "mixed", "residual", "concat", "normed", "ordered"):
        g = torch.Generator().manual_seed(7)
        model, shape = FAMILIES[kind](g)
        start, end = (torch.randn(shape, generator=g, dtype=torch.float64) * 3 for _ in range(2))
        networks.append((kind, seeded(model, g), start, end))
        g = torch.Generator().manual_seed(8)
        model, shape = FAMILIES[kind](g)
        start, end = (torch.randint(-3, 4, shape, generator=g).double() for _ in range(2))
        if kind != "normed":  # its running statistics are not small integers
            networks.append((f"{kind} tied", small_integers(g, model), start, end))
    return networks


SMALL_NETWORKS = small_networks()


@pytest.mark.parametrize(("model", "start", "end"), [n[1:] for n in SMALL_NETWORKS], ids=[n[0] for n in SMALL_NETWORKS])
@pytest.mark.every(5)
def test_the_check_is_small_and_the_certificate_complete_on_small_nets(model, start, end):
    line = restrict_and_verify(model, start, end)
    check = line.check(samples=100)
    assert check.worst <= 1e-11 * max(check.scale, 1.0)
    assert "module" in check.against
    assert check.points > 0
    proof = line.certify()
    assert proof.covers_whole_line, str(proof)
    assert proof.proved == len(line)


@pytest.mark.parametrize(
    ("model", "start", "end"), [n[1:] for n in SMALL_NETWORKS[::3]], ids=[n[0] for n in SMALL_NETWORKS[::3]]
)
@pytest.mark.every(4)
def test_the_certificate_is_not_complete_when_a_break_is_missing_or_added(model, start, end):
    line = restrict_and_verify(model, start, end)
    if len(line) < 3:
        model = mlp(*start.shape, 12, 2)
        line = restrict_and_verify(model, start, end)
    for k in {1, len(line) // 2, len(line) - 1}:
        keep = [i for i in range(len(line.alphas)) if i != k]
        assert not replace_alphas(line, line.alphas[keep]).certify().complete
        extra = (line.alphas[k - 1] + line.alphas[k]) / 2
        added = torch.cat([line.alphas[:k], extra[None], line.alphas[k:]])
        assert not replace_alphas(line, added).certify().complete
        moved = line.alphas.clone()
        moved[k] = line.alphas[k] * 0.999999 + line.alphas[k - 1] * 0.000001
        assert not replace_alphas(line, moved).certify().complete


def replace_alphas(line: xl.Restriction, alphas: torch.Tensor) -> xl.Restriction:
    origins, ambiguous = torch.zeros(len(alphas), 3, dtype=torch.int64), torch.zeros(len(alphas) - 1, dtype=torch.int64)
    return replace(line, alphas=alphas, origin_table=origins, ambiguous_per_piece=ambiguous, stored_values=None)


def test_a_certificate_of_some_pieces_is_not_one_of_the_whole():
    line = restrict_and_verify(mlp(3, 12, 2), START * 2, END * 2)
    some = line.certify(pieces=2)
    assert some.checked == 2
    assert some.complete
    assert not some.covers_whole_line
    assert line.certify(pieces=[0, -1]).checked == 2
    for pieces in (0, -1, [10**6], [-(10**6)]):
        assert_refused(xl.ArgumentError, line.certify, pieces=pieces)


def test_a_check_reports_wrong_values():
    line = xl.restrict(mlp(3, 12, 2), START, END)
    shifted = replace(line, stored_values=(line.values + 0.01,))
    assert shifted.check(samples=20).worst >= 0.009
    missing = replace(
        line,
        alphas=line.alphas[[0, -1]],
        origin_table=line.origin_table[[0, -1]],
        ambiguous_per_piece=line.ambiguous_per_piece[:1],
        stored_values=(line.values[[0, -1]],),
    )
    assert len(line) > 3
    assert missing.check(samples=200).worst > 1e-3


def test_a_path_consists_of_the_lines_between_its_points():
    corners = torch.stack([START, END, END, -START, START])
    model = mlp(3, 12, 2)
    lines = xl.restrict_path(model, corners)
    assert len(lines) == 4
    for i in range(4):
        assert mismatch(lines[i].alphas, xl.exact.restrict(model, corners[i], corners[i + 1])) is None
        if i:
            assert torch.allclose(lines[i].values[0], lines[i - 1].values[-1], atol=1e-13)
    assert_same_line(xl.restrict_path(model, corners, memory=1)[3], lines[3])
