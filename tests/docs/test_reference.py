"""The reference is whole and current: every public name, an example for each, every operator, every promise."""

import ast
import re
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest

import exactline as xl
from tests.docs.pages import PAGES, ROOT, blocks
from tests.docs.pictures import resemble

API = ROOT / "docs" / "api"
PACKAGES = ("attr", "callbacks", "decide", "exact", "plot", "rpc.client", "scale", "zoo")
MODULES = {"attr", "callbacks", "exact", "paper", "plot", "scale", "zoo"}  # public names that are packages
HEADING = re.compile(r"^## `(.+)`$", re.MULTILINE)
SECTION = re.compile(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def exported(package: str) -> set[str]:
    """What a package gives away: the names that its first file imports as themselves."""
    tree = ast.parse(Path(import_module(f"exactline.{package}").__file__ or "").read_text())
    imports = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {f"exactline.{package}.{alias.name}" for alias in imports if alias.asname == alias.name}


def public() -> set[str]:
    """Every public name; a package counts by its own names."""
    names = {f"exactline.{name}" for name in xl.__all__ if name not in MODULES}
    return names.union(*(exported(package) for package in PACKAGES))


def documented() -> dict[str, str]:
    """The section of every name on the pages of the reference."""
    return {name: text for page in API.glob("*.md") for name, text in SECTION.findall(page.read_text())}


def results() -> set[str]:
    """What is documented because it is given back by something public."""
    return {name for page in run_path(str(ROOT / "scripts" / "api_pages.py"))["PAGES"] for name in page.results}


def test_every_public_name_is_in_the_reference_and_nothing_else_is():
    shown = documented().keys()
    assert public() - shown == set()
    assert shown - public() - results() == set()
    assert results() & public() == set()


def test_a_name_is_documented_once():
    names = [name for page in API.glob("*.md") for name in HEADING.findall(page.read_text())]
    assert len(names) == len(set(names))


def test_every_public_name_has_a_sentence_and_an_example():
    """An example is a session in its own section (run as a doctest) or a block of the page (run as any block)."""
    used = "".join(b.text for page in API.glob("*.md") for b in blocks(page) if b.language == "python")
    for name, text in documented().items():
        if name in public():
            short = name.rsplit(".", 1)[1]
            assert re.search(r"^[A-Z`(].*[.:,]", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE), name
            assert "```pycon" in text or re.search(rf"\b{short}\b", used), f"{name} has no example"


def parameters(signature: str) -> set[str]:
    """The names in a signature of the reference; none for the line of a class that only names its bases."""
    if signature.startswith("class "):
        return set()
    text = signature if re.match(r"(async )?def ", signature) else f"def {signature}"
    function = ast.parse(re.sub(r"  # [^\n]*\Z", "", text) + ": ...").body[0]
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)), signature
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {arg.arg for arg in named if arg is not None and not arg.arg.startswith("_")} - {"cls"}


def test_every_parameter_is_explained():
    """A function, method or class lists its parameters, or refers to the method that does."""
    part = re.compile(r"^###? `([^`]+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
    checked = 0
    for page in API.glob("*.md"):
        for name, text in part.findall(page.read_text()):
            signature = re.search(r"```pyi\n(.*?)```", text, re.DOTALL)
            if signature is None or "(" not in signature[1] or re.search(r"^See \[`", text, re.MULTILINE):
                continue
            wanted = parameters(signature[1].strip())
            rows = re.findall(r"^\* `([^`]+)`:", text, re.MULTILINE)
            listed = {label.strip(" *") for row in rows for label in row.split(",")}
            unpacked = "Unpack[" in signature[1] and len(listed) > len(wanted)  # its keywords, one by one
            assert wanted - listed <= ({"options"} if unpacked else set()), (name, wanted - listed)
            checked += bool(wanted)
    assert checked > 120


@pytest.mark.parametrize("script", ["api_reference", "operator_reference"])
def test_made_pages_are_current(script):
    made = run_path(str(ROOT / "scripts" / f"{script}.py"))
    pages = made["pages"]() if "pages" in made else {made["PAGE"]: made["page"]()}
    for path, text in pages.items():
        assert path.read_text() == text, f"run python scripts/{script}.py"
    if script == "api_reference":
        assert {path.name for path in pages} == {path.name for path in API.iterdir()}


def test_promises_are_listed_on_one_page():
    """A row of promises ends with the command or test that measures it."""
    row = re.compile(r"^\|.*\| (?:`make (?:test-all|bench)`|`tests/[a-z_/]+\.py`|by hand) \|$", re.MULTILINE)
    pages = [page for page in PAGES if row.search(page.read_text())]
    assert pages == [ROOT / "docs" / "promises.md"]


def test_the_gallery_shows_the_code_of_the_examples():
    made = run_path(str(ROOT / "scripts" / "gallery.py"))
    assert made["PAGE"].read_text() == made["page"](), "run python scripts/gallery.py --page"


@pytest.mark.slow
def test_the_gallery_shows_the_pictures_of_the_examples(tmp_path):
    made = run_path(str(ROOT / "scripts" / "gallery.py"))
    made["draw"](tmp_path)
    pictures = sorted(made["PICTURES"].iterdir())
    assert [path.name for path in pictures] == sorted(path.name for path in tmp_path.iterdir())
    for path in pictures:
        assert resemble(tmp_path / path.name, path), f"{path.name}: run python scripts/gallery.py"
