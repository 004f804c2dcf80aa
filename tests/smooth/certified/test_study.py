"""Trained encoders on held-out lines, and a published vision transformer with ReLU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.certified import fine_integrated_gradients, load_digits, train
from benchmarks.certified_vision import FILE, VisionTransformer
from exactline.smooth.certified.attributions import certified_integrated_gradients
from exactline.smooth.certified.curve import certify_curve
from exactline.smooth.certified.record import record_gradients

LINES = 100
MAX_ROUNDING = 1e-13  # of the finer rule, relative to the L1 norm: some hundred roundings


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "lines"), [(2, LINES), (4, 5)], ids=["2 layers", "4 layers"])
def test_held_out_lines_contain_a_finer_rule(layers, lines):
    model = train(layers)
    images, _ = load_digits("test")
    tape = record_gradients(model, [images[0]])
    for end in images[:lines]:
        target = int(model(end[None]).argmax())
        result = certified_integrated_gradients(tape, torch.zeros(64), end, target, 1e-6)
        assert result.error <= 1e-6
        truth = fine_integrated_gradients(model, end, target)
        rounding = MAX_ROUNDING * float(truth.abs().sum())
        assert bool(((result.attributions[0] - truth).abs() <= result.truncation[0] + rounding).all())


@pytest.mark.slow
@pytest.mark.parametrize("step", [1e-4, 1e-3, 0.02])
def test_a_vision_transformer_with_relu_is_certified(data, step):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = data / FILE
    model = VisionTransformer(path).double().eval()
    start = torch.rand(3, 32, 32, dtype=torch.float64)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (published,) = session.run(None, {"input": start[None].float().numpy()})
    np.testing.assert_allclose(model(start[None]).numpy(), published, atol=1e-4)

    end = start + step * torch.randn(3, 32, 32, dtype=torch.float64).sign()
    curve = certify_curve(model, start, end, 1e-6)
    assert curve.status == "certified"
    alphas = torch.linspace(0, 1, 101, dtype=torch.float64)
    truth = model(start + alphas.view(-1, 1, 1, 1) * (end - start)).numpy()
    assert np.abs(curve.at(alphas.tolist()) - truth).max() <= curve.error + curve.rounding_error
