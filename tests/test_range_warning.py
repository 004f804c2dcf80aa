"""Ends of a line whose ranges do not belong together."""

import warnings

import pytest
import torch

import exactline as xl
from exactline.formats.points_range import RangeWarning


def test_restrict_warns_of_pixels_beside_shares():
    pixels, shares = torch.linspace(0, 255, 64), torch.linspace(0, 1, 64)
    with pytest.warns(RangeWarning, match=r"start are 0 to 255, those of end 0 to 1\. Is one of them scaled\?"):
        line = xl.restrict(torch.nn.ReLU(), pixels, shares)
    assert len(line) == 1  # it is a warning only
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xl.restrict(torch.nn.ReLU(), pixels, torch.zeros(64))
        xl.restrict(torch.nn.ReLU(), shares, shares.flip(0))
