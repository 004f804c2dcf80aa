"""Units that cross a knot exactly where an earlier unit does: their slope jumps are part of the patch of that break."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.patches.segment import Segment, SegmentBreaks

SIZE = 6


class DenseBlock(nn.Module):
    """Layers that read the features and all outputs before them: every unit of the features is seen three times."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.features, self.activation = nn.Conv2d(2, 4, 3, padding=1), activation
        self.convolutions = nn.ModuleList(nn.Conv2d(4 + 2 * i, 2, 3, padding=1) for i in range(3))
        self.head = nn.Conv2d(10, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.features(x)
        for convolution in self.convolutions:
            seen = torch.cat([seen, convolution(self.activation(seen))], 1)
        return self.head(seen).flatten(1)


ACTIVATIONS = {
    "ReLU": nn.ReLU(),
    "LeakyReLU": nn.LeakyReLU(0.1),
    "Hardtanh": nn.Hardtanh(-0.2, 0.3),  # two knots, neither of them 0
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_break_has_one_patch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = list[Segment]()
    run = Segment.run

    def run_and_keep(segment: Segment) -> SegmentBreaks:
        breaks = run(segment)
        segments.append(segment)
        return breaks

    monkeypatch.setattr(Segment, "run", run_and_keep)
    torch.manual_seed(0)
    model = DenseBlock(ACTIVATIONS[name]).double().eval()
    start, end = torch.randn(2, 2, SIZE, SIZE, dtype=torch.float64)
    line, expected = (xl.restrict(model, start, end, engine=engine) for engine in ("patches", "dense"))
    crossings = sum(len(at.alpha) for segment in segments for at in segment.at_entries.values())
    patches = sum(len(new.alpha) for segment in segments for new in segment.new_breaks.values())
    assert crossings > 50
    assert patches == len(line) - 1
    torch.testing.assert_close(line.alphas, expected.alphas, rtol=0, atol=1e-12)
    assert torch.equal(line.origin_table, expected.origin_table)
    assert int(line.origin_table[:, 2].sum()) == crossings + patches
    torch.testing.assert_close(line.values, expected.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_single_precision_has_as_many_breaks(name: str) -> None:
    torch.manual_seed(0)
    model = DenseBlock(ACTIVATIONS[name]).double().eval()
    start, end = torch.randn(2, 2, SIZE, SIZE, dtype=torch.float64)
    double, single = (xl.restrict(model, start, end, engine="patches", dtype=t) for t in (torch.float64, torch.float32))
    assert len(single) == len(double)
