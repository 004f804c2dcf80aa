"""Results, networks and decisions can be pickled, so that other processes can use them."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl


class Net(nn.Module):
    """Convolution, pools, interpolation, einsum and a softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.conv(x)), 2)
        y = F.avg_pool2d(F.interpolate(y, scale_factor=2, mode="bilinear"), 2)
        return torch.einsum("bi,oi->bo", y.flatten(1), self.linear.weight).softmax(1)


@pytest.fixture(scope="module")
def line() -> xl.Restriction:
    generator = torch.Generator().manual_seed(1)
    start, end = (torch.randn(1, 6, 6, generator=generator) for _ in range(2))
    return xl.restrict(Net().eval(), start, end)


@pytest.fixture(scope="module")
def plane() -> xl.PlaneRestriction:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    return xl.restrict_plane(model, [[-3.0, -3.0], [3.0, -3.0], [0.0, 3.0]])


def copy_of(value):
    return pickle.loads(pickle.dumps(value))


def test_a_line_and_its_network(line):
    copy = copy_of(line)
    alphas = torch.linspace(0, 1, 9, dtype=torch.float64)
    assert torch.equal(copy.alphas, line.alphas)
    assert torch.equal(copy.at(alphas), line.at(alphas))
    assert torch.equal(copy.network(line.points, tail=True), line.network(line.points, tail=True))
    assert all(torch.equal(a, b) for a, b in zip(copy.piece(0).affine(), line.piece(0).affine(), strict=True))
    assert copy.certify(pieces=1).confirmed == 1
    assert "captured network" in copy.check(samples=3).against  # the module stays in the other process
    again = xl.restrict(copy.network, line.points[0], line.points[-1])
    assert torch.equal(again.alphas, line.alphas)


def test_an_onnx_network_that_ends_in_a_softmax(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softmax(1)).eval()
    path = tmp_path / "net.onnx"
    xl.restrict(model, torch.zeros(3), torch.ones(3)).network.save(path)
    network = xl.load(path)
    points = torch.rand(5, 3, dtype=torch.float64)
    assert torch.equal(copy_of(network)(points, tail=True), network(points, tail=True))


def test_many_lines_and_their_decisions(line):
    lines = xl.restrict_many(line.network, line.points[:1], line.points[-1:])
    assert torch.equal(copy_of(lines)[0].values, lines[0].values)
    for decisions in (line.decisions(), lines.decisions()):
        assert str(copy_of(decisions)) == str(decisions)


def test_a_plane_and_its_decisions(plane):
    copy = copy_of(plane)
    assert torch.equal(copy.at([[0.0, 0.0]]), plane.at([[0.0, 0.0]]))
    assert str(copy_of(plane.decisions())) == str(plane.decisions())
    assert str(copy.decisions()) == str(plane.decisions())


@pytest.mark.parametrize("name", ["piece", "minimal", "extrema", "level", "check", "origins"])
def test_parts_of_a_line(line, name):
    value = {
        "piece": lambda: line.piece(0),
        "minimal": line.minimal,
        "extrema": lambda: line.extrema([1.0, 0.0, 0.0]),
        "level": lambda: line.level([1.0, 0.0, 0.0], 0.1),
        "check": lambda: line.check(samples=2),
        "origins": lambda: line.origins,
    }[name]()
    assert str(copy_of(value)) == str(value)


def count_pieces(line: xl.Restriction) -> tuple[int, list[float]]:
    return len(line), line.at(0.5).tolist()


@pytest.mark.slow
def test_another_process_can_use_a_line(line):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(count_pieces, (line,)) == count_pieces(line)
