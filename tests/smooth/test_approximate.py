"""Curves of networks with known answers: values, kinks, jumps, limits and bad input."""

from __future__ import annotations

import copy
import random
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.smooth.gauss_kronrod import gauss_kronrod


def polynomial(x: Tensor) -> Tensor:
    return torch.stack([x[:, 0] ** 3 - x[:, 0], x[:, 0] * x[:, 1]], 1)


def test_a_polynomial_is_reproduced() -> None:
    curve = xl.approximate(polynomial, [-1.0, 0.0], [1.0, 2.0])
    alphas = torch.linspace(0, 1, 41, dtype=torch.float64)
    x, y = 2 * alphas - 1, 2 * alphas
    assert (curve.at(alphas) - torch.stack([x**3 - x, x * y], 1)).abs().max() <= curve.error < 1e-13
    assert curve.status == "estimated"
    assert 3 <= int(curve.degrees.max()) <= 8


def test_a_piecewise_linear_network_is_exact() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    curve, line = (f(model, torch.zeros(3), torch.ones(3)) for f in (xl.approximate, xl.restrict))
    assert curve.status == "exact"
    assert torch.equal(curve.breakpoints, line.alphas)
    assert torch.allclose(curve.at([0.1, 0.7]), line.at([0.1, 0.7]), rtol=1e-14)


def test_breaks_before_the_first_smooth_operator_are_breakpoints() -> None:
    body = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    curve = xl.approximate(nn.Sequential(body, nn.Softmax(1)).eval(), torch.zeros(3), torch.ones(3) * 3)
    alphas = xl.restrict(body.eval(), torch.zeros(3), torch.ones(3) * 3).alphas
    assert np.isin(alphas.numpy(), curve.breakpoints.numpy()).all()


def test_kinks_behind_smooth_operators_are_located() -> None:
    curve = xl.approximate(lambda x: torch.relu(torch.sin(x)), [1.0], [8.0])
    truth = (np.array([1, 2]) * np.pi - 1) / 7
    assert np.abs(curve.kinks.numpy() - truth).max() < 1e-14
    alphas = torch.linspace(0, 1, 501, dtype=torch.float64)
    assert (curve.at(alphas)[:, 0] - torch.sin(1 + 7 * alphas).clamp(min=0)).abs().max() <= curve.error < 1e-8


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x * torch.tensor([1.0, -2.0, 0.5]), 1).amax(1, keepdim=True),
        lambda x: torch.max(torch.sin(3 * x), 1, keepdim=True).values,
        lambda x: torch.maximum(x[:, :1].exp(), 2 * torch.cos(x[:, 1:2])),
        lambda x: torch.where(x.tanh() > 0.2, x.tanh() - 0.2, torch.zeros_like(x)),
        lambda x: nn.functional.max_pool1d(torch.sin(4 * x)[:, None], 2)[:, 0],
        lambda x: torch.sort(x.exp() * torch.tensor([1.0, 2.0, 0.5]), 1).values,
        lambda x: nn.functional.hardswish(4 * x.sinh()),
    ],
)
def test_selections_behind_smooth_operators(function) -> None:
    start, end = torch.tensor([-1.0, 0.5, 1.5]), torch.tensor([1.3, -0.7, -1.0])
    curve = xl.approximate(function, start, end, tol=1e-10)
    alphas = torch.from_numpy(np.random.default_rng(0).random(1000))
    truth = function(start.double() + alphas[:, None] * (end.double() - start.double()))
    assert (curve.at(alphas) - truth).abs().max() <= curve.error <= 1e-10


def test_a_model_that_cannot_be_captured_is_a_black_box() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            if float(x.detach().abs().sum()) < -1.0:  # torch.export does not trace branches on values
                return x
            return torch.tanh(self.inner(x)).relu()

    model = Branching().eval()
    curve = xl.approximate(model, [-2.0, 0.0], [2.0, 1.0])
    assert curve.source == "black box"
    points = torch.tensor([[-2.0, 0.0]]).double() + 0.37 * torch.tensor([[4.0, 1.0]]).double()
    assert (curve.at(0.37) - copy.deepcopy(model).double()(points)[0]).abs().max() <= curve.error
    assert model.inner.weight.dtype == torch.float32


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.GELU()).eval()
    before = copy.deepcopy(model.state_dict())
    xl.approximate(model, [0.0, 0.0], [1.0, 1.0])
    assert all(torch.equal(before[k], v) and v.dtype == before[k].dtype for k, v in model.state_dict().items())


