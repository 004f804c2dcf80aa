"""The second chapter: everything a convolutional network says between two handwritten digits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .. import zoo
from ..api import restrict
from ..humanize import count_noun
from .chapter import Chapter, Page, Picture, Table, number
from .draw_line import draw_line

if TYPE_CHECKING:
    from ..decide.intervals import Decisions
    from ..results.restriction import Restriction

START, END = 9, 6  # of the digits that ship with us
CODE = """import exactline as xl
from exactline import zoo

images, labels = zoo.digits_images()
line = xl.restrict(zoo.digits_network(), images[9], images[6])
print(line.decisions())  # which digit leads, from where to where
line.to_html("line.html")  # the page to explore
"""


def digits() -> Chapter:
    """A line between two digits: classes, breaks by layer, outputs."""
    images, labels = zoo.digits_images()
    line = restrict(zoo.digits_network(), images[START], images[END])
    decided, measured = line.decisions(), line.check()
    born = Counter(birth.node for birth in line.origins if birth is not None)
    seen = [str(i.best) for i in decided]
    first, last = (int(labels[i]) for i in (START, END))
    texts = (
        f"A small convolutional network reads 8 x 8 digits. One image fades into another, from a {first} to a {last}. "
        f"What does the network read on the way? {_way(seen)}.",
        f"On this line the network is affine in {count_noun(len(line), 'piece')}. The breaks between them are computed, "
        "not searched for, so the boundaries of the classes are exact and none can hide between two samples. Compared "
        f"with the network itself at {measured.points:,} points, the answer is off by at most {measured.worst:.0e}.",
    )
    return Chapter(
        "digits",
        "Between two images",
        texts,
        CODE,
        (_intervals(decided), _births(line, born)),
        (
            Picture(
                "digits",
                lambda: draw_line(line, decided, images[START].numpy(), images[END].numpy()),
                f"From a {first} to a {last}: images on the way, the ten outputs, a band of the classes "
                f"{', '.join(seen)}, and the breaks of {len(born)} layers",
                "From top to bottom: the input on the way; the outputs, in colour those that lead somewhere; which "
                "digit is read, with exact boundaries; every break, by the layer that bore it.",
            ),
        ),
        (
            Page(
                "digits.html",
                "Explore this line: slide, zoom to single pieces, export",
                lambda path: line.to_html(path, title=f"digits: from a {first} to a {last}"),
            ),
        ),
        {
            "from": first,
            "to": last,
            "pieces": len(line),
            "alphas": line.alphas.tolist(),
            "intervals": [
                {"start": i.start, "stop": i.stop, "label": i.best, "margin": i.margin, "margin_at": i.margin_at}
                for i in decided
            ],
            "breaks_by_node": dict(born),
            "ambiguous": line.ambiguous,
            "check": measured.worst,
        },
    )


def _way(seen: list[str]) -> str:
    """The classes in words.

    >>> _way(["4", "8", "3"]), _way(["1"])
    ('First a 4, then an 8, then a 3', 'First a 1')
    """
    named = [f"{'an' if digit == '8' else 'a'} {digit}" for digit in seen]
    return f"First {', then '.join(named)}"


def _intervals(decided: Decisions) -> Table:
    rows = tuple(
        (str(i.best), f"{i.start:.6f}", f"{i.stop:.6f}", number(i.margin, 3), f"{i.margin_at:.4f}") for i in decided
    )
    return Table("What is read, from where to where", ("digit", "from alpha", "to", "largest lead", "at"), rows)


def _births(line: Restriction, born: Counter[str]) -> Table:
    rows = [(name, f"{born[name]:,}") for name in line.names if name in born]
    return Table("Breaks by the layer that bore them", ("layer", "breaks"), tuple(rows))
