"""Where measurements go: rows of a CSV file, and scalars for TensorBoard."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..optional import require_package


class CsvWriter:
    """Appends rows to a file as they come; the first one writes the head."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.has_head = False
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise FileError(
                "It is a folder." if self.path.is_dir() else "Its folder does not exist.",
                where=f"argument csv, {self.path}",
                hint="Give the name of a file in an existing folder.",
            )

    def write(self, row: dict[str, Any]) -> None:
        """Write one row; floats are read back bit for bit."""
        try:
            with self.path.open("a" if self.has_head else "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                if not self.has_head:
                    writer.writeheader()
                writer.writerow(row)
        except OSError as problem:
            raise FileError(
                f"The file cannot be written: {problem.strerror}",
                where=str(self.path),
                hint="Choose another file for csv=.",
            ) from problem
        self.has_head = True


class TensorBoardWriter:
    """Adds scalars ``regions/...`` to a SummaryWriter, or to a new one in a folder."""

    def __init__(self, target: Any) -> None:
        self.writer = target
        if isinstance(target, (str, Path)):
            hint = "pip install tensorboard, or leave tensorboard= out."
            with require_package("The package tensorboard is not installed.", where="argument tensorboard", hint=hint):
                from torch.utils.tensorboard import SummaryWriter
            self.writer = SummaryWriter(str(target))

    def write(self, row: dict[str, Any]) -> None:
        """Add the numbers of one row."""
        for name, value in row.items():
            if name != "step":
                self.writer.add_scalar(f"regions/{name}", value, row["step"])
        self.writer.flush()
