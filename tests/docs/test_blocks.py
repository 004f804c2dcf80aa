"""Every block of Python in the documentation runs, page by page, and prints what the page shows."""

import re
import subprocess
import sys
from itertools import combinations

import pytest

from tests.docs.outputs import OUTPUT, agree, run_page
from tests.docs.pages import PAGES, ROOT, Block, blocks, name
from tests.docs.pictures import pictures_behind, resemble

ADVICE = "run python scripts/doc_outputs.py, and show it behind the block"
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for printed in run_page(page, tmp_path):
        if printed.shown is not None:
            advice = f"{printed.shown}: run python scripts/doc_outputs.py {name(page)}"
            assert agree(printed.actual, printed.shown.text), f"{advice}\n{printed.actual}"
        elif printed.block.language == "python":
            assert not printed.actual.strip(), f"{printed.block} prints, and the page does not show it"
        assert not printed.dropped, f"{printed.block} computes what nobody sees: print {', '.join(printed.dropped)}"
        shown = pictures_behind(printed.block) if printed.pictures and page.parent.name != "api" else []
        for made in printed.pictures if page.parent.name != "api" else ():
            assert any(resemble(made, path) for path in shown), f"{printed.block} draws {made.name}: {ADVICE}"


def test_values_that_nobody_sees_and_pictures_are_noticed(tmp_path, monkeypatch):
    """Otherwise the test above could not fail."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "page.md"
    code = "x = [1]\nx.append(2)\nx, len(x)\nif x:\n    len(x)\nprint(x)\nopen('a.png', 'w').close()\n"
    text = f"```python\n{code}```\n"
    monkeypatch.setattr("tests.docs.outputs.blocks", lambda _: [Block(page, 2, "python", code)])
    monkeypatch.setattr("tests.docs.outputs.name", lambda _: "docs/page.md")
    (printed,) = run_page(page, tmp_path)
    assert printed.dropped == ("(x, len(x))", "len(x)")
    assert printed.actual == "[1, 2]\n"
    assert [path.name for path in printed.pictures] == ["a.png"]

    for behind, shown in (
        ("\n![a](b.png#only-light)\n![a](c.png#only-dark)\n", ["b.png"]),
        ("\n```output\n# 2\n```\n\n![a](b.png)\n", ["b.png"]),
        ("\n## Next\n\n![a](b.png)\n", []),
        ("\n```sh\nls\n```\n\n![a](b.png)\n", []),
    ):
        (tmp_path / "page.md").write_text(text + behind)
        found = pictures_behind(Block(tmp_path / "page.md", 2, "python", code))
        assert [path.name for path in found] == shown


def test_other_pictures_do_not_resemble_each_other():
    folder = ROOT / "docs" / "images"
    pictures = sorted(folder.rglob("*.png"))
    assert all(resemble(path, path) for path in pictures)
    twins = {frozenset((a.name, b.name)) for a, b in combinations(pictures, 2) if resemble(a, b)}
    assert twins == set()


def test_an_output_block_follows_code():
    for page in PAGES:
        every = blocks(page)
        for before, block in zip([None, *every], every, strict=False):
            if block.language == OUTPUT:
                assert before is not None, str(block)
                assert before.language in ("python", "sh"), str(block)


@pytest.mark.parametrize(
    ("actual", "shown"),
    [
        ("358 pieces in 16 ms", "358 pieces in 1.8 s"),
        ("0.4210012", "0.4210011"),
        ("0.09528965098112892", "0.09528996512589956"),
        ("error 3e-16", "error 8.8e-15"),
        ("tensor([[1.0000,\n   2.0000]])", "tensor([[1.0000, 2.0000]])"),
        ("1,048,577 breaks", "1,048,577 breaks"),
        ("┏━━━━━━┓\n┃ 1e-14 ┃", "┏━━━━━━━━┓\n┃ 8.1e-15 ┃"),
    ],
)
def test_outputs_agree_that_differ_in_rounding_and_time(actual, shown):
    assert agree(actual, shown)


@pytest.mark.parametrize(
    ("actual", "shown"),
    [
        ("358 pieces", "357 pieces"),
        ("0.42100", "0.42103"),
        ("a 4", "an 8"),
        ("3e-6", "5e-6"),
        ("[1.0, 2.0]", "[1.0]"),
        ("0.5", "5e-16"),
    ],
)
def test_outputs_that_differ_in_substance_do_not_agree(actual, shown):
    assert not agree(actual, shown)


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
    folder = ROOT / "docs" / "images"
    for picture in folder.rglob("*.*"):
        assert f"images/{picture.relative_to(folder).as_posix()}" in shown, picture.name


def test_no_page_speaks_of_places_on_somebody_s_machine():
    for page in PAGES:
        text = page.read_text()
        assert str(ROOT) not in text, name(page)
        assert not re.search(r"/home/|/Users/|/tmp/|C:\\", text), name(page)
