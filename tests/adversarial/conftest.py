"""Cases that are not right yet, each a piece of open work."""

from __future__ import annotations

import pytest

OPEN = {"ramp": "ramps narrower than the estimated error become one break, and values beside them bend"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open cases are expected to fail; whoever mends them takes the line out."""
    for item in items:
        reason = next((OPEN[word] for word in OPEN if word in item.name), None)
        if reason is not None and "adversarial" in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
