"""Pages of the documentation taken apart: fenced blocks with their language and line, commands, headings."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int  # of its first line of code
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """What a page is called in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text()
    return [Block(page, text[: m.start()].count("\n") + 2, m[1], m[2]) for m in FENCE.finditer(text)]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of every ``exactline`` command of a block that is not Python; usage lines are none."""
    if block.language in ("python", "pycon", "pyi"):
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        words = line.removeprefix("$ ")
        if words.startswith("exactline ") and "[OPTIONS]" not in words:
            yield shlex.split(words, comments=True)
