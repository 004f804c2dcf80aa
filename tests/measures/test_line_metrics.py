"""Metrics of a line: against rational arithmetic, naive sums, networks solved by hand, and what is refused."""

import itertools
import time
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.lines import Lines
from tests.oracle.families import FAMILIES, seeded

SLACK = 1e-11  # relative: float64 sums of some hundred pieces, and rounding of the values themselves


def make_case(family, seed):
    generator = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[family](generator)
    start, end = (2 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return seeded(model, generator).double(), start, end


def exact_metrics(exact):
    """Total variation, largest slope and mean of each output, and the smallest and mean margin, as fractions."""
    alphas, values = exact.alphas, exact.values
    outputs = range(len(values[0]))
    variation = [sum(abs(b[k] - a[k]) for a, b in itertools.pairwise(values)) for k in outputs]
    slope = [max(abs(exact.affine_form(i)[k][1]) for i in range(len(exact))) for k in outputs]
    mean = [
        sum((values[i][k] + values[i + 1][k]) / 2 * (alphas[i + 1] - alphas[i]) for i in range(len(exact)))
        for k in outputs
    ]
    return variation, slope, mean


def exact_margin(exact):
    """Knots and margins of the lead of the largest output, from all crossings of two outputs."""
    knots = set(exact.alphas)
    for i in range(len(exact)):
        forms = exact.affine_form(i)
        for a in range(len(forms)):
            for b in range(a):
                slope = forms[a][1] - forms[b][1]
                if slope:
                    alpha = (forms[b][0] - forms[a][0]) / slope
                    if exact.alphas[i] < alpha < exact.alphas[i + 1]:
                        knots.add(alpha)
    ordered = sorted(knots)
    best = [sorted(exact.value(alpha))[-2:] for alpha in ordered]
    margins = [second - first for first, second in best]
    widths = [b - a for a, b in itertools.pairwise(ordered)]
    mean = sum((a + b) / 2 * w for a, b, w in zip(margins, margins[1:], widths, strict=False))
    return min(margins), mean


@pytest.mark.parametrize("family", ["mlp", "mixed", "conv", "normed", "residual", "concat", "ordered"])
@pytest.mark.every(3)
def test_metrics_agree_with_rational_arithmetic(family):
    model, start, end = make_case(family, 1)
    exact = xl.exact.restrict(model, start, end)
    variation, slope, mean = exact_metrics(exact)
    length = sqrt(
        sum(
            (Fraction(b) - Fraction(a)) ** 2
            for a, b in zip(start.flatten().tolist(), end.flatten().tolist(), strict=True)
        )
    )
    for engine in ("dense", "patches"):
        found = xl.restrict(model, start, end, engine=engine).metrics()
        scale = max(1.0, *(float(abs(v)) for row in exact.values for v in row))
        assert found.pieces == len(exact)
        assert found.total_variation.tolist() == pytest.approx(
            [float(v) for v in variation], rel=SLACK, abs=SLACK * scale
        )
        assert found.largest_slope.tolist() == pytest.approx([float(s) for s in slope], rel=SLACK, abs=SLACK * scale)
        assert found.mean.tolist() == pytest.approx([float(m) for m in mean], rel=SLACK, abs=SLACK * scale)
        assert found.line_length == pytest.approx(length, rel=1e-14)
        assert found.lipschitz.tolist() == pytest.approx([float(s) / length for s in slope], rel=SLACK, abs=SLACK)
        steps = [
            [float(b - a) for a, b in zip(x, y, strict=True)]
            for x, y in zip(exact.values, exact.values[1:], strict=False)
        ]
        assert found.length == pytest.approx(sum(sqrt(sum(s * s for s in step)) for step in steps), rel=SLACK)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(2)
def test_the_margin_agrees_with_rational_arithmetic(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 4)).double().eval()
    start, end = 3 * torch.randn(2, 3, dtype=torch.float64)
    smallest, mean = exact_margin(xl.exact.restrict(model, start, end))
    margin = xl.restrict(model, start, end).metrics().margin
    assert margin.smallest == pytest.approx(float(smallest), abs=1e-14)
    assert margin.mean == pytest.approx(float(mean), rel=SLACK)
    assert (margin.alphas.diff() > 0).all()
    assert (margin.margins >= 0).all()


