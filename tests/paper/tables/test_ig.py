"""The integrated gradients study: one pixel solved by hand, sums of evaluated gradients, and the published row."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.paper.published import NamedNetwork, NetworkSuite, PixelImages, load_digits_suite
from exactline.paper.tables import ig, ig_report, syrenn_baseline
from exactline.paper.tables.float32_sweep import find_float32_breaks


class Kink(nn.Module):
    """Ten scores of one pixel; score 3 is x + 4 relu(x - 1/3), whose gradient jumps from 1 to 5 at a third."""

    def forward(self, x):
        x = x.flatten(1)
        score = x + 4 * torch.relu(x - 1 / 3)
        return torch.cat([*[x * 0] * 3, score, *[x * 0] * 6], 1)


@pytest.fixture(scope="module")
def kink():
    network = as_network(Kink().eval(), [torch.zeros(1, 1, 1)])
    images = PixelImages("hand", np.full((1, 1, 1, 1), 255.0), (3,))
    return NetworkSuite(images, (NamedNetwork("convsmall", network, "solved by hand"),), bundled=True)


def error_by_hand(weight_after: float) -> float:
    """The relative error of a rule that gives this weight to the piece after the kink; the exact weight is 2/3."""
    exact = 1 + 4 * 2 / 3
    return abs(1 + 4 * weight_after - exact) / exact


def first_run(errors: list[float], first: int) -> int:
    return next(n for n in range(len(errors)) if all(e < 0.05 for e in errors[n : n + 5])) + first


def test_one_pixel_solved_by_hand(monkeypatch, kink):
    monkeypatch.setattr(ig, "load_ig_suite", lambda data: kink)
    (row,) = ig.run().rows
    assert row.pieces == 2
    counts = range(1, 200)
    third = 1 / 3
    left = [error_by_hand(sum(k / n > third for k in range(n)) / n) for n in counts]
    middle = [error_by_hand(sum((k + 0.5) / n > third for k in range(n)) / n) for n in counts]
    near = [n for n in counts if n % 3]  # where 3 divides n, a sample lies on the kink or next to it
    assert [row.errors["left"][n - 1] for n in near if n < 128] == pytest.approx([left[n - 1] for n in near if n < 128])
    assert row.errors["midpoint"][:100] == pytest.approx(middle[:100], abs=1e-9)
    assert row.samples["midpoint"] == first_run(middle, 1)
    assert row.errors["trapezoid"][0] is None
    assert row.m_tilde is not None
    assert row.m_tilde >= 20


def sum_gradients(network, point, label, rule, n):
    """The attributions of a rule from gradients that autograd computes at its samples, in float64."""
    places = {
        "left": np.arange(n) / n,
        "right": np.arange(1, n + 1) / n,
        "trapezoid": np.arange(n + 1) / n,
    }[rule]
    points = (torch.from_numpy(places).view(-1, 1, 1, 1) * point).requires_grad_()
    (out,) = network.evaluate([points], network.outputs).values()
    (gradient,) = torch.autograd.grad(out[:, label].sum(), points)
    weights = np.full(len(places), 1 / n)
    if rule == "trapezoid":
        weights[[0, -1]] /= 2
    return (torch.tensordot(torch.from_numpy(weights), gradient, 1) * point).flatten()


@pytest.mark.slow
def test_errors_of_digits_agree_with_evaluated_gradients():
    """Partitions as the paper counts them: left and right use n samples, the trapezoid n + 1."""
    suite = load_digits_suite()
    network, point, label = suite.networks[0].network, suite.images.point(1), suite.images.labels[1]
    exact = xl.attr.IntegratedGradients(network).attribute(point[None], target=label).flatten()
    row = ig.run(images=2, networks=["normal"]).rows[1]
    for rule, more in (("left", 0), ("right", 0), ("trapezoid", 1)):
        errors = []
        for n in range(1, 60):
            found = sum_gradients(network, point, label, rule, n)
            errors.append(float(((found - exact).abs() / (exact + 1e-11).abs()).mean()))
            # at black no unit lies on its kink, and no sample hits a break
            assert row.errors[rule][n + more - 1] == pytest.approx(errors[-1], rel=1e-6)
        assert row.samples[rule] == first_run(errors, 1 + more)


def test_an_image_with_a_missing_value_is_left_out(monkeypatch, kink):
    monkeypatch.setattr(ig, "load_ig_suite", lambda data: kink)
    (row,) = ig.run().rows
    gone = ig.SampleCounts("convsmall", 1, 3, 90, None, None, row.samples, row.errors, row.syrenn_samples, 90, None)
    never = ig.SampleCounts(
        "convsmall", 2, 3, 90, 20, 0.5, row.samples | {"left": None}, row.errors, row.syrenn_samples, 90, 0.5
    )
    beyond = ig.SampleCounts(
        "convsmall", 3, 3, 4, 20, 0.5, row.samples | {"gauss-legendre": None}, row.errors, row.syrenn_samples, 90, 0.5
    )
    study = ig.SampleStudy(kink, (row, gone, never, beyond), 0)
    assert study.complete_rows("convsmall") == [row, beyond]
    assert study.mean_pieces("convsmall") == 3
    assert study.count_missed("convsmall", "gauss-legendre") == 1
    text = ig_report.build_table2(study).to_csv()
    assert "2 of 4" in text
    assert "(1 never)" in text
    assert "published" not in text.split("\n")[1]
    assert len(ig_report.build_images_table(study).rows) == 4


def test_the_paper_s_tool_integrates_over_its_own_breaks_and_loses_the_piece_between_two_batches(monkeypatch):
    """In batches of two end points every second piece is lost."""
    monkeypatch.setattr(syrenn_baseline, "BATCH_POINTS", 2)
    line = xl.restrict(torch.nn.ReLU(), [-1.0, -3.0], [3.0, 1.0])  # breaks at 1/4 and 3/4
    pieces = ig.PieceGradients(line, torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64))
    assert pieces.exact.tolist() == [0.25 + 5 + 25]
    breaks = torch.tensor([0.0, 0.125, 0.25, 0.75, 1.0], dtype=torch.float64)
    coarse = syrenn_baseline.SyrennPieces(line, pieces.rates, {}, breaks)
    assert coarse.exact.tolist() == [0.125 + 5]


class FixedErrors:
    """Errors of left sums that are 0 for some numbers of partitions, else 1; the other rules are never good enough."""

    def __init__(self, good):
        self.good = good

    def rule_errors(self, rule, counts):
        return torch.tensor([0.0 if rule == "left" and n in self.good else 1.0 for n in counts])


@pytest.mark.parametrize(
    ("good", "found"),
    [
        (range(1, 2000), 1),
        (range(48, 2000), 51),  # 51 is good, 46 is not: on to 56, which is, and back to 51, where the run is found
        (range(51, 2000), 51),
        (range(46, 2000), 46),
        (range(48, 53), None),  # a run of five that is never found
        (range(48, 56), None),  # so is one of eight
        (range(47, 56), 47),
        ([*range(10, 14), *range(21, 2000)], 21),
        (range(996, 2000), 996),
        (range(1001, 2000), None),  # checked one turn later, after the search has ended
    ],
)
def test_the_search_of_the_paper_s_tool(good, found):
    """It tries 1, 6, 11, ..., steps back by five where one is good enough, and continues only while each is."""
    assert syrenn_baseline.search_partitions(FixedErrors(set(good)), 0.05) == {
        "left": found,
        "right": None,
        "trapezoid": None,
    }


def test_a_naive_float32_sweep_finds_the_breaks_of_a_network_solved_by_hand():
    """|x - 1/4| - 1/8 through a ReLU on a line from 0 to 1: breaks at 1/8, 1/4 and 3/8, all exact in float32."""

    class Fold(nn.Module):
        def forward(self, x):
            return torch.relu(torch.relu(x - 0.25) + torch.relu(0.25 - x) - 0.125)

    network = as_network(Fold().eval(), [torch.zeros(1)])
    found = find_float32_breaks(network, torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert found.tolist() == [0.0, 0.125, 0.25, 0.375, 1.0]
    pooling = as_network(nn.MaxPool1d(2), [torch.zeros(1, 4)])
    with pytest.raises(xl.UnsupportedError, match="ReLU only"):
        find_float32_breaks(pooling, torch.zeros(1, 4), torch.ones(1, 4))


@pytest.mark.slow
def test_the_paper_s_tool_is_simulated_for_the_paper_s_networks_only(monkeypatch, kink):
    published = NetworkSuite(
        kink.images,
        (NamedNetwork("convsmall", kink.networks[0].network, "", has_published_results=True),),
        bundled=False,
    )
    monkeypatch.setattr(ig, "load_ig_suite", lambda data: published)
    found = ig.run()
    assert found.rows[0].syrenn_pieces == 2
    assert found.mean_syrenn("convsmall")["images"] == 1
    text = ig_report.build_table2(found).to_csv()
    assert "as the paper's tool" in text
    assert "2582.74" in text
    monkeypatch.setattr(ig, "load_ig_suite", lambda data: kink)
    assert ig.run().rows[0].syrenn_samples == {}


@pytest.mark.slow
def test_a_second_run_reuses_the_results_of_the_first(tmp_path):
    first = ig.run(images=2, networks=["PGD"], folder=tmp_path)
    second = ig.run(images=2, networks=["PGD"], folder=tmp_path)
    assert (first.reused, second.reused) == (0, 2)
    assert first.rows == second.rows
    assert ig_report.build_curves_table(first) == ig_report.build_curves_table(second)


@pytest.mark.slow
def test_slow_networks_study_fewer_images_by_default(monkeypatch, kink):
    images = PixelImages("hand", np.full((4, 1, 1, 1), 255.0), (3,) * 4)
    slow = NamedNetwork("convbig", kink.networks[0].network, "", max_images=2)
    monkeypatch.setattr(ig, "load_ig_suite", lambda data: NetworkSuite(images, (*kink.networks, slow), bundled=True))
    assert [ig.run().count_images(name) for name in ("convsmall", "convbig")] == [4, 2]
    assert [ig.run(images=3).count_images(name) for name in ("convsmall", "convbig")] == [3, 3]


def test_an_unknown_network_is_refused():
    with pytest.raises(xl.ArgumentError, match="no network 'convhuge'"):
        ig.run(networks=["convhuge"])


def test_missing_networks_are_named(tmp_path):
    with pytest.raises(xl.FileError, match=r"convSmallRELU__Point\.onnx"):
        ig.run(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_convsmall_row_of_tables_1_and_2(data: Path, capsys: pytest.CaptureFixture[str]):
    found = ig.run(data, networks=["convsmall"])
    with capsys.disabled():
        print(f"\n{found.cpu_seconds('convsmall'):.1f} s of processor time")
        print(ig_report.build_table1(found).to_csv(), ig_report.build_table2(found).to_csv(), sep="\n")
    assert len(found.complete_rows("convsmall")) == 100
    syrenn = found.mean_syrenn("convsmall")
    assert syrenn["images"] == 100
    for pieces in (found.mean_pieces("convsmall"), syrenn["exact"]):
        assert pieces == pytest.approx(2582.7, abs=0.5)
    for error in (found.mean_m_tilde_error("convsmall"), syrenn["error"]):
        assert 100 * error == pytest.approx(24.8, abs=0.3)
    for rule, published, tolerance in (("left", 136.74, 5), ("right", 139.40, 6), ("trapezoid", 91.67, 3)):
        assert found.mean_samples("convsmall", rule) == pytest.approx(published, abs=tolerance)
    for rule, published, tolerance in (("left", 136.74, 5), ("right", 139.40, 5), ("trapezoid", 91.67, 1)):
        assert syrenn[rule] == pytest.approx(published, abs=tolerance)
