"""The demonstration from start to end: five chapters, their pictures and pages, and the report that holds them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import FileError, MissingError
from .chapter import Chapter
from .digits import digits
from .encounter import encounter
from .gradients import gradients
from .loan import loan
from .page import page
from .plane import plane

Progress = Callable[[float, str], None]
REPORT = "index.html"
PARTS: dict[str, Callable[[], Chapter]] = {
    "the loan example": loan,
    "a line between two digits": digits,
    "integrated gradients": gradients,
    "a map around an aircraft": encounter,
    "a plane between three digits": plane,
}


@dataclass(frozen=True)
class Demo:
    """What was found and where it was written."""

    folder: Path
    report: Path
    chapters: tuple[Chapter, ...]
    files: tuple[Path, ...]
    not_drawn: str  # why there are no pictures; mostly nothing
    seconds: dict[str, float]  # of each chapter, by name

    def document(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return {
            "out": str(self.folder),
            "report": str(self.report),
            "files": [str(path) for path in self.files],
            "not_drawn": self.not_drawn or None,
            "seconds": self.seconds,
            "chapters": {chapter.name: chapter.facts for chapter in self.chapters},
        }


def run(folder: str | Path, progress: Progress | None = None) -> Demo:
    """Answer five questions about networks that ship with us and write a report to a folder, made if missing.

    Without matplotlib there are no pictures: everything else is there, and ``not_drawn`` says why.

    Raises FileError where the folder cannot be written to.
    """
    with _one_thread():
        return _run(writable(Path(folder)), progress or (lambda share, what: None))


@contextlib.contextmanager
def _one_thread() -> Generator[None]:
    """Small tensors need one thread: a second only waits, and for long where other programs run too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(folder: Path, say: Progress) -> Demo:
    chapters, files, seconds = list[Chapter](), list[Path](), dict[str, float]()
    not_drawn = ""
    for done, (what, make) in enumerate(PARTS.items()):
        say(done / len(PARTS), what)
        began = time.perf_counter()
        chapter = make()
        for one in chapter.pages:
            one.write(folder / one.file)
            files.append(folder / one.file)
        drawn, problem = _drawn(chapter, folder)
        files += drawn
        not_drawn = not_drawn or problem
        chapters.append(chapter)
        seconds[chapter.name] = time.perf_counter() - began
    say(1.0, "the report")
    report = folder / REPORT
    page(report, chapters, not_drawn, sum(seconds.values()))
    return Demo(folder, report, tuple(chapters), (report, *files), not_drawn, seconds)


def writable(folder: Path) -> Path:
    """The folder, made if it is missing; refused before the work begins where nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(
            f"The folder cannot be written to: {reason}.", where=f"--out {folder}", hint="Give another --out."
        ) from problem


def _drawn(chapter: Chapter, folder: Path) -> tuple[list[Path], str]:
    """The files of a chapter's pictures, or why there are none."""
    from ..plot.figures import save_figures
    from ..plot.line import STYLE

    wanted = [(picture.name, picture.draw) for picture in chapter.pictures]
    try:
        return save_figures(wanted, folder, STYLE, "exactline demo"), ""
    except MissingError as error:
        return [], f"{error.problem} Try: {error.hint}"
