"""Cases that are not right yet, each a piece of open work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

OPEN: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open cases are expected to fail; whoever mends them takes the line out."""
    for item in items:
        reason = next((OPEN[word] for word in OPEN if word in item.name), None)
        if reason is not None and "adversarial" in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Small networks are quickest on one thread; tests about threads choose their own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
