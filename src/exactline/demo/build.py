"""Builds the demo: computes five chapters, draws their pictures, writes the linked files and the report."""

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
from ..plot.figure import save_figures
from ..plot.style import STYLE
from .digits import digits_chapter
from .encounter import encounter_chapter
from .gradients import gradients_chapter
from .loan import loan_chapter
from .plane import plane_chapter
from .report import Chapter, write_report

DemoProgress = Callable[[float, str], None]  # share of the work done, what comes next
REPORT_FILE = "index.html"
CHAPTERS: dict[str, Callable[[], Chapter]] = {
    "a line between two digits": digits_chapter,
    "a map around an aircraft": encounter_chapter,
    "integrated gradients": gradients_chapter,
    "a plane between three digits": plane_chapter,
    "the loan example": loan_chapter,
}


@dataclass(frozen=True)
class Demo:
    """The chapters of the demo, and the files that were written."""

    folder: Path
    report: Path
    chapters: tuple[Chapter, ...]
    files: tuple[Path, ...]
    missing_pictures: str  # why there are no pictures; empty where there are
    seconds: dict[str, float]  # by chapter

    def to_json(self) -> dict[str, Any]:
        """All numbers and file names, as JSON can hold them."""
        return {
            "out": str(self.folder),
            "report": str(self.report),
            "files": [str(path) for path in self.files],
            "missing_pictures": self.missing_pictures or None,
            "seconds": self.seconds,
            "chapters": {chapter.name: chapter.facts for chapter in self.chapters},
        }


def run(folder: str | Path, progress: DemoProgress | None = None) -> Demo:
    """Answer five questions about bundled networks and write a report.

    Without matplotlib there are no pictures; ``missing_pictures`` of the result says why.

    Args:
        folder: for the report; made if missing.
        progress: a function that is called with the share of the work done and what comes next.

    Raises FileError where the folder cannot be written to.
    """
    with _one_thread():
        return _build(make_folder(Path(folder)), progress or (lambda share, step: None))


@contextlib.contextmanager
def _one_thread() -> Generator[None]:
    """One thread of torch: with small tensors a second one only costs time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _build(folder: Path, progress: DemoProgress) -> Demo:
    chapters, files, seconds = list[Chapter](), list[Path](), dict[str, float]()
    missing_pictures = ""
    for position, (name, make_chapter) in enumerate(CHAPTERS.items()):
        progress(position / len(CHAPTERS), name)
        began = time.perf_counter()
        chapter = make_chapter()
        for file in chapter.files:
            file.write(folder / file.name)
            files.append(folder / file.name)
        try:
            figures = [(picture.name, picture.draw) for picture in chapter.pictures]
            files += save_figures(figures, folder, STYLE, "exactline demo", dark=True)
        except MissingError as error:
            missing_pictures = f"{error.problem} Try: {error.hint}"
        chapters.append(chapter)
        seconds[chapter.name] = time.perf_counter() - began
    progress(1.0, "the report")
    report = folder / REPORT_FILE
    write_report(report, chapters, missing_pictures, sum(seconds.values()))
    return Demo(folder, report, tuple(chapters), (report, *files), missing_pictures, seconds)


def make_folder(folder: Path) -> Path:
    """Create a folder and check that it can be written to, before the work begins.

    Raises FileError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileError(
            f"The folder cannot be written to: {reason}.", where=f"--out {folder}", hint="Give another --out."
        ) from problem
