"""The fifth chapter: every point between three digits, for two networks that were trained differently."""

from __future__ import annotations

from torch import Tensor

from .. import zoo
from ..api import restrict_plane
from ..humanize import count_noun
from ..plot.panels import PlanePanel, plot_plane_panels
from .report import Chapter, ChapterFile, ChapterPicture, ChapterTable, format_percent

CORNERS = (9, 6, 0)  # bundled digits
METHODS = {"normal": "trained normally", "pgd": "trained against attacks"}
CODE = """import torch
import exactline as xl
from exactline import zoo

images, labels = zoo.digits_images()
plane = xl.restrict_plane(zoo.robust_network("normal"), images[[9, 6, 0]])
print(plane.decisions())
plane.to_html("plane.html", style="decisions")
"""


def plane_chapter() -> Chapter:
    """Class regions of a triangle between three images."""
    images, labels = zoo.digits_images()
    corners = {str(int(labels[i])): images[i] for i in CORNERS}
    panels = {method: _restrict(method, images[list(CORNERS)]) for method in METHODS}
    first, second = panels.values()
    names = list(corners)
    others = sorted({label for p in panels.values() for label in p.regions.labels if str(label) not in names})
    shares = " and ".join(
        f"{format_percent(sum(p.regions.shares.get(o, 0.0) for o in others))} of it for the network {p.title}"
        for p in panels.values()
    )
    return Chapter(
        name="plane",
        title="Between three images",
        texts=(
            f"Three digits, a {names[0]}, a {names[1]} and a {names[2]}, span a triangle of images. In two dimensions "
            "a piece is a polygon, and a class is a region with exact boundaries and an exact area.",
            f"{_format_others(others)} {shares}. The first network cuts the triangle into "
            f"{count_noun(len(first.plane), 'polygon')}, the second into {len(second.plane):,}.",
        ),
        code=CODE,
        facts={
            "corners": [int(name) for name in names],
            "networks": {
                method: {
                    "polygons": len(p.plane),
                    "regions": len(p.regions),
                    "shares": {str(label): share for label, share in p.regions.shares.items()},
                }
                for method, p in panels.items()
            },
        },
        tables=(_tabulate_shares(first, second),),
        pictures=(
            ChapterPicture(
                "plane",
                lambda: plot_plane_panels([first, second], [image.double().numpy() for image in corners.values()]),
                f"A triangle between a {names[0]}, a {names[1]} and a {names[2]}, three times: all polygons of one "
                "network, its class regions, and the class regions of another",
                f"Left: every polygon on which the network {first.title} is affine. Middle: the digits it reads. "
                f"Right: the digits that the network {second.title} reads.",
            ),
        ),
        files=tuple(_link_page(method, panel, corners) for method, panel in panels.items()),
    )


def _restrict(method: str, corners: Tensor) -> PlanePanel:  # corners is (3, 1, 8, 8)
    plane = restrict_plane(zoo.robust_network(method), corners)
    return PlanePanel(METHODS[method], plane, plane.decisions())


def _format_others(labels: list[int]) -> str:
    """The beginning of a sentence about digits that are read but are not corners.

    >>> _format_others([8, 9]), _format_others([5])
    ('Digits that none of the corners shows (8, 9) take', 'A digit that none of the corners shows (5) takes')
    """
    if not labels:
        return "Digits that none of the corners shows take"
    is_one, listed = len(labels) == 1, ", ".join(map(str, labels))
    noun, verb = ("A digit", "takes") if is_one else ("Digits", "take")
    return f"{noun} that none of the corners shows ({listed}) {verb}"


def _tabulate_shares(*panels: PlanePanel) -> ChapterTable:
    def share(panel: PlanePanel, label: int) -> str:
        value = panel.regions.shares.get(label)
        return "none" if value is None else f"{100 * value:.3f} %"

    labels = sorted({label for p in panels for label in p.regions.labels})
    rows = [(f"reads {label}", *(share(p, label) for p in panels)) for label in labels]
    rows.append(("regions", *(f"{len(p.regions):,}" for p in panels)))
    rows.append(("polygons", *(f"{len(p.plane):,}" for p in panels)))
    return ChapterTable("Shares of the triangle's area", ("", *(p.title for p in panels)), tuple(rows))


def _link_page(method: str, panel: PlanePanel, corners: dict[str, Tensor]) -> ChapterFile:
    return ChapterFile(
        f"plane-{method}.html",
        f"Explore the triangle of the network {panel.title}",
        lambda path: panel.plane.to_html(
            path,
            style="decisions",
            regions=panel.regions,
            points=corners,
            title=f"digits between {', '.join(corners)}: {panel.title}",
        ),
    )
