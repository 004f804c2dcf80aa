"""The second chapter: what a convolutional network reads between two handwritten digits."""

from __future__ import annotations

from collections import Counter

from .. import zoo
from ..api import restrict
from ..decide.intervals import Decisions
from ..humanize import count_noun
from ..plot.panels import plot_line_panels
from .report import Chapter, ChapterFile, ChapterPicture, ChapterTable, format_number

START, END = 9, 6  # bundled digits
CODE = """import exactline as xl
from exactline import zoo

images, labels = zoo.digits_images()
line = xl.restrict(zoo.digits_network(), images[9], images[6])
print(line.decisions())  # which digit leads, from where to where
line.to_html("line.html")  # the page to explore
"""


def digits_chapter() -> Chapter:
    """A line between two digits: classes, breaks by layer, outputs."""
    images, labels = zoo.digits_images()
    line = restrict(zoo.digits_network(), images[START], images[END])
    decisions, check = line.decisions(), line.check()
    counts = Counter(origin.node for origin in line.origins if origin is not None)
    classes = [str(i.best) for i in decisions]
    first, last = (int(labels[i]) for i in (START, END))
    layers = tuple((name, f"{counts[name]:,}") for name in line.names if name in counts)
    return Chapter(
        name="digits",
        title="Between two images",
        texts=(
            f"A small convolutional network reads 8 x 8 digits. One image fades into another, from a {first} to a "
            f"{last}. What does the network read along the way? {_format_classes(classes)}.",
            "Alpha is the share of the way, from 0 to 1. "
            f"On this line the network is affine on {count_noun(len(line), 'piece')}. The breaks between them are "
            "computed, not searched for: the boundaries of the classes are exact, and none can hide between two "
            f"samples. Compared with the network itself at {check.points:,} points, the largest error is "
            f"{check.worst:.0e}.",
        ),
        code=CODE,
        facts={
            "from": first,
            "to": last,
            "pieces": len(line),
            "alphas": line.alphas.tolist(),
            "intervals": [
                {"start": i.start, "stop": i.stop, "label": i.best, "margin": i.margin, "margin_at": i.margin_at}
                for i in decisions
            ],
            "breaks_by_node": dict(counts),
            "ambiguous": line.ambiguous,
            "check": check.worst,
        },
        tables=(_tabulate_intervals(decisions), ChapterTable("Breaks by layer", ("layer", "breaks"), layers)),
        pictures=(
            ChapterPicture(
                "digits",
                lambda: plot_line_panels(line, decisions),
                f"From a {first} to a {last}: images along the line, the ten outputs, a band of the classes "
                f"{', '.join(classes)}, and the breaks of {len(counts)} layers",
                "From top to bottom: the input along the line; the outputs, in colour those that lead somewhere; the "
                "digit that is read, with exact boundaries; every break, by layer.",
            ),
        ),
        files=(
            ChapterFile(
                "digits.html",
                "Explore this line: slide, zoom to single pieces, export",
                lambda path: line.to_html(path, title=f"digits: from a {first} to a {last}"),
            ),
        ),
    )


def _format_classes(classes: list[str]) -> str:
    """The classes in words.

    >>> _format_classes(["4", "8", "3"]), _format_classes(["1"])
    ('First a 4, then an 8, then a 3', 'First a 1')
    """
    words = [f"{'an' if digit == '8' else 'a'} {digit}" for digit in classes]
    return f"First {', then '.join(words)}"


def _tabulate_intervals(decisions: Decisions) -> ChapterTable:
    rows = tuple(
        (str(i.best), f"{i.start:.6f}", f"{i.stop:.6f}", format_number(i.margin, 3), f"{i.margin_at:.4f}")
        for i in decisions
    )
    return ChapterTable("Digits along the line", ("digit", "from alpha", "to", "largest margin", "at alpha"), rows)