def test_a_batch_dimension_of_one_is_dropped() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).eval()
    assert xl.approximate(model, torch.zeros(1, 2), torch.ones(1, 2)).at(0.5).shape == (3,)


def test_several_inputs_and_outputs() -> None:
    curve = xl.approximate(lambda a, b: (a.exp(), a * b), ([0.0], [1.0]), ([1.0], [2.0]))
    first, second = curve.at(0.5)
    assert abs(float(first) - np.exp(0.5)) <= curve.error
    assert abs(float(second) - 0.75) <= curve.error
    assert curve.extrema(0, output=1).maximum == pytest.approx(2.0)
    with pytest.raises(xl.ArgumentError, match="several outputs"):
        curve.extrema(0)
    only = xl.approximate(lambda a, b: (a.exp(), a * b), ([0.0], [1.0]), ([1.0], [2.0]), output=1)
    assert abs(float(only.at(0.5)) - 0.75) <= only.error


def test_decisions_agree_with_exact_ones() -> None:
    torch.manual_seed(23)
    body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    nn.init.normal_(body[2].weight)
    ends = torch.randn(4) * 3, torch.randn(4) * 3
    exact = xl.restrict(body, *ends).decisions()
    found = xl.approximate(nn.Sequential(body, nn.Softmax(1)), *ends).decisions()
    assert found.labels == exact.labels
    assert len(found) > 1
    errors = np.array([i.stop_error for i in found][:-1])
    assert (np.abs(found.boundaries.numpy() - exact.boundaries.numpy()) <= errors + 1e-14).all()
    assert found.at(0.0).label == exact.at(0.0).label


def test_thresholds_rivals_and_orders() -> None:
    curve = xl.approximate(nn.Sigmoid(), [-1.0], [3.0])
    assert curve.decisions(threshold=0.5).boundaries.tolist() == pytest.approx([0.25])
    with pytest.raises(xl.ArgumentError, match="no rival"):
        curve.decisions()
    three = xl.approximate(lambda x: torch.cat([x.sin(), x.cos(), x * 0 + 2], 1), [0.0], [1.0])
    assert three.decisions().labels == [2]
    assert three.decisions(rivals=[0, 1]).boundaries.tolist() == pytest.approx([np.pi / 4])
    assert three.decisions("min").labels == [0, 1]


def test_extrema_levels_and_metrics() -> None:
    curve = xl.approximate(torch.sin, [0.0], [2 * np.pi], tol=1e-11)
    extrema = curve.extrema(0)
    assert (extrema.argmax, extrema.argmin) == pytest.approx((0.25, 0.75), abs=1e-6)
    assert abs(extrema.maximum - 1) <= extrema.error
    level = curve.level(0, 0.5)
    assert (np.abs(level.alphas.numpy() - np.array([1, 5]) / 12) <= level.errors.numpy()).all()
    assert level.signs.tolist() == [1, -1]
    metrics = curve.metrics()
    assert float(metrics.total_variation) == pytest.approx(4, abs=1e-9)
    assert float(metrics.largest_slope) == pytest.approx(2 * np.pi, abs=1e-8)
    assert metrics.length == pytest.approx(4, abs=1e-6)
    assert float(metrics.mean) == pytest.approx(0, abs=1e-12)


def test_a_tolerance_below_rounding_warns_and_ends() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 2)).eval()
    with pytest.warns(xl.ToleranceWarning, match="rounding errors do not permit more"):
        curve = xl.approximate(model, torch.zeros(4), torch.ones(4), tol=1e-20)
    assert curve.evaluations < 2000
    assert curve.error < 1e-13


def test_limits_are_kept() -> None:
    def fast(x: Tensor) -> Tensor:
        return torch.sin(1e5 * x)

    with pytest.warns(xl.ToleranceWarning, match="max_evaluations was reached"):
        curve = xl.approximate(fast, [0.0], [1.0], max_evaluations=500)
    assert curve.stopped == "max_evaluations"
    assert curve.evaluations < 5000
    with pytest.warns(xl.ToleranceWarning, match="seconds was reached"):
        assert xl.approximate(fast, [0.0], [1.0], seconds=0).stopped == "seconds"


