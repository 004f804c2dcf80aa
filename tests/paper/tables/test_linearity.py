"""The linearity study: a network solved by hand, the definitions, and the published tables."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.exact import restrict as exact_restrict
from exactline.network import as_network
from exactline.paper.published import (
    NamedNetwork,
    NetworkSuite,
    PixelImages,
    load_digits_suite,
    load_linearity_suites,
    read_images,
)
from exactline.paper.tables import linearity, linearity_report
from exactline.paper.tables.rational_check import check_differing_lines

PIXELS = np.array([[[200.0, 100.0]]])  # one image of one channel, one row and two columns


class Steps(nn.Module):
    """Ten scores of two pixels: class 3 leads, the score of class 4 increases with both pixels.

    Unit k becomes active where the first pixel is 200.5 + k: a line up to 206 crosses all six, a line down none.
    """

    def __init__(self, extra: float = 1.0, units: int = 6) -> None:
        super().__init__()
        self.units, self.extra = units, extra

    def forward(self, x):
        x = x.flatten(1)
        turns = torch.arange(self.units, dtype=x.dtype) + 200.5
        raised = torch.relu(255 * x[:, :1] - turns).sum(1, keepdim=True)
        other = x.sum(1, keepdim=True) + self.extra * raised / 255
        return torch.cat([x[:, :1] * 0, x[:, :1] * 0, x[:, :1] * 0, x[:, :1] * 0 + 9, other, *[x[:, :1] * 0] * 5], 1)


@pytest.fixture(scope="module")
def networks():
    point = torch.from_numpy(PIXELS / 255)
    models = {"normal": Steps(), "DiffAI": Steps(units=1), "PGD": Steps(units=2)}
    return tuple(NamedNetwork(name, as_network(m.eval(), [point]), "solved by hand") for name, m in models.items())


@pytest.fixture
def study(monkeypatch, networks):
    """Run the study on given images in the networks solved by hand."""

    def study(pixels, labels):
        suite = NetworkSuite(PixelImages("hand", pixels, labels), networks, bundled=True)
        monkeypatch.setattr(linearity, "load_linearity_suites", lambda data: [suite])
        return linearity.run()

    return study


@pytest.fixture
def hand(study):
    return study(PIXELS[None], (3,))


@pytest.mark.slow
def test_breaks_lengths_and_densities_of_a_network_solved_by_hand(hand):
    row = hand.rows[0]
    ups = [np.random.RandomState(j).choice([-1, 1], (1, 2, 1))[0, 0, 0] > 0 for j in range(4)]
    assert row.breaks == (8, *(8 if up else 2 for up in ups))
    length = float(np.sqrt(6**2 + 3**2)) / 255
    assert row.lengths == pytest.approx([length] * 5, rel=1e-13)
    assert row.densities == pytest.approx(np.array(row.breaks) / length, rel=1e-13)
    assert hand.pool_random_ratios("hand", "normal") == pytest.approx([8 / n for n in row.breaks[1:]])
    assert hand.pool_normal_ratios("hand", "DiffAI", random=False) == pytest.approx([8 / 3])
    assert hand.pool_normal_ratios("hand", "PGD", random=True) == pytest.approx([2 if up else 1 for up in ups])


@pytest.mark.slow
def test_the_tangent_plane_of_a_network_solved_by_hand(hand):
    """On the piece after k units the gradient is (1 + k, 1), at the image (1, 1): off by k / (1 + k) and by 0."""
    widths = [Fraction(1, 12), *[Fraction(1, 6)] * 5, Fraction(1, 12)]
    wanted = sum(w * Fraction(k, 1 + k) / 2 for k, w in enumerate(widths))
    assert hand.rows[0].tangent_error == pytest.approx(float(wanted), rel=1e-9)
    assert hand.rows[0].float32_tangent_error == pytest.approx(float(wanted), rel=1e-5)


def test_wrong_predictions_are_left_out(study):
    found = study(np.stack([PIXELS, PIXELS]), (3, 5))
    assert [r.is_correct for r in found.rows] == [True, False] * 3
    assert list(found.correct_rows("hand", "normal")) == [0]
    table = linearity_report.build_lines_table(found)
    assert len(table.rows) == 3 * (5 + 1)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert linearity_report.build_table3(found).rows[0][2] == "1 of 2"


@pytest.mark.slow
def test_an_image_whose_lines_have_length_0_is_no_error(study):
    """Black pixels never move: all five lines are points and give no ratio."""
    found = study(np.zeros((1, 1, 1, 2)), (3,))
    assert found.rows[0].lengths == (0.0,) * 5
    assert len(found.pool_random_ratios("hand", "normal")) == 0
    assert linearity_report.build_table3(found).rows[0][3] == "-"
    assert "no FGSM lines" in linearity_report.summarize_findings(found)[0]


def test_pixels_change_by_a_share_of_their_value():
    pixels = np.arange(256.0).reshape(1, 16, 16)
    up, down = (linearity.perturb_pixels(pixels, np.full_like(pixels, sign)) for sign in (1.0, -1.0))
    steps = np.array([int(Fraction(3, 100) * p) for p in range(256)]).reshape(1, 16, 16)
    near = pixels[:, :, :] * 3 % 100 == 0  # where 3 % is a whole number, the rounding of 0.03 decides
    assert (np.abs(np.minimum(pixels + steps, 255) - up)[~near] == 0).all()
    assert (np.abs(pixels - steps - down)[~near] == 0).all()
    assert up[0, 0, 0] == down[0, 0, 0] == 0


def test_random_directions_are_the_papers():
    np.random.seed(20 * 7 + 2)
    wanted = np.random.choice([-1, 1], (32, 32, 3))
    found = linearity.draw_random_sign((3, 32, 32), 7, 2)
    assert (found == wanted.transpose(2, 0, 1)).all()


def test_random_directions_do_not_change_numpys_global_state():
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    linearity.draw_random_sign((1, 8, 8), 3, 1)
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.slow
def test_lines_of_digits_have_the_breaks_of_the_rational_oracle():
    suite = load_digits_suite()
    network = suite.networks[0].network
    point, ends = suite.images.point(0), linearity.compute_line_ends(network, suite.images, 0)
    lines = xl.restrict_many(network, np.repeat(point[None].numpy(), 5, 0), ends)
    for line, end in zip(lines[:2], ends, strict=False):
        truth = exact_restrict(network, point, torch.from_numpy(end))
        assert len(line.alphas) == len(truth.alphas)


@pytest.mark.slow
def test_a_second_run_reuses_the_results_of_the_first(tmp_path):
    first = linearity.run(images=3, folder=tmp_path)
    second = linearity.run(images=3, folder=tmp_path)
    assert (first.reused, second.reused) == (0, 9)
    assert first.rows == second.rows
    assert linearity.run(images=4, folder=tmp_path).reused == 9


@pytest.mark.slow
def test_float32_is_counted_on_request_and_float64_is_checked(tmp_path):
    found = linearity.run(images=2, folder=tmp_path, float32=True)
    assert all(len(r.float32_breaks) == len(r.naive_float32_breaks) == 5 for r in found.rows if r.is_correct)
    assert linearity.run(images=2, folder=tmp_path).rows[0].float32_breaks == ()
    head = linearity_report.build_float32_table(found).head
    assert "plain float32 differs" in head
    table = linearity_report.build_lines_table(found)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert all(p.breaks == p.rational_breaks for p in check_differing_lines(found))
    assert check_differing_lines(linearity.run(images=2, folder=tmp_path)) == []


def test_lines_with_differing_counts_are_checked(hand):
    """The counts are wrong on purpose; the oracle finds the right one."""
    wrong = [replace(r, float32_breaks=(7, *r.breaks[1:]), naive_float32_breaks=r.breaks) for r in hand.rows]
    (check, *_) = found = check_differing_lines(replace(hand, rows=tuple(wrong)), lines_per_dataset=2)
    assert len(found) == 2
    assert (check.direction, check.breaks, check.float32_breaks, check.rational_breaks) == (
        "FGSM",
        3,
        7,
        3,
    )  # fewest breaks first
    assert check.min_gap == pytest.approx(1 / 12)
    (row, *_) = linearity_report.build_check_table(found).rows
    assert row == ("hand", "DiffAI", "0", "FGSM", "3", "7", "3", "3", "8.3e-02")


def test_malformed_images_are_refused(tmp_path):
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "mnist_test.csv"
    for text in ("", "7,1,2\n", "7," + ",".join(["0"] * 783) + ",x\n", "7," + ",".join(["256"] * 784) + "\n"):
        path.write_text(text)
        with pytest.raises(xl.FileError, match="784 pixels"):
            read_images(tmp_path, "mnist")
    path.unlink()
    with pytest.raises(xl.FileError, match=r"mnist_test\.csv"):
        read_images(tmp_path, "mnist")


def test_the_published_networks_classify_their_images(data: Path):
    right = {}
    for suite in load_linearity_suites(data):
        points = torch.stack([suite.images.point(i) for i in range(len(suite.images))])
        labels = torch.tensor(suite.images.labels)
        for named in suite.networks:
            right[suite.name, named.name] = int((named.network(points).argmax(1) == labels).sum())
    assert list(right.values()) == [100, 99, 100, 59, 53, 70]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_42_entries_of_tables_3_and_4_are_the_published_ones(data: Path, capsys: pytest.CaptureFixture[str]):
    found = linearity.run(data)
    with capsys.disabled():
        for suite in found.suites:
            print(f"\n{suite.name}: {found.cpu_seconds(suite.name):.1f} s of processor time")
        for table in (
            linearity_report.build_table3(found),
            linearity_report.build_table4(found),
            linearity_report.build_tangent_table(found),
        ):
            print(table.to_csv())
    assert linearity_report.count_equal_entries(found) == (42, 42)
    assert 100 * found.mean_tangent_error("MNIST", "normal") == pytest.approx(39, abs=1)
    assert 100 * found.mean_tangent_error("CIFAR10", "normal", float32=True) == pytest.approx(288, abs=1)
    assert 100 * found.mean_tangent_error("CIFAR10", "normal") == pytest.approx(
        262, abs=1
    )  # one image differs: number 29


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_where_float32_counts_differ_float64_is_right(data: Path, capsys: pytest.CaptureFixture[str]):
    """The first ten images of both data sets in all three networks, by the rational oracle."""
    found = linearity.run(data, images=10, float32=True)
    checks = check_differing_lines(found)
    with capsys.disabled():
        print(
            "\n",
            linearity_report.build_float32_table(found).to_csv(),
            linearity_report.build_check_table(checks).to_csv(),
            sep="\n",
        )
    assert {p.images for p in checks} == {"MNIST", "CIFAR10"}
    assert len(checks) >= 6
    assert all(p.breaks == p.rational_breaks for p in checks)
    assert all(p.float32_breaks != p.rational_breaks for p in checks if p.float32_breaks != p.breaks)
    assert all(r.naive_float32_breaks == r.breaks for r in found.rows)  # what the paper's tool counts, line by line
