"""Decisions of one output by a threshold, and of some rivals among the outputs."""

from math import atanh, log

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl


def linear(weights, offsets, *tail):
    """A network of one input: weights * x + offsets, and then an operator."""
    layer = nn.Linear(1, len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights).view(-1, 1))
        layer.bias.copy_(torch.tensor(offsets))
    return nn.Sequential(layer, *tail).double().eval()


def random_network(outputs, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs)).eval()


START, END = [-3.0, 2.0, -1.0], [4.0, -2.5, 3.0]


def test_one_output_without_a_threshold_is_refused():
    line = xl.restrict(linear([2.0], [-1.0]), [0.0], [1.0])
    many = xl.restrict_many(linear([2.0], [-1.0]), [[0.0]], [[1.0]])
    plane = xl.restrict_plane(nn.Linear(2, 1), [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for result in (line, many, plane):
        with pytest.raises(xl.ArgumentError, match="single output has no rival") as error:
            result.decisions()
        assert "threshold=" in error.value.hint


@pytest.mark.parametrize(("order", "labels"), [("max", [0, 1]), ("min", [1, 0])])
def test_a_threshold_makes_two_classes(order, labels):
    decided = xl.restrict(linear([2.0], [-1.0]), [0.0], [1.0]).decisions(order, threshold=0.5)
    assert decided.labels == labels
    assert decided.boundaries.tolist() == [0.75]
    assert [i.margin for i in decided] == [1.5, 0.5]
    assert decided.values.tolist() == [[0.5, -1.0], [0.5, 1.0]]
    side = "above" if order == "max" else "below"
    assert str(decided).startswith(f"2 intervals, class 1 where the output is {side} 0.5\n")


def test_an_output_on_its_threshold_is_a_tie():
    (only,) = xl.restrict(linear([0.0], [0.5]), [0.0], [1.0]).decisions(threshold=0.5)
    assert (only.label, only.tied, only.margin) == (0, (0, 1), 0.0)


def test_behind_a_sigmoid_the_threshold_is_a_probability_and_implied():
    line = xl.restrict(linear([2.0], [-1.0], nn.Sigmoid()), [0.0], [1.0])
    assert line.decisions().boundaries.tolist() == [0.5]
    assert line.decisions(threshold=0.7).boundaries.item() == pytest.approx((1 + log(0.7 / 0.3)) / 2, abs=1e-15)
    assert line.decisions().describe() == "class 1 where the output is above 0.5"
    assert line.decisions(threshold=0.9).labels == [0]  # the sigmoid of 1 is 0.73
    for bad in (0.0, 1.0, 2.0, float("nan"), "half", True):
        with pytest.raises(xl.ArgumentError, match="behind a sigmoid"):
            line.decisions(threshold=bad)


def test_behind_a_tanh_the_threshold_is_not_implied():
    line = xl.restrict(linear([2.0], [-1.0], nn.Tanh()), [0.0], [1.0])
    with pytest.raises(xl.ArgumentError, match="no rival"):
        line.decisions()
    assert line.decisions(threshold=0.5).boundaries.item() == pytest.approx((1 + atanh(0.5)) / 2, abs=1e-15)


def test_a_softmax_of_one_output_is_refused():
    line = xl.restrict(linear([2.0], [-1.0], nn.Softmax(1)), [0.0], [1.0])
    with pytest.raises(xl.ArgumentError, match="behind a softmax"):
        line.decisions(threshold=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_boundaries_are_the_level_set(seed):
    line = xl.restrict(random_network(1, seed), START, END)
    mean = float(line.values.mean())
    level = line.level([1.0], mean).alphas
    decided = line.decisions(threshold=mean)
    assert len(decided) > 1
    assert torch.allclose(decided.boundaries, level, rtol=0, atol=1e-12)
    for interval in decided:
        inside = line.at((interval.start + interval.stop) / 2).item()
        assert interval.label == int(inside > mean)


def test_many_lines_are_decided_as_one():
    network = random_network(1)
    starts, ends = torch.tensor([START, END]), torch.tensor([END, [0.0, 0.0, 0.0]])
    many = xl.restrict_many(network, starts, ends).decisions(threshold=0.1)
    for decided, start, end in zip(many, starts, ends, strict=True):
        alone = xl.restrict(network, start, end).decisions(threshold=0.1)
        assert decided.labels == alone.labels
        assert torch.allclose(decided.boundaries, alone.boundaries, rtol=0, atol=1e-12)
        assert decided.describe() == alone.describe()


def test_rivals_are_decided_among_themselves():
    network = random_network(4)
    line = xl.restrict(network, START, END)
    decided = line.decisions(rivals=[3, 1])
    assert set(decided.labels) <= {1, 3}
    assert decided.table.tied.shape[1] == 4
    for interval in decided:
        values = line.at((interval.start + interval.stop) / 2)
        assert interval.label == (1 if values[1] > values[3] else 3)
    picked = nn.Sequential(network, nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        picked[1].weight.copy_(torch.eye(4)[[3, 1]])
    alone = xl.restrict(picked, START, END).decisions()
    assert torch.allclose(decided.boundaries, alone.boundaries, rtol=0, atol=1e-9)
    assert [{3: 0, 1: 1}[label] for label in decided.labels] == alone.labels
    assert line.decisions(rivals=[3, 1], top=2)[0].label in ((1, 3), (3, 1))


def test_a_single_rival_is_compared_with_a_threshold():
    line = xl.restrict(random_network(4), START, END)
    mean = float(line.values[:, 2].mean())
    decided = line.decisions(rivals=[2], threshold=mean)
    assert torch.allclose(decided.boundaries, line.level(2, mean).alphas, rtol=0, atol=1e-12)
    assert decided.describe() == f"class 1 where output 2 is above {mean:g}"
    with pytest.raises(xl.ArgumentError, match="no rival"):
        line.decisions(rivals=[2])


@pytest.mark.parametrize("rivals", [[], [4], [-1], [0, 0], [True], "01", [0.5]])
@pytest.mark.every(3)
def test_invalid_rivals_are_refused(rivals):
    line = xl.restrict(random_network(4), START, END)
    with pytest.raises(xl.ArgumentError, match="rivals is"):
        line.decisions(rivals=rivals)


def test_a_threshold_for_several_outputs_is_refused():
    line = xl.restrict(random_network(4), START, END)
    with pytest.raises(xl.ArgumentError, match="4 outputs are compared"):
        line.decisions(threshold=0.0)


def test_a_line_without_its_network_does_not_know_what_a_threshold_means(tmp_path):
    network = linear([2.0], [-1.0], nn.Sigmoid())
    xl.restrict(network, [0.0], [1.0]).save(tmp_path / "line.safetensors")
    with pytest.raises(xl.MissingError, match="last operator"):
        xl.Restriction.load(tmp_path / "line.safetensors").decisions(threshold=0.5)
    known = xl.Restriction.load(tmp_path / "line.safetensors", network)
    assert known.decisions(threshold=0.5).boundaries.tolist() == [0.5]


def test_a_plane_is_decided_by_a_threshold():
    plane = xl.restrict_plane(nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    regions = plane.decisions(rivals=[1], threshold=0.5)
    assert regions.totals == {0: 3.0, 1: 1.0}
    assert plane.decisions("min", rivals=[1], threshold=0.5).totals == {0: 1.0, 1: 3.0}
    assert regions.describe() == "class 1 where output 1 is above 0.5"
    assert np.allclose(regions.boundaries.numpy()[..., 1], 0.5 + 1.0 * (regions.boundaries.numpy()[..., 1] > 0.75))


def test_a_plane_of_several_outputs_is_decided_by_one_of_them():
    plane = xl.restrict_plane(lambda x: (x, -x), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    with pytest.raises(xl.ArgumentError, match="2 outputs"):
        plane.decisions()
    first, second = (plane.decisions(output=i) for i in (0, 1))
    assert first.totals == second.totals == {0: 2.0, 1: 2.0}
    assert first[0].label != second[0].label or not torch.equal(first[0].rings[0], second[0].rings[0])
