"""Execute the notebooks in examples/ and store them with what they show.

    python scripts/notebooks.py [NAME ...]

Their sources are examples/notebooks/*.py: cells begin with ``# %%``, those of text with ``# %% [markdown]``, and what
comes before the first is not part of the notebook. The kernel is the interpreter that runs this script. With
EXACTLINE_DATA set, cells about published networks show them; the stored notebooks are made so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import v4

ROOT = Path(__file__).parents[1]
SOURCES, STORED = ROOT / "examples" / "notebooks", ROOT / "examples"
SECONDS = 300  # for one cell, on a busy machine
HEAD = re.compile(r"^# %%(?P<text> \[markdown\])?(?: tags=\[(?P<tags>[^]]*)\])?$", re.MULTILINE)


class OwnKernel(AsyncKernelManager):
    """A kernel of this very interpreter, whatever kernels are installed for the user."""

    @property
    def kernel_spec(self) -> KernelSpec:
        start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
        return KernelSpec(argv=start, display_name="Python 3", language="python")


def notebook_of(source: Path) -> Any:
    """A notebook without outputs, from its source.

    Raises ValueError where the source has no cell.
    """
    text = source.read_text(encoding="utf-8")
    heads = list(HEAD.finditer(text))
    if not heads:
        raise ValueError(f"{source.name} has no line that begins a cell, such as '# %%'.")
    made = v4.new_notebook()
    made.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for number, (head, end) in enumerate(zip(heads, ends, strict=True)):
        body = text[head.end() : end].strip()
        if head["text"]:
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        cell = v4.new_markdown_cell(body) if head["text"] else v4.new_code_cell(body)
        cell.id = f"cell-{number}"  # the same each time, so that a change shows as one
        if head["tags"]:
            cell.metadata["tags"] = [tag.strip(" \"'") for tag in head["tags"].split(",")]
        made.cells.append(cell)
    return made


def execute(notebook: Any, folder: Path) -> None:
    """Run all cells in a folder and keep what they show, without a word on when and where.

    Raises nbclient's CellExecutionError where a cell fails.
    """
    about = deepcopy(notebook.metadata)
    pictures = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # whatever the caller draws with
    with TemporaryDirectory(prefix="kernel-") as own, _environment(IPYTHONDIR=own, JUPYTER_RUNTIME_DIR=own, **pictures):
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_manager_class=OwnKernel,
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
            coalesce_streams=True,
        ).execute(cleanup_kc=True)
    notebook.metadata = about  # the kernel has written its version into it


@contextmanager
def _environment(**values: str) -> Generator[None]:
    """Variables for a while: nobody's own settings are read, and nothing of ours is left behind."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def store(notebook: Any, path: Path) -> None:
    """Write a notebook, whole or not at all."""
    nbformat.validate(notebook)
    part = path.with_suffix(".part")
    part.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    part.replace(path)


def main(names: list[str]) -> None:
    """Make all notebooks, or those that are named."""
    for source in sorted(SOURCES.glob("*.py")):
        if names and source.stem not in names:
            continue
        notebook = notebook_of(source)
        with TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        path = STORED / f"{source.stem}.ipynb"
        store(notebook, path)
        print(f"{path.relative_to(ROOT)}: {len(notebook.cells)} cells, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
