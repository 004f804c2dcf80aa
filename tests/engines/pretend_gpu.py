"""A GPU made of a CPU: the engines take the paths of a device, with the constants of a GPU, on tensors of a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from exactline.engines.patches import candidates, convolve, error_oracle, segmentation, timeline
from exactline.ops import gemm, masks

TABLES: list[dict[str, Any]] = [  # of constants by type of device
    candidates.MAX_BLOCK_NUMBERS,
    convolve.MAX_UNFOLDED_NUMBERS,
    segmentation.COPIES_PER_NODE,
    segmentation.DEADLINE_BREAKS,
    segmentation.FIRST_FORECAST_POINTS,
    segmentation.MAX_BREAKS_SHARE,
    segmentation.MAX_SEGMENT_BREAKS,
    timeline.BLOCK_NUMBERS,
]
FREE_BYTES = 1 << 30


@contextmanager
def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Treat the CPU as a GPU inside a `with` block."""
    with monkeypatch.context() as patch:
        patch.setattr(masks, "HOST_DEVICES", frozenset())
        patch.setattr(gemm, "GEMM_DEVICES", frozenset({"cpu"}))
        patch.setattr(error_oracle, "free_device_bytes", lambda _: FREE_BYTES)
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        for table in TABLES:
            patch.setitem(table, "cpu", table["cuda"])
        yield
