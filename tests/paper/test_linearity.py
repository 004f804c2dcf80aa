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
from exactline.paper import linearity, tables
from exactline.paper.published import Images, Subject, Suite, digits_suite, linearity_suites, read_images
from exactline.paper.rational_check import proofs

PIXELS = np.array([[[200.0, 100.0]]])  # one image of one channel, one row and two columns


class Steps(nn.Module):
    """Ten scores of two pixels: class 3 leads, the next one rises with both, and units turn on above the first.

    Unit k turns where the first pixel is 200.5 + k: a line up to 206 meets all six, one that goes down meets none.
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
def subjects():
    point = torch.from_numpy(PIXELS / 255)
    made = {"normal": Steps(), "DiffAI": Steps(units=1), "PGD": Steps(units=2)}
    return tuple(Subject(name, as_network(m.eval(), [point]), "made by hand") for name, m in made.items())


@pytest.fixture
def study(monkeypatch, subjects):
    """The study on images of one's own, in the networks made by hand."""

    def study(pixels, labels):
        suite = Suite(Images("hand", pixels, labels), subjects, ours=True)
        monkeypatch.setattr(linearity, "linearity_suites", lambda data: [suite])
        return linearity.run()

    return study


@pytest.fixture
def hand(study):
    return study(PIXELS[None], (3,))


def test_breaks_lengths_and_densities_of_a_network_solved_by_hand(hand):
    row = hand.rows[0]
    ups = [np.random.RandomState(j).choice([-1, 1], (1, 2, 1))[0, 0, 0] > 0 for j in range(4)]
    assert row.breaks == (8, *(8 if up else 2 for up in ups))
    length = float(np.sqrt(6**2 + 3**2)) / 255
    assert row.lengths == pytest.approx([length] * 5, rel=1e-13)
    assert row.densities == pytest.approx(np.array(row.breaks) / length, rel=1e-13)
    assert hand.against_random("hand", "normal") == pytest.approx([8 / n for n in row.breaks[1:]])
    assert hand.against_normal("hand", "DiffAI", random=False) == pytest.approx([8 / 3])
    assert hand.against_normal("hand", "PGD", random=True) == pytest.approx([2 if up else 1 for up in ups])


def test_the_tangent_plane_of_a_network_solved_by_hand(hand):
    """On the piece after k units the gradient is (1 + k, 1), at the image (1, 1): off by k / (1 + k) and by 0."""
    widths = [Fraction(1, 12), *[Fraction(1, 6)] * 5, Fraction(1, 12)]
    wanted = sum(w * Fraction(k, 1 + k) / 2 for k, w in enumerate(widths))
    assert hand.rows[0].tangent == pytest.approx(float(wanted), rel=1e-9)
    assert hand.rows[0].tangent32 == pytest.approx(float(wanted), rel=1e-5)


def test_wrong_predictions_are_left_out(study):
    found = study(np.stack([PIXELS, PIXELS]), (3, 5))
    assert [r.right for r in found.rows] == [True, False] * 3
    assert list(found.of("hand", "normal")) == [0]
    table = tables.lines_table(found)
    assert len(table.rows) == 3 * (5 + 1)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert tables.table3(found).rows[0][2] == "1 of 2"


def test_an_image_without_any_line_is_no_error(study):
    """Black pixels never move: all five lines are points, and no ratio is made of them."""
    found = study(np.zeros((1, 1, 1, 2)), (3,))
    assert found.rows[0].lengths == (0.0,) * 5
    assert len(found.against_random("hand", "normal")) == 0
    assert tables.table3(found).rows[0][3] == "-"
    assert "no FGSM lines" in tables.findings(found)[0]


def test_pixels_change_by_a_share_of_themselves():
    pixels = np.arange(256.0).reshape(1, 16, 16)
    up, down = (linearity.changed(pixels, np.full_like(pixels, sign)) for sign in (1.0, -1.0))
    steps = np.array([int(Fraction(3, 100) * p) for p in range(256)]).reshape(1, 16, 16)
    near = pixels[:, :, :] * 3 % 100 == 0  # where 3 % is whole, 0.03 in binary may fall to either side
    assert (np.abs(np.minimum(pixels + steps, 255) - up)[~near] == 0).all()
    assert (np.abs(pixels - steps - down)[~near] == 0).all()
    assert up[0, 0, 0] == down[0, 0, 0] == 0


def test_random_directions_are_the_papers():
    np.random.seed(20 * 7 + 2)
    wanted = np.random.choice([-1, 1], (32, 32, 3))
    found = linearity.random_sign((3, 32, 32), 7, 2)
    assert (found == wanted.transpose(2, 0, 1)).all()


def test_random_directions_leave_numpys_own_numbers_alone():
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    linearity.random_sign((1, 8, 8), 3, 1)
    assert np.random.get_state()[1].tolist() == before


