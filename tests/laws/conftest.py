"""The laws of one sample run one after another: it is captured once, and not in every worker."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def sample(item: pytest.Item) -> str | None:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        return str(params["sample"]) if "sample" in params and "laws" in item.path.parts else None

    places = [i for i, item in enumerate(items) if sample(item) is not None]
    for place, item in zip(
        places, sorted((items[i] for i in places), key=lambda item: sample(item) or ""), strict=True
    ):
        items[place] = item