@pytest.mark.parametrize("jump", [torch.sign, torch.round, torch.floor])
def test_jumps_are_refused_by_name(jump) -> None:
    with pytest.raises(xl.UnsupportedError, match=f"{jump.__name__} is discontinuous"):
        xl.approximate(lambda x: jump(x.tanh() * 3) * x, [-1.0], [1.0])


def test_random_models_are_refused() -> None:
    with pytest.raises(xl.TrainingModeError):
        xl.approximate(nn.Sequential(nn.GELU(), nn.Dropout()), [0.0], [1.0])
    with pytest.raises(xl.CaptureError, match="random"):
        xl.approximate(lambda x: x.exp() + torch.rand_like(x), [0.0], [1.0])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x) * self.calls


class BatchDependent(nn.Module):
    def forward(self, x):
        return torch.tanh(x) if x.shape[0] > 1 else torch.sigmoid(x)


@pytest.mark.parametrize("model", [Counting(), lambda x: torch.tanh(x) + random.random(), BatchDependent()])
def test_models_that_are_not_one_function_are_refused(model) -> None:
    with pytest.raises(xl.CaptureError):
        xl.approximate(model, [0.0], [1.0])


class Overridden:
    __slots__ = ("value",)

    def __init__(self) -> None:
        object.__setattr__(self, "value", 0.5)


class ReadOnly(Overridden):
    value = property(lambda self: 0.5)  # hides the slot, and cannot be set

    def __init__(self) -> None:
        pass


SETTINGS = ReadOnly()


class ReadsOthers(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * SETTINGS.value * float(len(sys.modules) > 0)


def test_objects_that_forward_reads_are_left_alone() -> None:
    modules = set(sys.modules)
    curve = xl.approximate(ReadsOthers(), [0.0], [1.0])
    assert float(curve.at(1.0)) == pytest.approx(0.5 * np.tanh(1.0))
    assert modules <= set(sys.modules)


def test_a_model_that_mixes_a_batch_is_refused() -> None:
    with pytest.raises(xl.CaptureError, match="mixes the points"):
        xl.approximate(lambda x: x.exp() - x.exp().mean(0), [0.0], [1.0])


def test_an_overflow_names_the_operator() -> None:
    with pytest.raises(xl.NumberError) as caught:
        xl.approximate(lambda x: torch.exp(1000 * x) / torch.exp(1000 * x), [0.0], [1.0])
    assert "exp" in caught.value.where


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"tol": 0}, "tol"),
        ({"tol": float("nan")}, "tol"),
        ({"tol": "small"}, "tol"),
        ({"max_evaluations": 0}, "max_evaluations"),
        ({"seconds": -1}, "seconds"),
        ({"speed": 3}, "speed"),
        ({"output": 3}, "output"),
    ],
)
def test_bad_options(options, word: str) -> None:
    with pytest.raises(xl.ArgumentError) as caught:
        xl.approximate(lambda x: (x.exp(), x), [0.0], [1.0], **options)
    assert word in str(caught.value)


def test_bad_points() -> None:
    with pytest.raises(xl.LineError):
        xl.approximate(nn.GELU(), [0.0], [1.0, 2.0])
    with pytest.raises(xl.CaptureError):
        xl.approximate(nn.Sequential(nn.Linear(3, 2), nn.GELU()).eval(), [0.0], [1.0])
    with pytest.raises(xl.ArgumentError, match="not on the line"):
        xl.approximate(nn.GELU(), [0.0], [1.0]).at(1.5)


