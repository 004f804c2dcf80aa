"""One server for all tests that do not affect each other."""

from __future__ import annotations

import pytest

from tests.rpc.nnet_files import write_nnet_files
from tests.rpc.server_process import start_server


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_nnet_files(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def server(folder):
    with start_server(models=folder) as found:
        yield found
