"""``exactline plane``: a network on a plane of its inputs, as a summary, a picture and a web page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import (
    PointReader,
    check_choice,
    parse_bytes,
    parse_labels,
    parse_output,
    parse_shapes,
    split_names,
)
from ..console.options import (
    POINT_HELP,
    AsJsonTables,
    Device,
    Features,
    Labels,
    MaxPolygons,
    Memory,
    NetworkFile,
    Normalize,
    Order,
    OutputName,
    PlaneTimeLimit,
    PointConversions,
    SavePath,
    Shape,
    ShowProgress,
    Threshold,
    expand_options,
)
from ..console.output import PICTURE_SUFFIXES, check_output_files, print_json, print_note, print_rich
from ..console.progress_bar import show_bar
from ..errors import ArgumentError
from ..humanize import count_noun
from .plane_summary import build_document, build_report

if TYPE_CHECKING:
    from ..decide.regions import Regions
    from ..network import Network
    from ..results.plane import PlaneRestriction

MAX_TITLE_CHARACTERS = 24  # of a point that is named in pictures as it was given
SUFFIXES = {"--out": (".safetensors",), "--plot": PICTURE_SUFFIXES, "--html": (".html", ".htm")}


@dataclass(frozen=True)
class PlaneInput:
    """The plane as it was given: by corners, by three points, or by a point and two axes."""

    corners: list[str]
    through: list[str]
    base: list[str]
    axes: str | None
    box: str | None
    outline: str
    margin: float


@expand_options(PointConversions)
def plane(
    file: NetworkFile,
    options: PointConversions,
    corner: Annotated[
        list[str] | None,
        typer.Option(metavar="POINT", help=f"A corner of a convex polygon, three or more: {POINT_HELP}"),
    ] = None,
    through: Annotated[
        list[str] | None,
        typer.Option(metavar="POINT", help="Instead of corners: a point that the plane goes through, three times."),
    ] = None,
    base: Annotated[
        list[str] | None, typer.Option(metavar="POINT", help="Instead of corners: a point, two features of which vary.")
    ] = None,
    axes: Annotated[
        str | None, typer.Option(metavar="I,J", help="With --base: the two features, numbered from 0.")
    ] = None,
    box: Annotated[str | None, typer.Option(metavar="LO,HI,LO,HI", help="With --base: their ranges.")] = None,
    outline: Annotated[
        str, typer.Option(metavar="rectangle|triangle", help="With --through: the polygon around the points.")
    ] = "rectangle",
    margin: Annotated[
        float, typer.Option(help="With --through: how far it extends beyond the points, as a share.")
    ] = 0.1,
    style: Annotated[
        str, typer.Option(metavar="regions|decisions", help="Draw every polygon, or which output decides where.")
    ] = "regions",
    order: Order = "max",
    output: OutputName = None,
    threshold: Threshold = None,
    labels: Labels = None,
    features: Features = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plane: .png, .svg, .pdf.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write a web page to explore the plane.")] = None,
    out: SavePath = None,
    as_json: AsJsonTables = False,
    values: Annotated[bool, typer.Option(help="Compute the values at the corners, which decisions need.")] = True,
    normalize: Normalize = True,
    shape: Shape = None,
    max_polygons: MaxPolygons = None,
    seconds: PlaneTimeLimit = None,
    memory: Memory = None,
    device: Device = None,
    progress: ShowProgress = True,
) -> None:
    """Compute every polygon of a plane on which a network is affine, and which output decides where.

    Example: exactline plane loan.nnet --base 0,0 --axes 0,1 --box 20,30,30,50 --plot loan.png
    """
    plane_input = PlaneInput(corner or [], through or [], base or [], axes, box, outline, margin)
    check_choice("--style", style, ("regions", "decisions"))
    check_choice("--order", order, ("max", "min"))
    check_choice("--outline", outline, ("rectangle", "triangle"))
    _check_plane_input(plane_input)
    files = {"--out": out, "--plot": plot, "--html": page}
    check_output_files({option: (path, SUFFIXES[option]) for option, path in files.items()})
    if style == "decisions" and not values:
        raise ArgumentError("Decisions need the values.", where="--style", hint="Omit --no-values.")
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..formats import load_network

    network = load_network(file, normalize=normalize, shape=parse_shapes(shape))
    chosen = parse_output(output)
    network = network if chosen is None else network.output(chosen)
    names, feature_names = _parse_output_names(labels, network, threshold), _parse_features(features, network)
    reader = PointReader.make(network, options)
    points = _read_points(plane_input, network, reader)
    with show_bar(progress, "", "{task.completed:.1%}, {task.fields[polygons]:,} polygons", polygons=0) as update:
        result = _restrict(
            plane_input,
            network,
            points,
            values=values,
            max_polygons=max_polygons,
            seconds=seconds,
            memory=memory_bytes,
            device=device,
            progress=False if update is None else lambda share, polygons: update(share, polygons=polygons),
        )
        regions = _decide(result, network, order, threshold) if values else None
    if out is not None:
        result.save(out)
        print_note(f"saved to {out}")
    marks = dict(zip(_name_points(plane_input.through), points, strict=True)) if plane_input.through else None
    appearance = {"style": style, "labels": names, "points": marks, "regions": regions, "features": feature_names}
    _draw(result, plot, page, title=file.name, appearance=appearance)
    if as_json:
        print_json(build_document(str(file), result, regions, names) | reader.report())
    else:
        print_rich(*build_report(result, regions, names))


def _check_plane_input(plane_input: PlaneInput) -> None:
    """Check before any file is opened that the plane is given in exactly one way."""
    given = [texts for texts in (plane_input.corners, plane_input.through, plane_input.base) if texts]
    if len(given) != 1:
        raise ArgumentError(
            "The plane is given in more than one way." if given else "No plane is given.",
            where="--corner, --through, --base",
            hint="Give --corner three times or more, --through three times, or --base with --axes and --box.",
        )
    axes, box = plane_input.axes, plane_input.box
    if (axes is None or box is None) if plane_input.base else (axes or box):
        raise ArgumentError(
            "--base, --axes and --box belong together.", where="--base", hint="Give all three, or none of them."
        )


def _decide(result: PlaneRestriction, network: Network, order: str, threshold: float | None) -> Regions | None:
    """Decide the plane; None where nothing competes: several outputs, or one without a threshold."""
    is_single = prod(network.nodes[network.outputs[0]].shape) == 1
    is_implied = network.tails[0] is not None and network.tails[0].name == "sigmoid"
    if threshold is None and (network.several_outputs or (is_single and not is_implied)):
        return None
    return result.decisions(order, threshold=threshold)


def _parse_output_names(labels: str | None, network: Network, threshold: float | None) -> list[str] | None:
    if labels is not None and network.several_outputs:
        raise ArgumentError(
            "Several outputs cannot be named.",
            where="--labels",
            hint="Choose one with --output.",
        )
    count = prod(network.nodes[network.outputs[0]].shape)
    is_implied = network.tails[0] is not None and network.tails[0].name == "sigmoid"
    return parse_labels(labels, 2 if count == 1 and (threshold is not None or is_implied) else count)


def _parse_features(features: str | None, network: Network) -> list[str] | None:
    """The names of the features, before anything is computed."""
    names = split_names(features)
    count = sum(prod(network.nodes[i].shape) for i in network.inputs)
    if names is not None and len(names) != count:
        raise ArgumentError(
            f"That is {count_noun(len(names), 'name')} for {count_noun(count, 'feature')}.",
            where="--features",
            hint="Give one name for each number of the input.",
        )
    return names


def _read_points(plane_input: PlaneInput, network: Network, reader: PointReader) -> list[Any]:
    """Read the points of the plane; a point of a network with several inputs takes one option per input."""
    options = {"--corner": plane_input.corners, "--through": plane_input.through, "--base": plane_input.base}
    option, texts = next((option, texts) for option, texts in options.items() if texts)
    inputs = len(network.inputs)
    least, most = {"--corner": (3, None), "--through": (3, 3), "--base": (1, 1)}[option]
    count, rest = divmod(len(texts), inputs)
    if rest or count < least or (most is not None and count > most):
        wanted = f"{least * inputs} times" + ("" if most else " or more") if least * inputs > 1 else "once"
        raise ArgumentError(
            f"{option} is given {count_noun(len(texts), 'time')}.", where=option, hint=f"Give it {wanted}."
        )
    points = [reader.read(texts[i : i + inputs], option) for i in range(0, len(texts), inputs)]
    for number, point in enumerate(points[1:], 1):
        reader.compare_ranges(points[0], point, (f"{option} 0", f"{option} {number}"))
    return points


def _restrict(plane_input: PlaneInput, network: Network, points: list[Any], **options: Any) -> PlaneRestriction:
    import numpy as np

    from .. import grid, plane_through, restrict_plane

    if plane_input.base:
        i, j = _parse_numbers(plane_input.axes, 2, "--axes", int)
        a, b, c, d = _parse_numbers(plane_input.box, 4, "--box", float)
        return grid(network, points[0], (i, j), ((a, b), (c, d)), **options)
    if plane_input.through:
        vertices = plane_through(*points, shape=plane_input.outline, margin=plane_input.margin)
    elif network.several_inputs:
        vertices = tuple(np.stack(group) for group in zip(*points, strict=True))
    else:
        vertices = np.stack(points)
    return restrict_plane(network, vertices, **options)


def _parse_numbers(text: str | None, count: int, option: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        numbers = [kind(part) for part in (text or "").split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise ArgumentError(
            f"{text!r} is not {count} numbers.",
            where=option,
            hint="Give two features such as 0,1." if count == 2 else "Give two ranges such as 0,1,-5,5.",
        )
    return numbers


def _name_points(texts: list[str]) -> list[str]:
    """Name the three points in pictures: as they were given, if that is short."""
    is_short = len(texts) == 3 and all(len(text) <= MAX_TITLE_CHARACTERS for text in texts)
    return texts if is_short else ["first", "second", "third"]


def _draw(
    result: PlaneRestriction, plot: Path | None, page: Path | None, *, title: str, appearance: dict[str, Any]
) -> None:
    if plot is not None:
        from ..plot.figure import save_picture
        from ..plot.plane import plot_plane

        save_picture(plot_plane(result, **appearance), plot)
        print_note(f"drawn to {plot}")
    if page is not None:
        from ..plot.plane_page import write_plane_page

        write_plane_page(result, page, title=title, **appearance)
        print_note(f"page in {page}")
