"""One hundred held-out lines of a trained encoder: every one contains the value of a much finer rule."""

from __future__ import annotations

import pytest
import torch

from benchmarks.certified import fine_integrated_gradients, load_digits, train
from exactline.smooth.certified.attributions import certified_integrated_gradients
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
