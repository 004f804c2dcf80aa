"""One run of the whole demonstration for all tests of it, through the command."""

import contextlib
import io
import json
import sys

import pytest

from exactline import cli


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder of a demonstration and what the command said of it."""
    folder, said = tmp_path_factory.mktemp("demo") / "out", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", ["exactline", "demo", "--out", str(folder), "--json"])
        with pytest.raises(SystemExit) as done:
            cli.main()
    assert not done.value.code
    return folder, json.loads(said.getvalue())


@pytest.fixture(scope="session")
def facts(made):
    """The numbers behind each chapter."""
    return made[1]["chapters"]
