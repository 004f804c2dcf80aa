"""A certificate must prove correct breaks, and must never prove wrong ones."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
import torch
from torch import Tensor

import exactline as xl
from exactline import exact
from exactline.errors import ArgumentError
from exactline.network.graph import Network
from exactline.ops.affine import Reshape
from exactline.ops.functions import absolute, clamp, leaky_relu, relu
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order

from .networks import chain, linear, mlp, ranked, tent, window

UNCHECKED_UNITS = "numbers of units at breaks and ambiguous units were not checked"


def round_to_float64(alphas: list[Fraction]) -> Tensor:
    return torch.tensor(sorted({float(alpha) for alpha in alphas}), dtype=torch.float64)


def make_mixed_network() -> Network:
    """A chain of every kind of breaking operator."""
    return chain(
        (3,),
        linear(torch.randn(8, 3, dtype=torch.float64), torch.randn(8, dtype=torch.float64)),
        leaky_relu(0.01),
        linear(torch.randn(8, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)),
        Maximum(torch.arange(8).view(4, 2), (4,), floor=True),
        linear(torch.randn(6, 4, dtype=torch.float64), torch.randn(6, dtype=torch.float64)),
        Order(torch.arange(6).view(2, 3), torch.tensor([0, 1]), (2, 2)),
        Reshape((4,)),
        clamp(-0.5, 0.75),
        linear(torch.randn(2, 4, dtype=torch.float64), torch.randn(2, dtype=torch.float64)),
        absolute(),
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("build", [make_mixed_network, lambda: mlp([3, 8, 8, 8, 2])], ids=["mixed", "mlp"])
def test_rounded_exact_breaks_are_proved(seed, build):
    torch.manual_seed(seed)
    network, (start, end) = build(), torch.randn(2, 3, dtype=torch.float64) * 3
    alphas = round_to_float64(exact.restrict(network, start, end).alphas)
    proof = exact.certify(network, start, end, alphas)
    assert len(alphas) > 3
    assert proof.covers_whole_line, str(proof)
    assert proof.max_break_error <= 2.0**-53  # each break is rounded once
    assert proof.failures == ()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(4)
def test_every_missing_and_every_invented_break_is_found(seed):
    torch.manual_seed(seed)
    network, (start, end) = make_mixed_network(), torch.randn(2, 3, dtype=torch.float64) * 3
    alphas = round_to_float64(exact.restrict(network, start, end).alphas).tolist()
    for k in range(1, len(alphas) - 1):
        missing = exact.certify(network, start, end, alphas[:k] + alphas[k + 1 :])
        assert not missing.complete
        assert missing.proved == missing.checked - 1
        moved = [*alphas[:k], alphas[k] + 1e-11, *alphas[k + 1 :]]
        assert not exact.certify(network, start, end, moved).complete
    for k in range(len(alphas) - 1):
        for part in (0.5, 1e-3, 1 - 1e-6):
            extra = alphas[k] + part * (alphas[k + 1] - alphas[k])
            invented = exact.certify(network, start, end, [*alphas[: k + 1], extra, *alphas[k + 1 :]])
            assert not invented.complete
            assert invented.proved == invented.checked


def test_a_tiny_piece_around_a_true_break_is_not_proved():
    network = chain((1,), relu())
    for tiny_piece in ([0.25, 0.25 + 1e-13], [0.25 - 1e-13, 0.25], [0.25 - 2.0**-50, 0.25 + 2.0**-50]):
        proof = exact.certify(network, [-1.0], [3.0], [0.0, *tiny_piece, 1.0])
        assert not proof.complete


def test_a_crossing_at_the_midpoint_is_a_failure_unless_the_unit_is_constant():
    proof = exact.certify(chain((2,), relu()), [-1.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    assert not proof.complete
    assert proof.failures == ("piece 0 from 0.0 to 1.0: relu_0 unit 0 crosses at its midpoint",)
    assert exact.certify(chain((2,), relu()), [-1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]).complete


@pytest.mark.parametrize(
    ("network", "ends", "breaks", "false"),
    [
        (window(3), ([0.0, 0.0, -1.0], [1.0, 2.0, 3.0]), [0.5], [1 / 3]),
        (window(2, floor=True), ([1.0, -1.0], [-3.0, 1.0]), [0.25, 0.5], [0.5]),
        (window(4), ([1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]), [0.5], []),
        (ranked(3, [1]), ([-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]), [], [0.5]),
        (ranked(3, [0, 1, 2]), ([-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]), [0.5], []),
        (ranked(4, [1]), ([0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]), [0.5], [1 / 3, 2 / 3]),
        (tent(4), ([0.0], [1.0]), [k / 16 for k in range(1, 16)], [k / 8 for k in range(1, 8)]),
        (chain((1,), absolute(), relu()), ([-1.0], [1.0]), [0.5], []),
    ],
)
def test_ties_are_proved_as_defined(network, ends, breaks, false):
    proof = exact.certify(network, *ends, [0.0, *breaks, 1.0])
    assert proof.covers_whole_line, str(proof)
    assert not exact.certify(network, *ends, [0.0, *false, 1.0]).complete


def test_breaks_closer_than_the_tolerance_may_share_one_and_are_counted():
    net = chain((1,), linear([[1.0], [2.0**60]], [-0.5, -(2.0**59) - 2.0**7]), relu())
    proof = exact.certify(net, [0.0], [1.0], [0.0, 0.5, 1.0])
    assert proof.complete
    assert proof.merged == 1
    assert str(proof).endswith(f"; 1 stand for several exact ones; origins, {UNCHECKED_UNITS}; values were not checked")
    assert 0 < proof.max_break_error < 1e-15


def test_a_false_break_is_found_even_between_true_ones_closer_than_the_tolerance():
    net = chain((1,), linear([[1.0], [1.0]], [-0.5, -0.5 - 2.0**-41]), relu())
    true, false = [0.5, 0.5 + 2.0**-41], 0.5 + 2.0**-43
    assert exact.certify(net, [0.0], [1.0], [0.0, *true, 1.0]).covers_whole_line
    proof = exact.certify(net, [0.0], [1.0], [0.0, true[0], false, true[1], 1.0])
    assert (proof.complete, proof.confirmed, proof.breaks) == (False, 2, 3)
    assert proof.failures == (f"break 2 at {false!r}: its two pieces are one, no unit crosses there",)


def test_without_tolerance_only_exact_breaks_pass():
    net = chain((1,), linear([[3.0]], [-1.0]), relu())
    assert not exact.certify(net, [0.0], [1.0], [0.0, 1 / 3, 1.0], tolerance=0).complete
    assert exact.certify(net, [0.0], [1.0], [0.0, 1 / 3, 1.0]).complete
    assert exact.certify(tent(3), [0.0], [1.0], [k / 8 for k in range(9)], tolerance=0).complete


def test_a_certificate_of_some_pieces_counts_the_others():
    alphas = [k / 16 for k in range(17)]
    some = exact.certify(tent(4), [0.0], [1.0], alphas, pieces=4)
    assert (some.checked, some.proved, some.breaks, some.complete, some.covers_whole_line) == (4, 4, 6, True, False)
    assert str(some).endswith("; 12 pieces were not checked")
    two = exact.certify(tent(4), [0.0], [1.0], alphas, pieces=[3, -1])
    assert (two.checked, two.breaks, two.confirmed) == (2, 3, 3)
    assert exact.certify(tent(4), [0.0], [1.0], alphas, pieces=100).covers_whole_line
    assert not exact.certify(tent(4), [0.0], [1.0], alphas, pieces=[]).complete


def test_a_certificate_prints_what_is_not_proved():
    net, alphas = tent(4), [k / 16 for k in range(17)]
    whole = xl.restrict(net, [0.0], [1.0]).certify()
    assert whole.complete
    assert str(whole).endswith(f" from the exact ones; {UNCHECKED_UNITS}")
    without_neighbours = xl.restrict(net, [0.0], [1.0]).certify([3, 6])
    assert str(without_neighbours).endswith(
        f" from the exact ones; origins, {UNCHECKED_UNITS}; 14 pieces were not checked"
    )
    only_breaks = exact.certify(net, [0.0], [1.0], alphas)
    assert str(only_breaks).endswith(f"; origins, {UNCHECKED_UNITS}; values were not checked")


def test_a_certificate_prints_its_failures_and_is_frozen():
    proof = exact.certify(chain((1,), relu()), [-1.0], [3.0], [0.0, 0.3, 1.0])
    assert str(proof).splitlines() == [
        "not proved: 1 of 2 pieces are right, 0 of 1 breaks are real; values were not checked",
        "  piece 0 from 0.0 to 0.3: relu_0 unit 0 crosses at 0.25",
        "  break 1 at 0.3: piece 1 continues, no unit crosses there",
    ]
    with pytest.raises(FrozenInstanceError):
        proof.proved = 2  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "options",
    [
        {"alphas": [0.0, 0.5]},
        {"alphas": [0.0, 0.5, 0.5, 1.0]},
        {"alphas": [0.0, float("nan"), 1.0]},
        {"alphas": [[0.0, 1.0]]},
        {"alphas": [0.0, 1.0], "pieces": 0},
        {"alphas": [0.0, 1.0], "pieces": [1]},
        {"alphas": [0.0, 1.0], "tolerance": -1.0},
        {"alphas": [0.0, 1.0], "tolerance": float("nan")},
    ],
)
def test_invalid_arguments_raise_an_error(options):
    with pytest.raises(ArgumentError):
        exact.certify(chain((1,), relu()), [-1.0], [3.0], **options)
