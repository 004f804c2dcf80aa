"""Assembly of parts: values grow in one buffer, without a second copy."""

from __future__ import annotations

import pytest
import torch

from exactline.engines import assemble
from exactline.engines.assemble import RowBuffer


@pytest.mark.parametrize("reserved", [1, 200, 1 << 24])
@pytest.mark.parametrize("shape", [(3,), (2, 2), ()])
def test_rows_come_out_in_order(shape, reserved, monkeypatch):
    monkeypatch.setattr(assemble, "RESERVED_BYTES", reserved)
    blocks = [torch.randn(count, *shape, dtype=torch.float64) for count in (4, 0, 1, 30, 2)]
    buffer = RowBuffer(shape)
    for block in blocks:
        buffer.append(block)
    assert torch.equal(buffer.finish(), torch.cat(blocks))


def test_no_rows():
    assert RowBuffer((5, 2)).finish().shape == (0, 5, 2)
