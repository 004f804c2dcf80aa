"""The time of a capture and of planning is reported apart from that of the sweep."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

import exactline as xl

CAPTURE_SECONDS = 0.02


class SlowToTrace(nn.Module):
    """A network whose capture takes a while."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            time.sleep(CAPTURE_SECONDS)
        return torch.relu(x)


def test_a_line_and_a_plane_report_their_setup():
    for make in (
        lambda model: xl.restrict(model, [-1.0, 2.0], [1.0, 2.0]),
        lambda model: xl.restrict_many(model, [[-1.0, 2.0]], [[1.0, 2.0]]),
        lambda model: xl.restrict_plane(model, [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]]),
    ):
        model = SlowToTrace().eval()
        began = time.perf_counter()
        first = make(model)
        taken = time.perf_counter() - began
        assert first.setup_seconds >= CAPTURE_SECONDS
        assert first.seconds > 0
        assert first.setup_seconds + first.seconds <= taken


def test_the_setup_of_many_lines_is_shared_among_them():
    lines = xl.restrict_many(SlowToTrace().eval(), [[-1.0], [1.0]], [[1.0], [2.0]])
    assert sum(line.setup_seconds for line in lines) == lines.setup_seconds


def test_files_keep_the_setup(tmp_path):
    line = xl.restrict(SlowToTrace().eval(), [-1.0], [1.0])
    line.save(tmp_path / "line.safetensors")
    assert xl.Restriction.load(tmp_path / "line.safetensors").setup_seconds == line.setup_seconds