def test_the_margin_is_zero_exactly_where_the_class_changes():
    model, images = xl.zoo.digits_network(), xl.zoo.digits_images()[0].double()
    line = xl.restrict(model, images[0], images[7])
    margin, boundaries = line.metrics().margin, line.decisions().boundaries
    assert len(boundaries) > 0
    assert torch.isin(boundaries, margin.alphas[margin.margins == 0]).all()


def test_a_tent_has_known_metrics():
    """Depth 6: 64 pieces of slope 64, each from 0 to 1."""
    found = xl.restrict(xl.zoo.tent_network(6), [0.0], [2.0]).metrics()
    assert (found.pieces, found.line_length, found.reached, found.complete) == (65, 2.0, 1.0, True)  # one beyond 1
    tent = xl.restrict(xl.zoo.tent_network(6), [0.0], [1.0]).metrics()
    assert (tent.pieces, tent.region_density, tent.length) == (64, 64.0, 64.0)
    assert (tent.total_variation.item(), tent.largest_slope.item(), tent.mean.item()) == (64.0, 64.0, 0.5)
    assert tent.margin is None  # a single output has no rival


def test_a_narrow_spike_has_its_true_slope():
    """A tent of width 4e-15 and height 1 near alpha 0.3: differences of rounded values would be off by percents."""
    width = 2.0**-48
    first = nn.Linear(1, 3, dtype=torch.float64)
    last = nn.Linear(3, 1, dtype=torch.float64)
    centre = 0.3
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.copy_(-torch.tensor([centre, centre + width, centre + 2 * width]))
        last.weight.copy_(torch.tensor([[1.0, -2.0, 1.0]]) / width)
        last.bias.zero_()
    model = nn.Sequential(first, nn.ReLU(), last).eval()
    exact = xl.exact.restrict(model, [0.0], [1.0])
    slope = max(abs(exact.affine_form(i)[0][1]) for i in range(len(exact)))
    found = xl.restrict(model, [0.0], [1.0]).metrics()
    assert found.largest_slope.item() == pytest.approx(float(slope), rel=1e-9)


def test_metrics_of_the_image_curve_do_not_depend_on_direction_or_scale():
    model, start, end = make_case("mlp", 3)
    one, back = xl.restrict(model, start, end).metrics(), xl.restrict(model, end, start).metrics()
    assert torch.allclose(one.total_variation, back.total_variation, rtol=SLACK)
    assert torch.allclose(one.largest_slope, back.largest_slope, rtol=SLACK)
    assert one.length == pytest.approx(back.length, rel=SLACK)


def test_halves_of_a_line_add_up():
    model, start, end = make_case("concat", 2)
    middle = (start + end) / 2
    whole, left, right = (xl.restrict(model, a, b).metrics() for a, b in ((start, end), (start, middle), (middle, end)))
    assert whole.pieces in (left.pieces + right.pieces, left.pieces + right.pieces - 1)
    assert torch.allclose(whole.total_variation, left.total_variation + right.total_variation, rtol=1e-10)
    assert whole.length == pytest.approx(left.length + right.length, rel=1e-10)
    assert torch.allclose(whole.lipschitz, torch.maximum(left.lipschitz, right.lipschitz), rtol=1e-10)


def test_without_stored_values_the_network_is_evaluated():
    model, start, end = make_case("mlp", 4)
    kept, not_kept = (xl.restrict(model, start, end, values=values).metrics() for values in (True, False))
    assert torch.allclose(kept.total_variation, not_kept.total_variation, rtol=1e-11)


