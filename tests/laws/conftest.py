"""Small tensors need one thread: a second only waits, and for long where other programs run too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# laws that do not hold yet, each a piece of open work; whoever mends one takes its line out
OPEN = {
    "test_ties_make_neither_more_breaks_nor_fewer[addmv-0]": "the sweep's errors of points of shape () have no dim 1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open laws are expected to fail."""
    for item in items:
        if reason := OPEN.get(item.name):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
