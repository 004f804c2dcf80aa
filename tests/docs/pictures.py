"""The pictures of a page that stand behind its blocks, and whether they show what the blocks draw."""

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.docs.pages import Block

PICTURE = re.compile(r"!\[[^\]]+\]\(([^)#]+)(#only-light)?\)")  # what dark pages show instead is left out
RASTER = (48, 36)  # cells that are compared, so that fonts and last pixels do not count
MOST_CELLS = 0.02  # mean difference of two rasters, of 1; another picture of the same kind differs by 0.04 and more


def pictures_behind(block: Block) -> list[Path]:
    """The files of the pictures between a block of code and the next one, or the next heading."""
    lines = block.page.read_text(encoding="utf-8").splitlines()[block.line + block.text.count("\n") :]
    text: list[str] = []
    inside = False  # of a block of output
    for line in lines:
        if line.startswith("#") and not inside:
            break
        if line.startswith("```"):
            if not inside and line != "```output":
                break
            inside = not inside
        text.append(line)
    return [block.page.parent / found[1] for found in PICTURE.finditer("\n".join(text))]


def resemble(made: Path, shown: Path) -> bool:
    """Tell whether two pictures of pixels look alike from afar."""
    if not shown.is_file():
        return False
    first, second = (_raster(path, path.stat().st_mtime_ns) for path in (made, shown))
    return bool(np.abs(first - second).mean() < MOST_CELLS)


@lru_cache
def _raster(path: Path, _written: int) -> NDArray[np.float64]:
    image = Image.open(path).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    small = Image.alpha_composite(white, image).convert("RGB").resize(RASTER, Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64) / 255
