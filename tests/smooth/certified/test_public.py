"""Proven bounds through the public functions: curves, decisions, files and the command."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from tests.cli.running import call_command

ALPHAS = torch.linspace(0, 1, 401, dtype=torch.float64)


class Touching(nn.Module):
    """Two outputs that are equal at zero without crossing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x * x, 0 * x], 1)


def write_onnx(module: nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (torch.zeros(1, *shape),), str(path), dynamo=False)
    return path


def make_smooth() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 4), nn.Softmax(1)).eval()


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return write_onnx(make_smooth(), (3,), tmp_path_factory.mktemp("certified") / "smooth.onnx")


def test_boundaries_are_bracketed():
    """tanh(2 alpha - 1) and tanh(1 - 2 alpha) are equal at 1/2, and nowhere else."""
    curve = xl.approximate(nn.Tanh(), [-1.0, 1.0], [1.0, -1.0], tol=1e-10, certified=True)
    assert curve.status == "certified"
    first, second = curve.decisions()
    assert (first.label, second.label) == (1, 0)
    assert abs(second.start - 0.5) <= second.start_error <= 1e-8
    assert first.stop == second.start
    smallest = curve.decisions("min")
    assert smallest.labels == [0, 1]


@pytest.mark.parametrize(("threshold", "labels"), [(0.0, [0, 1]), (0.9, [0]), (-0.9, [1])])
def test_a_threshold_is_compared_with_certainty(threshold, labels):
    curve = xl.approximate(nn.Tanh(), [-1.0], [1.0], tol=1e-10, certified=True)
    assert curve.decisions(threshold=threshold).labels == labels


def test_outputs_that_touch_are_tied_where_nothing_is_proven():
    curve = xl.approximate(Touching(), [-1.0], [1.0], tol=1e-10, certified=True)
    before, touching, after = curve.decisions()
    assert (before.label, after.label) == (0, 0)
    assert touching.tied == (0, 1)
    assert touching.start < 0.5 < touching.stop
    assert touching.stop - touching.start < 1e-3


def test_labels_hold_outside_of_the_brackets():
    model = make_smooth().double()
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        start, end = 3 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
        curve = xl.approximate(model, start, end, tol=1e-9, certified=True)
        values = model(start + ALPHAS[:, None] * (end - start)).detach()
        assert float((curve.at(ALPHAS) - values).abs().max()) <= curve.error <= 1e-9
        for interval in curve.decisions():
            inside = (interval.start + interval.start_error < ALPHAS) & (interval.stop - interval.stop_error > ALPHAS)
            if not interval.tied:
                assert (values[inside].argmax(1) == interval.label).all()


def test_a_file_is_certified(file):
    network, model = xl.load(file), make_smooth().double()
    start, end = torch.zeros(3), torch.tensor([1.0, -2.0, 0.5])
    curve = xl.approximate(network, start, end, tol=1e-9, certified=True)
    assert curve.status == "certified"
    truth = model(ALPHAS[:, None] * end.double()).detach()
    assert float((curve.at(ALPHAS) - truth).abs().max()) <= curve.error <= 1e-9
    ig = xl.attr.IntegratedGradients(network, tol=1e-8, certified=True)
    found = ig.attribute(end[None].double(), target=2)
    assert ig.report.status == "certified"
    estimated = xl.attr.IntegratedGradients(model, tol=1e-13).attribute(end[None].double(), target=2)
    assert float((found - estimated).abs().sum()) <= float(ig.report.error[0]) * float(found.abs().sum())


def test_a_piecewise_linear_file_with_a_tail_is_certified(tmp_path):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2), nn.Softmax(1))
    network = xl.load(write_onnx(model, (3,), tmp_path / "relu.onnx"))
    end = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    curve = xl.approximate(network, torch.zeros(3), end, tol=1e-9, certified=True)
    assert curve.status == "certified"
    truth = model.double()(ALPHAS[:, None] * end).detach()
    assert float((curve.at(ALPHAS) - truth).abs().max()) <= curve.error <= 1e-9


def test_an_operator_of_a_file_without_a_rule_is_named(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Hardswish())
    network = xl.load(write_onnx(model, (3,), tmp_path / "hard.onnx"))
    with pytest.raises(xl.UnsupportedError, match=r"no rule for proven bounds") as caught:
        xl.approximate(network, torch.zeros(3), torch.ones(3), certified=True)
    assert "Hard" in caught.value.where or "hard" in caught.value.where


def test_the_command_certifies(file, tmp_path, monkeypatch, capsys):
    ends = []
    for name, point in (("a", np.zeros(3)), ("b", np.ones(3))):
        np.save(tmp_path / f"{name}.npy", point)
        ends.append(str(tmp_path / f"{name}.npy"))
    line = ("--from", ends[0], "--to", ends[1])
    status, out, err = call_command(monkeypatch, capsys, "approximate", file, *line, "--certified", "--json")
    assert status == 0, err
    assert json.loads(out)["status"] == "certified"


def test_a_tolerance_below_rounding_ends_with_what_can_be_proven():
    model, end = make_smooth().double(), torch.ones(3, dtype=torch.float64)
    with pytest.warns(xl.ToleranceWarning, match="proven to be at most"):
        curve = xl.approximate(model, torch.zeros(3), end, tol=1e-30, certified=True)
    assert curve.status == "certified"
    assert 1e-30 < curve.error < 1e-9
    ig = xl.attr.IntegratedGradients(model, tol=1e-30, certified=True)
    with pytest.warns(xl.ToleranceWarning, match="proven to be at most"):
        ig.attribute(end[None], target=0)
    assert ig.report.status == "certified up to rounding"
    assert float(ig.report.error[0]) < 1e-12