def test_saved_curves_are_read_back_and_damaged_ones_refused(tmp_path) -> None:
    curve = xl.approximate(lambda x: (x.exp(), x.sin().relu()), [-1.0], [1.0])
    curve.save(tmp_path / "curve.safetensors")
    again = xl.Approximation.load(tmp_path / "curve.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(curve.at(0.3), again.at(0.3), strict=True))
    assert (again.status, again.error, again.evaluations) == (curve.status, curve.error, curve.evaluations)
    data = (tmp_path / "curve.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[:-8])
    with pytest.raises(xl.FileError):
        xl.Approximation.load(tmp_path / "cut.safetensors")


def test_pictures_and_pages(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    curve = xl.approximate(lambda x: torch.softmax(torch.cat([x, x**2], 1), 1), [-1.0], [2.0])
    axes = curve.plot(labels=["a", "<b>"])
    assert [line.get_label() for line in axes.lines] == ["a", "<b>"]
    text = curve.to_html(tmp_path / "curve.html", labels=["a", "<b>"], title="A <title>").read_text()
    assert "estimated" in text
    assert "<b>b" not in text
    assert "A &lt;title&gt;" in text
    assert 'content="width=device-width' in text
    assert text.count("data:image/svg+xml") == 2  # for light and for dark pages
    assert curve.decisions().plot() is not None


def test_progress_and_memory_do_not_change_the_answer() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    shares: list[float] = []
    one = xl.approximate(model, torch.zeros(3), torch.ones(3), progress=lambda share, pieces: shares.append(share))
    two = xl.approximate(model, torch.zeros(3), torch.ones(3), memory=20_000)
    assert shares[-1] == pytest.approx(1.0)
    alphas = torch.linspace(0, 1, 50)
    assert (one.at(alphas) - two.at(alphas)).abs().max() <= one.error + two.error


def test_a_certified_curve_contains_the_estimated_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)).eval()
    points = torch.zeros(3), torch.ones(3)
    proven, estimated = xl.approximate(model, *points, certified=True), xl.approximate(model, *points, tol=1e-12)
    assert (proven.status, estimated.status) == ("certified", "estimated")
    assert proven.error <= 1e-8
    alphas = torch.linspace(0, 1, 50)
    assert (proven.at(alphas) - estimated.at(alphas)).abs().max() <= proven.error + estimated.error
    assert len(proven.decisions()) == len(estimated.decisions())


def test_a_bound_that_rounding_forbids_is_a_warning() -> None:
    with pytest.warns(xl.ToleranceWarning, match="proven to be at most"):
        xl.approximate(nn.Tanh(), [0.0], [1.0], tol=1e-18, certified=True)


@pytest.mark.parametrize("model", [torch.tanh, nn.Sequential(nn.Linear(2, 2), nn.Hardswish())])
def test_what_cannot_be_certified_is_refused(model) -> None:
    with pytest.raises((xl.ArgumentError, xl.UnsupportedError)):
        xl.approximate(model, torch.zeros(2), torch.ones(2), certified=True)


def test_the_kronrod_rule_is_exact_up_to_degree_31() -> None:
    nodes, kronrod, gauss = gauss_kronrod()
    for degree in range(32):
        exact = 0.0 if degree % 2 else 2 / (degree + 1)
        assert abs(kronrod @ nodes**degree - exact) < 1e-14
        assert degree > 19 or abs(gauss @ nodes**degree - exact) < 1e-14


def test_ticks_of_a_picture_of_decisions_are_the_breakpoints():
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection

    curve = xl.approximate(torch.nn.Tanh(), [-30.0, 0.0], [30.0, 0.5], tol=1e-10)
    axes = curve.decisions().plot()
    drawn = [c for c in axes.collections if isinstance(c, LineCollection)]
    ticks = [segment[0][0] for collection in drawn for segment in collection.get_segments()]
    pyplot.close("all")
    assert len(curve) > 2
    assert set(curve.breakpoints[1:-1].tolist()) <= set(ticks)
    assert len(set(ticks)) < 2 * len(curve)


@pytest.mark.parametrize("limit", [200, 500, 3000])
def test_a_limit_of_evaluations_is_kept_while_pieces_are_finished(limit: int) -> None:
    with pytest.warns(xl.ToleranceWarning, match="max_evaluations was reached"):
        curve = xl.approximate(lambda x: torch.sin(3000 * x), [0.0], [1.0], tol=1e-14, max_evaluations=limit)
    assert curve.stopped == "max_evaluations"
    assert curve.evaluations <= limit + 100
    alphas = torch.linspace(0, 1, 999, dtype=torch.float64)
    assert float((curve.at(alphas)[:, 0] - torch.sin(3000 * alphas)).abs().max()) <= curve.error


def test_a_jump_of_a_comparison_is_announced_with_its_place() -> None:
    model = lambda x: torch.where(torch.tanh(x) > 0.25, x, -x)  # noqa: E731
    with pytest.warns(xl.ToleranceWarning, match=r"jumps, or is too steep to follow, near alpha 0\.255"):
        curve = xl.approximate(model, [0.0], [1.0])
    assert curve.error > 0.5  # the jump is that of x at atanh(1/4) = 0.2554
