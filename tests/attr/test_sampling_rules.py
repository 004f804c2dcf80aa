"""Tests of quadrature rules: evaluated from pieces they agree with autograd, and they converge to the exact answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import exactline as xl
from exactline.attr import error_curve, integrate, path_integral, recommend
from exactline.attr.quadrature import MIN_GRADIENTS, RULES, gauss_legendre
from exactline.attr.sampling_rules import RULE_NAMES, PieceGradients, mean_relative_error
from exactline.engines.dense import piece_gradients as gradients_of_pieces
from exactline.errors import ArgumentError
from exactline.lines import as_lines
from exactline.zoo import digits_images, digits_network


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    layers = torch.nn.Linear(6, 20), torch.nn.ReLU(), torch.nn.Linear(20, 12), torch.nn.LeakyReLU(0.1)
    return torch.nn.Sequential(*layers, torch.nn.Linear(12, 3)).double().eval()


@pytest.fixture(scope="module")
def line(model):
    torch.manual_seed(4)
    return xl.restrict(model, 3 * torch.randn(6), 3 * torch.randn(6))


@pytest.fixture(scope="module")
def digits():
    """The piece gradients of the lines from black to each digit, for its true class."""
    network, (images, labels) = digits_network(), digits_images()
    lines = xl.restrict_many(network, torch.zeros_like(images), images)
    return [PieceGradients.of(line, int(label)) for line, label in zip(lines, labels, strict=True)]


def gradients(model, line, alphas, target):
    start, end = line.lines.starts[0], line.lines.ends[0]
    x = (start + torch.as_tensor(alphas)[:, None] * (end - start)).requires_grad_()
    return torch.autograd.grad(model(x)[:, target].sum(), x)[0] * (end - start)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [3, 10])
def test_a_rule_agrees_with_autograd_at_its_nodes(model, line, rule, n):
    alphas, weights = RULES[rule](n)
    naive = sum(w * gradients(model, line, [a], 1)[0] for a, w in zip(alphas, weights, strict=True))
    assert torch.allclose(integrate(line, 1, rule, n), naive, rtol=1e-12, atol=1e-13)


def test_the_gradients_of_pieces_are_their_affine_maps(line):
    pieces = PieceGradients.of(line, 2)
    step = (line.lines.ends[0] - line.lines.starts[0])[0]
    for i in range(len(line)):
        assert torch.allclose(pieces.rates[i], line.piece(i).affine()[0][2] * step, rtol=1e-12, atol=1e-13)


def test_breaks_of_another_sweep_give_the_same_gradients(model, line):
    rough = xl.restrict(model, line.lines.starts[0][0], line.lines.ends[0][0], dtype=torch.float32)
    assert not torch.equal(rough.alphas, line.alphas)
    found, known = (error_curve(r, 1, ["midpoint"], [9])["midpoint"] for r in (rough, line))
    assert torch.allclose(found, known, rtol=1e-3)


def test_little_memory_gives_the_same_gradients(line, monkeypatch):
    whole = PieceGradients.of(line, 1).rates
    calls: list[int] = []
    monkeypatch.setattr(gradients_of_pieces, "MAX_BACKWARD_NUMBERS", 200)
    monkeypatch.setattr(gradients_of_pieces, "activation_patterns", lambda *_: calls.append(1))
    assert torch.allclose(PieceGradients.of(line, 1).rates, whole, rtol=1e-13, atol=1e-14)
    assert not calls  # the parts of the sweep fit together: no pattern is evaluated again


@pytest.mark.parametrize("n", [1, 2, 5, 64, 301])
def test_weights_sum_to_one_and_nodes_are_in_order(n):
    for rule, make in RULES.items():
        if n >= MIN_GRADIENTS.get(rule, 1):
            alphas, weights = make(n)
            assert len(alphas) == len(weights) == n
            assert abs(weights.sum() - 1) < 1e-13
            assert (np.diff(alphas) > 0).all()
            assert 0 <= alphas[0] <= alphas[-1] <= 1


def test_gauss_nodes_agree_with_numpy():
    for n in (1, 2, 7, 40, 151):
        x, w = np.polynomial.legendre.leggauss(n)
        assert np.allclose(gauss_legendre(n)[0], (x + 1) / 2, rtol=0, atol=1e-14)
        assert np.allclose(gauss_legendre(n)[1], w / 2, rtol=1e-11)


def test_all_rules_converge_to_the_exact_answer(line):
    lines = as_lines(line.lines.starts[0], line.lines.ends[0], ("a", "b"), many=True)
    exact = path_integral(line.network, lines, torch.tensor([1])).gradients[0][0]
    exact = exact * (lines.ends[0] - lines.starts[0])[0]
    pieces = PieceGradients.of(line, 1)
    assert torch.allclose(pieces.exact, exact, rtol=1e-12, atol=1e-13)
    largest = pieces.rates.abs().max() * len(line)  # a rule is wrong by at most the weight of one node at each break
    for rule in RULE_NAMES:
        far = integrate(line, 1, rule, 1001)
        assert float((far - exact).abs().max()) <= float(largest) * 3 / 1000


def test_an_error_curve_is_the_error_at_every_point(line):
    counts = [1, 2, 3, 8, 21]
    exact = PieceGradients.of(line, 0).exact
    for rule, curve in error_curve(line, 0, n=counts).items():
        for n, error in zip(counts, curve.tolist(), strict=True):
            if n < MIN_GRADIENTS.get(rule, 1):
                assert np.isnan(error)
            else:
                assert error == pytest.approx(float(mean_relative_error(integrate(line, 0, rule, n), exact)), rel=1e-10)


def test_a_node_on_a_break_uses_the_piece_that_its_rule_selects():
    line = xl.restrict(torch.nn.ReLU(), [-1.0], [1.0])
    assert float(integrate(line, 0, "left", 2)) == 1.0  # 0 and then the piece that begins at 1/2
    assert float(integrate(line, 0, "right", 2)) == 1.0  # the piece that ends at 1/2 and then 2
    assert float(integrate(line, 0, "midpoint", 1)) == 2.0


def test_several_inputs_give_several_attributions():
    class Two(torch.nn.Module):
        def forward(self, a, b):
            return torch.relu(a + b)

    line = xl.restrict(Two().eval(), (torch.tensor([-1.0]), torch.tensor([0.0])), (torch.ones(1), torch.ones(1)))
    a, b = integrate(line, 0, "midpoint", 3)
    assert (float(a), float(b)) == pytest.approx((4 / 3, 2 / 3))


@pytest.mark.parametrize(
    ("rule", "n", "target"), [("best", 5, 0), ("left", 0, 0), ("simpson", 2, 0), ("left", 5, 3), ("left", 2.5, 0)]
)
def test_arguments_that_make_no_sense_are_refused(line, rule, n, target):
    with pytest.raises(ArgumentError):
        integrate(line, target, rule, n)


def test_a_line_without_all_its_pieces_is_refused(line):
    with pytest.raises(ArgumentError):
        integrate(line.minimal(), 0)


def test_adaptive_beats_the_trapezoid_on_digits(digits):
    counts = [16, 32, 64]
    trapezoid, adaptive = (
        torch.stack([p.rule_errors(rule, counts) for p in digits]).mean(0) for rule in ("trapezoid", "adaptive")
    )
    ratios = (adaptive / trapezoid).tolist()
    print("adaptive / trapezoid, mean errors at 16, 32, 64 gradients:", [f"{r:.2f}" for r in ratios])
    assert ratios == pytest.approx([0.87, 0.69, 0.55], abs=0.02)


@pytest.mark.slow
def test_recommendations_for_digits_are_stable():
    images, labels = (t[::3] for t in digits_images())
    report = recommend(digits_network(), images, target=labels)
    again = recommend(digits_network(), images[:2])  # the network classifies them correctly
    print(report)
    for rule in RULE_NAMES:
        assert torch.equal(report.counts[rule][:2], again.counts[rule])
    assert all(need.missed == 0 and need.mean <= need.percentile_95 for need in report.needs)
    for rule, counts in report.counts.items():
        for n, errors in zip(counts.int().tolist(), report.errors[rule], strict=True):
            assert (errors[n - 1 : n + 4] < report.tolerance).all()
            assert n == MIN_GRADIENTS.get(rule, 1) or errors[n - 2] >= report.tolerance
    assert "trapezoid" in str(report)
    assert report.plot().get_xlabel() == "gradients"


def recommend_for_cifar(data: Path, chosen: list[int]):
    """The published table for CIFAR10 convSmall on some images: black baseline, true label."""
    network = xl.load(data / "eran/cifar10/convSmallRELU__Point.onnx")
    with np.load(data / "images/cifar10_test_first1000.npz") as stored:
        images, labels = stored["images"][chosen].transpose(0, 3, 1, 2) / 255, stored["labels"][chosen]
    report = recommend(network, images, target=labels.tolist(), rules=["left", "right", "trapezoid"])
    print(report)
    return report


@pytest.mark.slow
def test_three_images_are_near_the_published_table(data: Path):
    report = recommend_for_cifar(data, [0, 2, 3])
    assert 2000 < float(report.pieces.mean()) < 3200  # published: 2582.74
    assert 0.1 < float(report.heuristic_errors.nanmean()) < 0.4  # 24.95 %
    assert all(n.missed == 0 for n in report.needs)
    left, right, trapezoid = (n.mean for n in report.needs)  # 136.74, 139.40, 91.67
    assert 60 < trapezoid < min(left, right) < max(left, right) < 220


@pytest.mark.slow
def test_twenty_images_are_near_the_published_table(data: Path):
    report = recommend_for_cifar(data, list(range(20)))
    assert float(report.pieces.mean()) == pytest.approx(2582.74, rel=0.1)
    assert float(report.heuristic_errors.nanmean()) == pytest.approx(0.2495, rel=0.3)
    for need, known in zip(report.needs, (136.74, 139.40, 91.67), strict=True):
        assert need.mean == pytest.approx(known, rel=0.3)
