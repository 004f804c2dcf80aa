"""Comparing two networks: against rational arithmetic, files, pruned and rounded weights, and what is refused."""

import copy
from fractions import Fraction

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network


def small_net(seed, outputs=3):
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, outputs)]
    return nn.Sequential(*layers).double().eval()


def ends(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(3 * torch.randn(2, 3, generator=generator, dtype=torch.float64))


def pruned(model, share=0.3):
    """A copy without the smallest weights."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight[weight.abs() < weight.abs().flatten().quantile(share)] = 0
    return other


def rounded(model, levels=64):
    """A copy with weights rounded to multiples of the largest one over some levels, as quantised and read back."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            scale = weight.abs().max() / levels
            weight.copy_((weight / scale).round() * scale)
    return other


@pytest.mark.parametrize("change", [pruned, rounded])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every(4)
def test_differences_and_disagreements_agree_with_rational_arithmetic(seed, change):
    f = small_net(seed)
    g = change(f)
    start, end = ends(seed)
    found = xl.compare(f, g, start, end)
    one, two = xl.exact.restrict(f, start, end), xl.exact.restrict(g, start, end)
    alphas = sorted({*one.alphas, *two.alphas})
    gaps = [[abs(b - a) for a, b in zip(one.value(t), two.value(t), strict=True)] for t in alphas]
    for k in range(3):
        largest = max(gap[k] for gap in gaps)
        assert float(found.largest_difference[k]) == pytest.approx(float(largest), rel=1e-12, abs=1e-14)
        at = Fraction(float(found.differs_at[k]))
        assert float(abs(two.value(at)[k] - one.value(at)[k])) == pytest.approx(float(largest), rel=1e-9)
    assert len(found.line) == len(alphas) - 1
    for t in [Fraction(i, 997) for i in range(998)]:
        classes = [max(range(3), key=line.value(t).__getitem__) for line in (one, two)]
        inside = [d for d in found.disagreements if d.start < t < d.stop]
        edge = any(abs(t - Fraction(x)) < Fraction(1, 10**9) for d in found.disagreements for x in (d.start, d.stop))
        if not edge:
            assert (classes[0] != classes[1]) == bool(inside)
            assert not inside or (inside[0].first, inside[0].second) == tuple(classes)


def test_a_network_agrees_with_itself_everywhere():
    f = small_net(0)
    found = xl.compare(f, copy.deepcopy(f), *ends())
    assert float(found.largest_difference.max()) <= found.error < 1e-12
    assert (found.disagreements, found.disagreement) == ((), 0.0)
    assert len(found.line) == len(xl.restrict(f, *ends()))


@pytest.mark.slow
def test_a_module_and_its_onnx_export_are_compared(tmp_path):
    model = xl.zoo.digits_network()
    path = tmp_path / "digits.onnx"
    images = xl.zoo.digits_images()[0].double()
    as_network(model, [images[0]]).save(path)
    found = xl.compare(model, path, images[0], images[5])
    assert float(found.largest_difference.max()) <= found.error
    assert found.disagreements == ()
    batched = xl.compare(model, path, images[:1], images[5:6])
    assert torch.equal(batched.line.alphas, found.line.alphas)


def test_a_module_and_its_file_are_compared(tmp_path):
    model, path = small_net(4), tmp_path / "small.onnx"
    as_network(model, [torch.zeros(3)]).save(path)
    found = xl.compare(model, path, *ends(4))
    assert float(found.largest_difference.max()) <= found.error
    assert found.disagreements == ()


def test_a_fine_tuned_network_differs():
    torch.manual_seed(0)
    f = small_net(1)
    g = copy.deepcopy(f)
    with torch.no_grad():
        g[-1].bias += torch.tensor([0.0, 5.0, 0.0], dtype=torch.float64)
    found = xl.compare(f, g, *ends(1))
    assert found.largest_difference.tolist() == pytest.approx([0.0, 5.0, 0.0], abs=1e-12)
    text = str(found)
    assert "largest difference 5, of output 1" in text
    assert "different classes on" in text


def test_one_output_has_classes_only_with_a_threshold():
    f, g = small_net(0, outputs=1), small_net(1, outputs=1)
    assert xl.compare(f, g, *ends()).disagreements is None
    found = xl.compare(f, g, *ends(), threshold=0.0)
    for interval in found.disagreements:
        middle = torch.stack(ends())[0] + (interval.start + interval.stop) / 2 * (ends()[1] - ends()[0])
        assert [int(model(middle[None]).item() > 0) for model in (f, g)] == [interval.first, interval.second]


def test_ties_are_no_disagreement():
    """Both outputs of the first network are equal everywhere."""
    found = xl.compare(lambda x: torch.cat([x, x], 1), lambda x: torch.cat([x, x + 1], 1), [0.0], [1.0])
    assert found.disagreements == ()


def test_a_stopped_comparison_says_how_far_it_came():
    f, g = small_net(2), small_net(3)
    whole = xl.compare(f, g, *ends(2))
    part = xl.compare(f, g, *ends(2), max_breaks=4)
    assert 0 < part.reached == float(whole.line.alphas[3]) < 1
    assert "stopped by max_breaks" in str(part)
    assert (part.largest_difference <= whole.largest_difference + 1e-12).all()


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (nn.Linear(3, 2).eval(), "outputs of shapes"),
        (nn.Sequential(nn.Linear(3, 3), nn.Softmax(1)).eval(), "end with"),
        (lambda x: (x, x), "outputs"),
    ],
)
def test_networks_that_do_not_match_are_refused(other, word):
    with pytest.raises(xl.ArgumentError, match=word):
        xl.compare(small_net(0), other, *ends())


def test_networks_of_other_inputs_are_refused(tmp_path):
    path = tmp_path / "narrow.onnx"
    as_network(nn.Linear(2, 3), [torch.zeros(2)]).save(path)
    with pytest.raises(xl.ExactlineError):
        xl.compare(small_net(0), path, *ends())
    with pytest.raises(xl.ArgumentError, match="inputs of shapes"):
        xl.compare(as_network(small_net(0), [torch.zeros(3)]), xl.load(path), *ends())


@pytest.mark.parametrize("option", ["values", "until", "output"])
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(xl.ArgumentError, match=option):
        xl.compare(small_net(0), small_net(1), *ends(), **{option: None})


def test_several_outputs_and_training_mode_are_refused():
    with pytest.raises(xl.ArgumentError, match="2 outputs"):
        xl.compare(lambda x: (x, x), lambda x: (x, x), [0.0], [1.0])
    with pytest.raises(xl.TrainingModeError):
        xl.compare(small_net(0), nn.Sequential(nn.Dropout(), small_net(0)).train(), *ends())


def test_a_line_of_one_point_compares_that_point():
    found = xl.compare(torch.relu, lambda x: torch.relu(x) + 2, [1.0, 0.0], [1.0, 0.0])
    assert found.largest_difference.tolist() == [2.0, 2.0]
