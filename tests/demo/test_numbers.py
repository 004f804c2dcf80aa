"""The numbers of the demo, each computed in another way."""

import numpy as np
import pytest
import torch
from matplotlib.path import Path as Outline

import exactline as xl
from exactline import zoo
from exactline.demo import encounter as chapter
from exactline.paper.acas import lines as acas
from exactline.paper.acas.advisor import ADVISORIES
from exactline.paper.acas.geometry import EncounterGeometry
from exactline.paper.acas.maps import DEFAULT_REACH_FEET, map_advice

STEP = 1e-9  # beside a break rather than on it, where autograd has conventions of its own


@pytest.fixture(scope="module")
def digits():
    images, labels = zoo.digits_images()
    return zoo.digits_network().double(), images.double(), labels


@pytest.fixture(scope="module")
def encounter():
    geometry = EncounterGeometry(psi=chapter.HEADING_DEGREES)
    study = acas.run(geometry=geometry)
    return study, map_advice(study.advisor, geometry, DEFAULT_REACH_FEET)


def test_the_loan_network_breaks_at_1_3_and_2_3(facts):
    assert facts["loan"]["alphas"] == pytest.approx([0, 1 / 3, 2 / 3, 1], abs=1e-15)
    assert [m["A"] for m in facts["loan"]["maps"]] == [
        [[0.0, 0.0], [2.0, -1.3]],
        [[-1.7, 1.0], [2.0, -1.3]],
        [[-1.7, 1.0], [0.0, 0.0]],
    ]
    assert [m["b"] for m in facts["loan"]["maps"]] == [[0.0, 3.0], [3.0, 3.0], [3.0, 0.0]]


def test_the_line_between_digits_is_the_library_s(facts, digits):
    network, images, labels = digits
    line = xl.restrict(network, images[9], images[6])
    reported = facts["digits"]
    assert reported["alphas"] == line.alphas.tolist()
    assert reported["pieces"] == len(line) == sum(reported["breaks_by_node"].values()) + 1
    assert (reported["from"], reported["to"]) == (labels[9], labels[6])
    assert [(i["start"], i["stop"], i["label"]) for i in reported["intervals"]] == [
        (i.start, i.stop, i.label) for i in line.decisions()
    ]


@pytest.mark.slow
def test_the_network_changes_its_class_at_the_boundaries(facts, digits):
    network, images, _ = digits
    for interval in facts["digits"]["intervals"]:
        inside = torch.linspace(interval["start"] + STEP, interval["stop"] - STEP, 50, dtype=torch.float64)
        points = torch.lerp(images[9], images[6], inside[:, None, None, None])
        assert set(network(points).argmax(1).tolist()) == {interval["label"]}


def quadrature(rule, count):
    """Nodes and weights of a quadrature rule, from its textbook definition."""
    if rule == "gauss-legendre":
        x, w = np.polynomial.legendre.leggauss(count)
        return (x + 1) / 2, w / 2
    if rule == "left":
        return np.arange(count) / count, np.full(count, 1 / count)
    w = np.full(count, 1 / (count - 1))
    w[[0, -1]] /= 2
    return np.linspace(0, 1, count), w


def gradients(network, image, alphas, label):
    points = (torch.as_tensor(alphas)[:, None, None, None] * image).requires_grad_()
    network(points)[:, label].sum().backward()
    return points.grad


def test_exact_gradients_are_the_sum_of_autograd_s_over_all_pieces(facts, digits):
    network, images, labels = digits
    reported, image, label = facts["gradients"], images[9], int(labels[9])
    line = xl.restrict(network, torch.zeros_like(image), image)
    found = gradients(network, image, (line.alphas[1:] + line.alphas[:-1]) / 2, label)
    exact = image * torch.tensordot(line.alphas.diff(), found, 1)
    assert reported["pieces"] == len(line)
    torch.testing.assert_close(torch.tensor(reported["exact"], dtype=torch.float64), exact, rtol=1e-12, atol=1e-13)
    assert abs(reported["exact_delta"]) < 1e-13
    assert reported["exact_error"] < 1e-13


