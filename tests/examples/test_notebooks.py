"""The notebooks in examples/ are made from their sources, fit to be shown, and still say what is stored in them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: notebooks are not run")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: notebooks are not run")
pytest.importorskip("captum", reason="captum is not installed: notebooks are not run")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: notebooks are not run")
import nbformat

ROOT = Path(__file__).parents[2]
NAMES = ["acas", "attribution", "regions_during_training", "text_transformer"]
LARGEST = 600_000  # bytes of a stored notebook
TIME = re.compile(r"\b\d+(\.\d+)? (ms|s)\b")
ROUNDING = re.compile(r"\b\d(\.\d+)?e-1\d\b")  # numbers as small as errors of float64
UNSET = "EXACTLINE_DATA is not set: no published network to ask.\n"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return run_path(str(ROOT / "scripts" / "notebooks.py"))


def stored(name: str) -> Any:
    return nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)


def shown(cell: Any) -> str:
    """All text that a cell shows, without times and without what is nothing but rounding."""
    parts: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        else:
            parts += [f"{kind}: {output.data[kind]}" for kind in sorted(output.data) if kind.startswith("text/")]
            parts += [kind for kind in sorted(output.data) if not kind.startswith("text/")]
    return ROUNDING.sub("(rounding)", TIME.sub("(time)", "\n".join(parts)))


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_source_has_its_notebook():
    assert sorted(p.stem for p in (ROOT / "examples" / "notebooks").glob("*.py")) == NAMES
    assert sorted(p.stem for p in (ROOT / "examples").glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_its_source_says(script: dict[str, Any], name: str):
    made, found = script["notebook_of"](ROOT / "examples" / "notebooks" / f"{name}.py"), stored(name)
    keys = ("cell_type", "id", "source", "metadata")
    assert [[cell[key] for key in keys] for cell in found.cells] == [[cell[key] for key in keys] for cell in made.cells]
    assert found.metadata == made.metadata, "run python scripts/notebooks.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_can_be_shown(name: str):
    """Run in order, no complaints, nothing of the machine it was made on, and of moderate size."""
    path, notebook = ROOT / "examples" / f"{name}.ipynb", stored(name)
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    assert all(o.output_type != "error" and o.get("name") != "stderr" for o in outputs)
    text = "".join(map(shown, code(notebook)))
    assert not re.search(r"site-packages|/home/|/root|/tmp|/Users|/work|[A-Z]:\\|0x[0-9a-f]{6}|Warning", text)
    assert any("image/png" in o.get("data", {}) for o in outputs)


def test_answers_show_themselves_as_tables():
    """Each kind that has a view for notebooks is seen in one of them."""
    told = "".join(shown(cell) for name in NAMES for cell in code(stored(name)))
    for kind in ("Restriction", "Restrictions", "PlaneRestriction", "Network"):
        assert f"<b>{kind}</b>" in told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_notebook_runs_and_shows_what_is_stored(script: dict[str, Any], name: str, tmp_path: Path):
    before, notebook = stored(name), stored(name)
    script["execute"](notebook, tmp_path)
    assert not list(tmp_path.iterdir()), "a notebook leaves files behind"
    for was, now in zip(code(before), code(notebook), strict=True):
        published = "published" in was.metadata.get("tags", ())
        assert shown(now) == (UNSET if published and "EXACTLINE_DATA" not in os.environ else shown(was)), now.source


def test_a_cell_that_fails_is_told(script: dict[str, Any], tmp_path: Path):
    """Otherwise the tests above could not fail."""
    from nbclient.exceptions import CellExecutionError

    source = tmp_path / "wrong.py"
    source.write_text('"""Nothing."""\n\n# %% [markdown]\n# # A title\n#\n# text\n\n# %% tags=["one", "two"]\n1 / 0\n')
    notebook = script["notebook_of"](source)
    assert [cell.source for cell in notebook.cells] == ["# A title\n\ntext", "1 / 0"]
    assert notebook.cells[1].metadata["tags"] == ["one", "two"]
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        script["execute"](notebook, tmp_path)


def test_a_source_without_cells_is_refused(script: dict[str, Any], tmp_path: Path):
    source = tmp_path / "empty.py"
    source.write_text('"""Nothing."""\n')
    with pytest.raises(ValueError, match=r"empty\.py has no line that begins a cell"):
        script["notebook_of"](source)