def test_several_outputs_are_measured_side_by_side_or_one_by_one():
    def forward(x):
        return torch.relu(x), torch.relu(-x)[:, :1]

    line = xl.restrict(forward, [-1.0, 1.0], [1.0, 3.0])
    assert line.metrics().total_variation.tolist() == [1.0, 2.0, 1.0]
    assert line.metrics().margin is None
    assert line.metrics(output=1).total_variation.tolist() == [1.0]
    assert line.metrics(output=0).margin is not None
    with pytest.raises(xl.ArgumentError, match="output"):
        line.metrics(output=2)


def test_a_stopped_sweep_says_what_it_covers():
    line = xl.restrict(xl.zoo.tent_network(6), [0.0], [1.0], max_breaks=17)
    found = line.metrics()
    assert (found.pieces, found.reached, found.stopped, found.complete) == (16, 0.25, "max_breaks", False)
    assert (found.line_length, found.region_density, found.mean.item()) == (0.25, 64.0, 0.5)
    assert "only the first 0.25 of the line" in str(found)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(xl.LineError, match="length 0"):
        xl.restrict(nn.ReLU(), [1.0], [1.0]).metrics()
    with pytest.raises(xl.MissingError, match="before its first piece"):
        xl.restrict(nn.ReLU(), [-1.0], [1.0], max_breaks=1).metrics()
    with pytest.raises(xl.ArgumentError, match="minimal"):
        xl.restrict(nn.ReLU(), [-1.0], [1.0]).minimal().metrics()
    with pytest.raises(xl.NumberError, match="overflow"):
        xl.restrict(lambda x: x, [-1.7e308], [1.7e308]).metrics()


def test_a_line_without_values_and_network_is_refused(tmp_path):
    path = tmp_path / "line.safetensors"
    xl.restrict(nn.ReLU(), [-1.0], [1.0], values=False).save(path)
    with pytest.raises(xl.MissingError):
        xl.Restriction.load(path).metrics()
    kept = tmp_path / "kept.safetensors"
    xl.restrict(nn.ReLU(), [-1.0], [1.0]).save(kept)
    assert xl.Restriction.load(kept).metrics().total_variation.item() == 1.0


def test_huge_lines_have_a_length():
    found = xl.restrict(nn.ReLU(), [0.0, 0.0], [3e200, 4e200]).metrics()
    assert found.line_length == pytest.approx(5e200, rel=1e-15)


def test_a_million_pieces_are_measured_in_the_time_of_some_passes():
    """A line made of arrays, as a file gives it; the unit of time is one naive pass over its values."""
    count = 1_000_001
    random = np.random.default_rng(0)
    alphas = torch.from_numpy(np.sort(np.concatenate([[0.0, 1.0], random.random(count - 2)])))
    values = torch.from_numpy(random.standard_normal((count, 4)))
    small = xl.restrict(xl.zoo.tent_network(1), [0.0], [1.0])
    ends = Lines((torch.zeros(1, 1, dtype=torch.float64),), (torch.ones(1, 1, dtype=torch.float64),))
    line = replace(
        small,
        alphas=alphas,
        lines=ends,
        origin_table=torch.zeros(count, 3, dtype=torch.int64),
        ambiguous_per_piece=torch.zeros(count - 1, dtype=torch.int64),
        stored_values=(values[:, :1],),
        network=None,
    )
    passes = []
    for _ in range(3):
        began = time.process_time()
        np.abs(np.diff(np.sort(values.numpy(), axis=1), axis=0)).sum(0)
        passes.append(time.process_time() - began)
    began = time.process_time()
    found = line.metrics()
    seconds = time.process_time() - began
    assert found.pieces == count - 1
    assert found.total_variation.item() == pytest.approx(np.abs(np.diff(values[:, 0].numpy())).sum(), rel=1e-12)
    assert seconds < 100 * min(passes)


def test_metrics_as_json_have_all_numbers():
    found = xl.restrict(nn.ReLU(), [-1.0, 1.0], [2.0, 5.0], record="layers").metrics().to_dict()
    assert found["layers"] == [{"node": "relu", "units": 2, "crossings": 1, "dead": 0, "always_on": 1, "switching": 1}]
    assert found["margin"]["smallest"] == 1.0
    assert found["reached"] == 1.0