def test_errors_of_samples_are_those_of_autograd_s_gradients(facts, digits):
    network, images, labels = digits
    image, label = images[9], int(labels[9])
    exact = torch.tensor(facts["gradients"]["exact"], dtype=torch.float64)
    assert {(r["rule"], r["samples"]) for r in facts["gradients"]["rules"]} >= {("left", 20), ("gauss-legendre", 50)}
    for result in facts["gradients"]["rules"]:
        alphas, weights = quadrature(result["rule"], result["samples"])
        found = gradients(network, image, np.clip(alphas + STEP, 0, 1 - STEP), label)
        sampled = image * torch.tensordot(torch.as_tensor(weights), found, 1)
        error = float(((sampled - exact).abs() / (exact + 1e-11).abs()).mean())
        assert result["mean_error"] == pytest.approx(error, rel=1e-6)
        assert result["max_error"] == pytest.approx(float((sampled - exact).abs().max() / exact.abs().max()), rel=1e-6)
        assert result["delta"] == pytest.approx(float((sampled - exact).sum()), rel=1e-6, abs=1e-12)


def test_captum_with_its_defaults_has_the_reported_error(facts, digits):
    captum = pytest.importorskip("captum.attr")
    network, images, labels = digits
    sampled = captum.IntegratedGradients(network).attribute(images[9:10], baselines=0, target=int(labels[9]))[0]
    exact = torch.tensor(facts["gradients"]["exact"], dtype=torch.float64)
    (result,) = [r for r in facts["gradients"]["rules"] if (r["rule"], r["samples"]) == ("gauss-legendre", 50)]
    assert result["mean_error"] == pytest.approx(
        float(((sampled - exact).abs() / (exact + 1e-11).abs()).mean()), rel=1e-6
    )


def test_what_samples_missed_is_there_and_holds_none(facts, encounter):
    study, _ = encounter
    reported = facts["encounter"]
    assert (reported["missed"], reported["lines"]) == (len(study.missed), len(study.lines))
    for missed in study.missed:
        track, interval = missed.line.track, missed.interval
        polar = [track.polar((interval.start + interval.stop) / 2)]
        assert study.advisor.advise(study.geometry.to_inputs(polar)).tolist() == [interval.label]
        assert not any(interval.start <= k / 14 <= interval.stop for k in range(15))


def test_an_unsampled_region_holds_no_sample_and_has_the_reported_area(facts, encounter):
    study, chart = encounter
    unsampled = chapter.find_unsampled_regions(study, chart)
    assert [u.area for u in unsampled] == [u["square_feet"] for u in facts["encounter"]["unsampled"]]
    assert unsampled
    grid = study.grid.numpy()
    polar = np.stack([np.hypot(*grid.T), np.arctan2(grid[:, 1], grid[:, 0])], 1)
    for region in unsampled:
        outline = Outline(np.concatenate([region.ring, region.ring[:1]]))
        assert not outline.contains_points(polar).any()
        x, y = np.mgrid[-1:1:400j, -1:1:400j].reshape(2, -1) * 500 + np.array(region.middle)[:, None]
        fine = torch.tensor(np.stack([np.hypot(x, y), np.arctan2(y, x)], 1))
        within = outline.contains_points(fine.numpy())
        same = (study.advisor.advise(study.geometry.to_inputs(fine)) == region.label).numpy()
        assert same[within].mean() > 0.99  # except at the edge
        assert within.mean() * 1e6 == pytest.approx(region.area, rel=0.02)  # the window is a million square feet
        assert region.advisory == ADVISORIES[region.label].name


def test_every_other_region_of_the_map_holds_a_sample(facts, encounter):
    study, chart = encounter
    labels = study.grid_labels.tolist()
    assert facts["encounter"]["regions"] == len(chart.decisions)
    assert {r.label for r in chart.decisions} == set(labels)


@pytest.mark.parametrize("method", ["normal", "pgd"])
def test_shares_of_the_triangle_are_those_of_random_points(facts, method):
    images, _ = zoo.digits_images()
    reported = facts["plane"]["networks"][method]
    weights = torch.from_numpy(np.random.default_rng(1).dirichlet([1, 1, 1], 20_000)).float()
    with torch.no_grad():
        seen = zoo.robust_network(method)(torch.tensordot(weights, images[[9, 6, 0]], 1)).argmax(1)
    assert sum(reported["shares"].values()) == pytest.approx(1, abs=1e-12)
    for label in range(10):
        share = reported["shares"].get(str(label), 0.0)
        four = 4 * (share * (1 - share) / len(seen)) ** 0.5
        assert abs(float((seen == label).double().mean()) - share) <= four
