"""One server for all tests of it that change nothing for others."""

from __future__ import annotations

import pytest

from tests.rpc.models import folder_of
from tests.rpc.running import running


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def server(folder):
    with running(models=folder) as found:
        yield found
