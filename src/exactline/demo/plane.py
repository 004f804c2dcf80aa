"""The fifth chapter: every point between three digits, in two networks that were trained differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .. import zoo
from ..api import restrict_plane
from ..humanize import count_noun
from .chapter import Chapter, Page, Picture, Table, percent
from .draw_plane import chosen_colours, draw_plane

if TYPE_CHECKING:
    from pathlib import Path

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

CORNERS = (9, 6, 0)  # of the digits that ship with us
METHODS = {"normal": "trained normally", "pgd": "trained against attacks"}
CODE = """import torch
import exactline as xl
from exactline import zoo

images, labels = zoo.digits_images()
plane = xl.restrict_plane(zoo.robust("normal"), images[[9, 6, 0]])
print(plane.decisions())
plane.to_html("plane.html", style="decisions")
"""


@dataclass(frozen=True, eq=False)
class Side:
    """One network on the triangle."""

    method: str
    plane: PlaneRestriction
    decided: Regions

    @property
    def title(self) -> str:
        """How it was trained."""
        return METHODS[self.method]


def plane() -> Chapter:
    """Class regions of a triangle between three images."""
    images, labels = zoo.digits_images()
    corners = {str(int(labels[i])): images[i] for i in CORNERS}
    sides = [_side(method, images[list(CORNERS)]) for method in METHODS]
    names, colours = list(corners), chosen_colours(sides)
    others = sorted({label for side in sides for label in side.decided.labels if str(label) not in names})
    tellers = " and ".join(
        f"{percent(sum(s.decided.shares.get(o, 0.0) for o in others))} of it in the network {s.title}" for s in sides
    )
    texts = (
        f"Three digits, a {names[0]}, a {names[1]} and a {names[2]}, span a triangle of images. In two dimensions a "
        "piece becomes a polygon, and a class a region with exact boundaries and an exact area.",
        f"{_others(others)} {tellers}. The first cuts the triangle into {count_noun(len(sides[0].plane), 'polygon')}, "
        f"the second into {len(sides[1].plane):,}.",
    )
    return Chapter(
        "plane",
        "Between three images",
        texts,
        CODE,
        (_table(sides),),
        (
            Picture(
                "plane",
                lambda: draw_plane(sides, corners, colours),
                f"A triangle between a {names[0]}, a {names[1]} and a {names[2]}, three times: all polygons of one "
                "network, its class regions, and the class regions of another",
                f"Left: every polygon on which the network {sides[0].title} is affine. Middle: what it reads where. "
                f"Right: the same of the network {sides[1].title}.",
            ),
        ),
        tuple(_page(side, corners, colours) for side in sides),
        {
            "corners": [int(name) for name in names],
            "networks": {
                s.method: {
                    "polygons": len(s.plane),
                    "regions": len(s.decided),
                    "shares": {str(label): share for label, share in s.decided.shares.items()},
                }
                for s in sides
            },
        },
    )


def _side(method: str, corners: Tensor) -> Side:
    made = restrict_plane(zoo.robust(method), corners)
    return Side(method, made, made.decisions())


def _others(labels: list[int]) -> str:
    """What is read beside the corners.

    >>> _others([8, 9]), _others([5])
    ('Digits that none of the corners shows (8, 9) take', 'A digit that none of the corners shows (5) takes')
    """
    if not labels:
        return "Digits that none of the corners shows take"
    shown = ", ".join(map(str, labels))
    one = len(labels) == 1
    return f"{'A digit' if one else 'Digits'} that none of the corners shows ({shown}) {'takes' if one else 'take'}"


def _table(sides: list[Side]) -> Table:
    labels = sorted({label for s in sides for label in s.decided.labels})
    rows = [(f"reads {label}", *(_share(s, label) for s in sides)) for label in labels]
    rows.append(("regions", *(f"{len(s.decided):,}" for s in sides)))
    rows.append(("polygons", *(f"{len(s.plane):,}" for s in sides)))
    return Table("Shares of the triangle's area", ("", *(s.title for s in sides)), tuple(rows))


def _share(side: Side, label: int) -> str:
    share = side.decided.shares.get(label)
    return "none" if share is None else f"{100 * share:.3f} %"


def _page(side: Side, corners: dict[str, Tensor], colours: list[str]) -> Page:
    def write(path: Path) -> None:
        title = f"digits between {', '.join(corners)}: {side.title}"
        look: dict[str, Any] = {"style": "decisions", "points": corners, "colors": colours}
        side.plane.to_html(path, decided=side.decided, title=title, **look)

    return Page(f"plane-{side.method}.html", f"Explore the triangle of the network {side.title}", write)
