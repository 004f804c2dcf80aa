"""Hooks of the documentation's site: each page says which kind it is, and the examples are files of the site.

Tutorials, how-to guides, reference and explanation are the sections of the navigation in mkdocs.yml.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

EXAMPLES = Path(__file__).parents[1] / "examples"
LIST_BOOST = 0.5  # of the score of a page that lists names: guides that explain a word come before it
KINDS = {
    "Tutorials": ("Tutorial", "follow it from top to bottom"),
    "How-to guides": ("How-to guide", "one task, with the calls and options for it"),
    "Reference": ("Reference", "to look things up"),
    "API reference": ("Reference", "to look things up"),
    "Explanation": ("Explanation", "how it works, and why"),
}


def on_files(files: Any, config: Any) -> Any:
    """Add notebooks to the site, so that pages can link them."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to examples/ of the repository at the files of the site, and rank long lists lower in the search."""
    if page.file.src_uri.startswith("api/") or page.file.src_uri == "commands.md":
        page.meta.setdefault("search", {"boost": LIST_BOOST})
    return markdown.replace("](../examples/", "](examples/")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Say above the title which kind of page it is."""
    section = next((ancestor.title for ancestor in page.ancestors if ancestor.title in KINDS), None)
    if section is None:
        return html
    kind, use = KINDS[section]
    return f'<p class="page-kind"><strong>{escape(kind)}</strong> {escape(use)}</p>\n{html}'
