"""How a line is divided into segments."""

import re

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.patches import segmentation


def test_segments_with_fewer_breaks_than_forecast_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 64, 3)).double().eval()
    start, end = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    expected = xl.restrict(model, start, end, engine="patches")
    monkeypatch.setattr(segmentation, "MAX_SEGMENT_BREAKS", {"cpu": 100})
    monkeypatch.setattr(segmentation, "FORECAST_MARGIN", 20.0)  # far too many segments
    line = xl.restrict(model, start, end, engine="patches")
    found = re.search(r"(\d+) segments", line.engine)
    assert found is not None
    assert int(found[1]) <= len(expected) / 30
    torch.testing.assert_close(line.alphas, expected.alphas, rtol=0, atol=1e-12)
