"""``exactline plane``: a network in a file on a plane of its inputs, as a summary, a picture and a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import POINT, AsJsonTables, Bar, Device, File, Labels, Memory, Normalize, Order, Saved, Shape
from ..console.output import PICTURES, dims, listed, ready, remark, say_json, say_rich
from ..console.progress_bar import moving
from ..errors import ArgumentError
from ..humanize import count_noun
from .plane_summary import document, report
from .restrict import byte_count, given_point

if TYPE_CHECKING:
    from ..decide.regions import Regions
    from ..network import Network
    from ..results.plane import PlaneRestriction

TITLE = 24  # letters of a point that is named as it was given
ENDINGS = {"--out": (".safetensors",), "--plot": PICTURES, "--html": (".html", ".htm")}
CHOICES = {"--style": ("regions", "decisions"), "--order": ("max", "min"), "--outline": ("rectangle", "triangle")}


@dataclass(frozen=True)
class Asked:
    """The plane, in one of three ways of saying it."""

    corners: list[str]  # of the polygon
    through: list[str]  # three points
    base: list[str]  # a point, two of whose features vary
    axes: str | None
    box: str | None
    outline: str
    margin: float


def plane(
    file: File,
    corner: Annotated[
        list[str] | None, typer.Option(metavar="POINT", help=f"A corner of a convex polygon, three or more: {POINT}")
    ] = None,
    through: Annotated[
        list[str] | None, typer.Option(metavar="POINT", help="Instead of corners: three points the plane goes through.")
    ] = None,
    base: Annotated[
        list[str] | None, typer.Option(metavar="POINT", help="Instead: a point, two of whose features vary.")
    ] = None,
    axes: Annotated[str | None, typer.Option(metavar="I,J", help="With --base: the two features, from 0.")] = None,
    box: Annotated[str | None, typer.Option(metavar="LO,HI,LO,HI", help="With --base: their ranges.")] = None,
    outline: Annotated[
        str, typer.Option(metavar="rectangle|triangle", help="With --through: what is drawn around the points.")
    ] = "rectangle",
    margin: Annotated[float, typer.Option(help="With --through: how far beyond them, as a share.")] = 0.1,
    style: Annotated[
        str, typer.Option(metavar="regions|decisions", help="Draw every polygon, or which output decides.")
    ] = "regions",
    order: Order = "max",
    labels: Labels = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plane: .png, .svg, .pdf.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write one web page to move and zoom in.")] = None,
    out: Saved = None,
    as_json: AsJsonTables = False,
    values: Annotated[bool, typer.Option(help="Keep the values at the corners; without, no classes.")] = True,
    normalize: Normalize = True,
    shape: Shape = None,
    memory: Memory = None,
    device: Device = None,
    progress: Bar = True,
) -> None:
    """Every polygon of a plane on which a network is affine, and which output decides where.

    Example: exactline plane loan.nnet --base 0,0 --axes 0,1 --box 20,30,30,50 --plot loan.png
    """
    asked = Asked(corner or [], through or [], base or [], axes, box, outline, margin)
    _sensible(asked, style, order)
    _ready({"--out": out, "--plot": plot, "--html": page}, style, values)
    limit = None if memory is None else byte_count(memory)
    from ..formats import load

    network = load(file, normalize=normalize, shape=dims(shape))
    names = _names(labels, network)
    points = _points(asked, network)
    told = "{task.percentage:.1f} %, {task.fields[polygons]:,} polygons"
    with moving(progress and sys.stderr.isatty(), "area", told, polygons=0) as move:
        watch = False if move is None else lambda share, count: move(share, polygons=count)
        options: dict[str, Any] = {"values": values, "memory": limit, "device": device, "progress": watch}
        made = _made(asked, network, points, options)
        decided = made.decisions(order) if values and not made.several_outputs else None
    if out is not None:
        made.save(out)
        remark(f"saved to {out}")
    marks = dict(zip(_titles(asked.through), points, strict=True)) if asked.through else None
    _draw(made, decided, plot, page, {"style": style, "labels": names, "points": marks}, file.name)
    if as_json:
        say_json(document(str(file), made, decided, names))
    else:
        say_rich(*report(made, decided, names))


def _sensible(asked: Asked, style: str, order: str) -> None:
    """Refuse what makes no sense before any file is opened."""
    for option, value in (("--style", style), ("--order", order), ("--outline", asked.outline)):
        if value not in CHOICES[option]:
            raise ArgumentError(
                f"There is no {option.removeprefix('--')} {value!r}.",
                where=option,
                hint=f"Give {' or '.join(CHOICES[option])}.",
            )
    ways = [name for name in ("corners", "through", "base") if getattr(asked, name)]
    if len(ways) != 1:
        raise ArgumentError(
            "No plane is given." if not ways else "The plane is given in more than one way.",
            where="--corner, --through, --base",
            hint="Give --corner three times or more, --through three times, or --base with --axes and --box.",
        )
    if (asked.axes is None or asked.box is None) if asked.base else (asked.axes or asked.box):
        raise ArgumentError(
            "--base, --axes and --box belong together.", where="--base", hint="Give all three, or none of them."
        )


def _ready(files: dict[str, Path | None], style: str, values: bool) -> None:
    """Refuse what could not be written before the work begins."""
    ready({option: (path, ENDINGS[option]) for option, path in files.items()})
    if style == "decisions" and not values:
        raise ArgumentError("Decisions need the values.", where="--style", hint="Leave out --no-values.")


def _names(labels: str | None, network: Network) -> list[str] | None:
    """Names of the outputs, as many as there are."""
    from math import prod

    if labels is not None and network.several_outputs:
        raise ArgumentError(
            "Only a single output has names.", where="--labels", hint="Leave it out: the network has several outputs."
        )
    return listed(labels, prod(network.nodes[network.outputs[0]].shape))


def _points(asked: Asked, network: Network) -> list[Any]:
    """The points that were given; for a network of several inputs, so many options make one point."""
    option, texts = next(
        (name, group)
        for name, group in (("--corner", asked.corners), ("--through", asked.through), ("--base", asked.base))
        if group
    )
    each = len(network.inputs)
    least, most = {"--corner": (3, None), "--through": (3, 3), "--base": (1, 1)}[option]
    count = len(texts) / each
    if count < least or (most is not None and count > most) or count != int(count):
        wanted = f"{least * each} times" + ("" if most else " or more") if least * each > 1 else "once"
        raise ArgumentError(
            f"{option} is given {count_noun(len(texts), 'time')}.", where=option, hint=f"Give it {wanted}."
        )
    return [given_point(texts[i : i + each], network, option) for i in range(0, len(texts), each)]


def _made(asked: Asked, network: Network, points: list[Any], options: dict[str, Any]) -> PlaneRestriction:
    import numpy as np

    from .. import grid, plane_through, restrict_plane

    if asked.base:
        axes, (a, b, c, d) = _numbers(asked.axes, 2, "--axes", int), _numbers(asked.box, 4, "--box", float)
        return grid(network, points[0], (axes[0], axes[1]), ((a, b), (c, d)), **options)
    if asked.through:
        vertices = plane_through(*points, shape=asked.outline, margin=asked.margin)
    elif network.several_inputs:
        vertices = tuple(np.stack(group) for group in zip(*points, strict=True))
    else:
        vertices = np.stack(points)
    return restrict_plane(network, vertices, **options)


def _numbers(text: str | None, count: int, option: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        found = [kind(part) for part in (text or "").split(",")]
    except ValueError:
        found = []
    if len(found) != count:
        raise ArgumentError(
            f"{text!r} is not {count} numbers.",
            where=option,
            hint="Give two features such as 0,1." if count == 2 else "Give two ranges such as 0,1,-5,5.",
        )
    return found


def _titles(texts: list[str]) -> list[str]:
    """What the three points are called in pictures: the way they were given, unless that is long."""
    return texts if len(texts) == 3 and all(len(text) <= TITLE for text in texts) else ["first", "second", "third"]


def _draw(
    made: PlaneRestriction,
    decided: Regions | None,
    plot: Path | None,
    page: Path | None,
    look: dict[str, Any],
    title: str,
) -> None:
    if plot is not None:
        from ..plot.line import save_picture
        from ..plot.plane import plot_plane

        save_picture(plot_plane(made, decided=decided, **look), plot)
        remark(f"drawn to {plot}")
    if page is not None:
        from ..plot.plane_page import write_page

        write_page(made, page, decided=decided, title=title, **look)
        remark(f"page in {page}")