def test_digits_lines_have_the_breaks_that_rationals_find():
    suite = digits_suite()
    network = suite.subjects[0].network
    point, ends = suite.images.point(0), linearity.ends_of(network, suite.images, 0)
    lines = xl.restrict_many(network, np.repeat(point[None].numpy(), 5, 0), ends)
    for line, end in zip(lines[:2], ends, strict=False):
        truth = exact_restrict(network, point, torch.from_numpy(end))
        assert len(line.alphas) == len(truth.alphas)


def test_a_second_run_finds_the_first_ones_results(tmp_path):
    first = linearity.run(images=3, folder=tmp_path)
    second = linearity.run(images=3, folder=tmp_path)
    assert (first.resumed, second.resumed) == (0, 9)
    assert first.rows == second.rows
    assert linearity.run(images=4, folder=tmp_path).resumed == 9


def test_float32_is_counted_when_asked_for_and_float64_proved(tmp_path):
    found = linearity.run(images=2, folder=tmp_path, float32=True)
    assert all(len(r.breaks32) == len(r.plain32) == 5 for r in found.rows if r.right)
    assert linearity.run(images=2, folder=tmp_path).rows[0].breaks32 == ()
    head = tables.float32_table(found).head
    assert "plain float32 differs" in head
    table = tables.lines_table(found)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert all(p.breaks == p.truth for p in proofs(found))
    assert proofs(linearity.run(images=2, folder=tmp_path)) == []


def test_a_line_that_float32_counts_otherwise_is_proved(hand):
    """Counts that are wrong on purpose: the oracle finds the true one, whatever they are."""
    wrong = [replace(r, breaks32=(7, *r.breaks[1:]), plain32=r.breaks) for r in hand.rows]
    (proof, *_) = found = proofs(replace(hand, rows=tuple(wrong)), each=2)
    assert len(found) == 2
    assert (proof.direction, proof.breaks, proof.breaks32, proof.truth) == ("FGSM", 3, 7, 3)  # fewest breaks first
    assert proof.closest == pytest.approx(1 / 12)
    (row, *_) = tables.proof_table(found).rows
    assert row == ("hand", "DiffAI", "0", "FGSM", "3", "7", "3", "3", "8.3e-02")


def test_images_that_are_none_are_refused(tmp_path):
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "mnist_test.csv"
    for text in ("", "7,1,2\n", "7," + ",".join(["0"] * 783) + ",x\n", "7," + ",".join(["256"] * 784) + "\n"):
        path.write_text(text)
        with pytest.raises(xl.FileError, match="784 pixels"):
            read_images(tmp_path, "mnist")
    path.unlink()
    with pytest.raises(xl.FileError, match=r"mnist_test\.csv"):
        read_images(tmp_path, "mnist")


def test_the_published_networks_read_their_images(data: Path):
    right = {}
    for suite in linearity_suites(data):
        points = torch.stack([suite.images.point(i) for i in range(len(suite.images))])
        labels = torch.tensor(suite.images.labels)
        for subject in suite.subjects:
            right[suite.name, subject.name] = int((subject.network(points).argmax(1) == labels).sum())
    assert list(right.values()) == [100, 99, 100, 59, 53, 70]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_42_entries_of_tables_3_and_4_are_the_published_ones(data: Path, capsys: pytest.CaptureFixture[str]):
    found = linearity.run(data)
    with capsys.disabled():
        for suite in found.suites:
            print(f"\n{suite.name}: {found.seconds(suite.name):.1f} s of processor time")
        for table in (tables.table3(found), tables.table4(found), tables.tangent(found)):
            print(table.csv())
    assert tables.equal_entries(found) == (42, 42)
    assert 100 * found.tangent("MNIST", "normal") == pytest.approx(39, abs=1)
    assert 100 * found.tangent("CIFAR10", "normal", float32=True) == pytest.approx(288, abs=1)
    assert 100 * found.tangent("CIFAR10", "normal") == pytest.approx(262, abs=1)  # one image differs: number 29


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_where_float32_counts_otherwise_float64_is_right(data: Path, capsys: pytest.CaptureFixture[str]):
    """The first ten images of both data sets in all three networks, by the rational oracle."""
    found = linearity.run(data, images=10, float32=True)
    proved = proofs(found)
    with capsys.disabled():
        print("\n", tables.float32_table(found).csv(), tables.proof_table(proved).csv(), sep="\n")
    assert {p.images for p in proved} == {"MNIST", "CIFAR10"}
    assert len(proved) >= 6
    assert all(p.breaks == p.truth for p in proved)
    assert all(p.breaks32 != p.truth for p in proved if p.breaks32 != p.breaks)
    assert all(r.plain32 == r.breaks for r in found.rows)  # what the paper's tool counts, line by line
