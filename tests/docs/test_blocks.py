"""Every block of Python in the documentation runs, page by page, and those commands that need nothing but the page."""

import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from exactline import cli
from tests.docs.pages import PAGES, ROOT, blocks, commands, name

RUN = {"docs/quickstart.md", "docs/formats.md", "docs/planes.md", "docs/report.md"}  # pages whose commands are run too
SKIP = {"exactline doctor"}  # tested by itself, and it takes seconds

NNET = """// four inputs, three hidden units, two outputs
2,4,2,4,
4,3,2,
0,
-9,-9,-9,-9,
9,9,9,9,
0,0,0,0,0,
1,1,1,1,1,
1,-1,0.5,0,
0,1,1,-1,
-1,0.25,0,1,
0.5,
-0.25,
0,
1,-1,0.5,
-1,1,1,
0,
0.1,
"""


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.language == "python" for b in blocks(p))], ids=name)
@pytest.mark.every(16)
def test_the_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nnet").write_text(NNET)
    torch.manual_seed(0)
    space = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
            exec(compile(padded, str(page), "exec"), space)
        elif name(page) in RUN:
            for words in commands(block):
                if " ".join(words) not in SKIP:
                    result = CliRunner().invoke(cli.app, words[1:])
                    assert result.exit_code == 0, f"{block}: {' '.join(words)}: {result.exception}"


def test_what_pages_write_goes_nowhere_else():
    """Blocks run in a folder of their own; none names a place outside of it."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                assert not re.search(r"""["'](/|~|\.\./)""", block.text), str(block)


def test_blocks_are_formatted(tmp_path):
    """The blocks of all pages as files, so that one call of ruff looks at them; lines may be as long as anywhere."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                path = tmp_path / f"{name(page).replace('/', '_')}_{block.line}.py"
                path.write_text(block.text)
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", "120", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_picture_of_the_documentation_is_shown_somewhere():
    shown = "".join(page.read_text() for page in PAGES)
    for picture in (ROOT / "docs" / "images").iterdir():
        assert f"images/{picture.name}" in shown, picture.name


def test_no_page_speaks_of_places_on_somebody_s_machine():
    for page in PAGES:
        text = page.read_text()
        assert str(ROOT) not in text, name(page)
        assert not re.search(r"/home/|/Users/|/tmp/|C:\\", text), name(page)
