"""Make the gallery of the documentation: run the examples, shrink their pictures, and show each with its code.

    python scripts/gallery.py [--page]

Writes docs/images/gallery and docs/gallery.md; with --page only the page, which takes no time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images" / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
MAX_WIDTH = 1000  # pixels of a picture on the page
COLOURS = 128  # in the palette of a picture, which makes its file small
HEAD = """# Gallery

The scripts in `examples/` draw these pictures. Choose a picture to see its code.
"""
NOTEBOOKS = """## Notebooks

Executed notebooks, with text between the pictures:

* [Attributions without samples](../examples/attribution.ipynb), for users of captum
* [Between the samples of a collision-avoidance network](../examples/acas.ipynb)
* [Linear regions while a network trains](../examples/regions_during_training.ipynb)
* [A text transformer, to a tolerance](../examples/text_transformer.ipynb)
"""


@dataclass(frozen=True)
class Entry:
    """One picture of the gallery."""

    title: str
    script: str  # in examples/
    picture: str  # the file that the script writes
    alt: str
    text: str
    dark: str = ""  # the file with a dark background, if the script writes one
    show_code: bool = True  # False where the entry before it has the same script

    @property
    def anchor(self) -> str:
        """The anchor of the heading, as the site and GitHub make it."""
        kept = (c for c in self.title.lower() if c.isalnum() or c in " -")
        return "".join(kept).replace(" ", "-")


ENTRIES = (
    Entry(
        "Two moons",
        "moons.py",
        "moons.png",
        "Linear regions of a classifier of two moons, the decision boundary and the data",
        "All linear regions, the decision boundary and the data of a classifier of scikit-learn. "
        "[The tutorial](tutorial-moons.md) explains it.",
        "moons_dark.png",
    ),
    Entry(
        "From a 4 to a 3",
        "digit.py",
        "digits_line.png",
        "Ten outputs along a line, and the breaks of three layers",
        "One image fades into another: the outputs, and every break by layer. [Quickstart](quickstart.md).",
    ),
    Entry(
        "Heatmap of a digit",
        "digit.py",
        "digit_heatmap.png",
        "A handwritten 4 and the exact attribution of each of its pixels, red and blue",
        "Exact integrated gradients of the same 4: a saliency map without samples. [Attributions](attribution.md).",
        show_code=False,
    ),
    Entry(
        "Advice around an aircraft",
        "plane.py",
        "advice.png",
        "Five regions of advice over distance and bearing of an intruder",
        "Which of five advisories a collision-avoidance network gives, over distance and bearing. [Planes](planes.md).",
    ),
    Entry(
        "Three thousand linear regions",
        "plane.py",
        "regions.png",
        "Polygons whose edges are coloured by the layer of their origin",
        "The linear regions of the same network on the same plane. Each edge has the colour of the layer in which "
        "a unit changes.",
        show_code=False,
    ),
    Entry(
        "While a network trains",
        "training_animation.py",
        "../regions_training.gif",
        "Linear regions and decision boundary while a network learns two spirals",
        "Linear regions, decision boundary and data of two spirals, every 25 epochs. "
        "[Regions while training](regions.md).",
    ),
    Entry(
        "A small transformer",
        "smooth.py",
        "../transformer.svg",
        "Class probabilities of a transformer between two digits, with a band for the class that leads",
        "Class probabilities of a transformer, which is not piecewise linear, to a tolerance of 1e-9. "
        "[Smooth networks](smooth.md).",
    ),
)


def page() -> str:
    """The text of the page."""
    cells = (f"[![{e.alt}](images/gallery/{e.picture})<br>{e.title}](#{e.anchor})" for e in ENTRIES)
    grid = '<div class="gallery" markdown>\n\n' + "\n".join(cells).replace("gallery/../", "") + "\n\n</div>\n"
    return "\n".join((HEAD, grid, *map(_section, ENTRIES), NOTEBOOKS))


def _section(entry: Entry) -> str:
    pictures = f"![{entry.alt}](images/gallery/{entry.picture})"
    if entry.dark:
        pictures = f"![{entry.alt}](images/gallery/{entry.picture}#only-light)\n"
        pictures += f"![{entry.alt}](images/gallery/{entry.dark}#only-dark)"
    parts = [f"## {entry.title}", entry.text, pictures.replace("gallery/../", "")]
    if entry.show_code:
        code = (ROOT / "examples" / entry.script).read_text(encoding="utf-8").rstrip()
        parts.append(f"`examples/{entry.script}`:\n\n```py\n{code}\n```")
    return "\n\n".join(parts) + "\n"


def draw(target: Path = PICTURES) -> None:
    """Run the scripts of all pictures in docs/images/gallery, and write the pictures to a folder."""
    names = [n for e in ENTRIES for n in (e.picture, e.dark) if n and "/" not in n]
    scripts = sorted({e.script for e in ENTRIES if "/" not in e.picture})
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            path = ROOT / "examples" / script
            subprocess.run([sys.executable, path, folder], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        for name in names:
            shrink(Path(folder) / name, target / name)


def shrink(source: Path, target: Path) -> None:
    """Write a picture with at most so many pixels and colours as the page needs."""
    from PIL import Image

    image = Image.open(source).convert("RGB")
    if image.width > MAX_WIDTH:
        image = image.resize((MAX_WIDTH, round(image.height * MAX_WIDTH / image.width)), Image.Resampling.LANCZOS)
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    if "--page" not in sys.argv:
        draw()
    PAGE.write_text(page(), encoding="utf-8")
