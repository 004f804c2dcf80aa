"""One run of the whole demo for all its tests, through the command."""

import contextlib
import io
import json
import sys

import pytest

from exactline import cli


@pytest.fixture(scope="session")
def demo_output(tmp_path_factory):
    """The folder of a demo, and the JSON document of the command."""
    folder, output = tmp_path_factory.mktemp("demo") / "out", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr(sys, "argv", ["exactline", "demo", "--out", str(folder), "--json"])
        with pytest.raises(SystemExit) as done:
            cli.main()
    assert not done.value.code
    return folder, json.loads(output.getvalue())


@pytest.fixture(scope="session")
def facts(demo_output):
    """The numbers of each chapter."""
    return demo_output[1]["chapters"]
