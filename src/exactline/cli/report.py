"""``exactline report``: a saved line or plane as one web page to explore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import check_choice, parse_shape, split_names
from ..console.options import Features, Labels, Order, OutputIndex
from ..console.output import check_output_files, print_json, print_note, print_text
from ..errors import ArgumentError, FileError

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction

SAVED_FILE_HINT = "Give a file that exactline restrict --out or exactline plane --out has written."
LINES_ONLY_PROBLEM = "--image, --table and --output are options of lines."
MAX_HEADER_BYTES = 100_000_000  # of a safetensors file


def report(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A file saved by restrict or plane with --out.")],
    out: Annotated[Path | None, typer.Option(help="The page, .html; default: next to RESULT.")] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; default: the name of RESULT without its ending.")
    ] = None,
    labels: Labels = None,
    features: Features = None,
    image: Annotated[
        str | None, typer.Option(metavar="28,28", help="Show the input as an image of this shape.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Show an input that is an image as a table.")] = False,
    order: Order = "max",
    output: OutputIndex = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The network, which the classes of a plane need.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a text.")] = False,
) -> None:
    """Write a saved line or plane as one web page to explore, which works offline.

    Example: exactline report line.safetensors --labels no,yes
    """
    if result.exists() and not result.is_file():  # a folder, or a pipe that would block
        raise FileError("It is not a regular file.", where=str(result), hint=SAVED_FILE_HINT)
    page = result.with_suffix(".html") if out is None else out
    check_output_files({"--out": (page, (".html", ".htm"))})
    check_choice("--order", order, ("max", "min"))
    if table and image is not None:
        raise ArgumentError("--table and --image exclude each other.", where="--table", hint="Give one of them.")
    restriction, kind = _load_result(result, model)
    options: dict[str, Any] = {
        "title": title or result.stem.replace("_", " "),
        "labels": split_names(labels),
        "order": order,
        "features": split_names(features),
    }
    if kind == "line":
        shape = False if table else parse_shape(image, "--image", "28,28 or 3,32,32")
        options |= {"image": shape, "output": output or 0}
    elif image is not None or table or output is not None:
        raise ArgumentError(LINES_ONLY_PROBLEM, where=str(result), hint="The file contains a plane: omit them.")
    elif labels is not None and model is None:
        raise ArgumentError("The classes of a plane need the network.", where="--labels", hint="Give it with --model.")
    try:
        restriction.to_html(page, **options)
    except ArgumentError as problem:
        option = problem.where.replace("argument ", "--")
        raise ArgumentError(problem.problem, where=option, hint=problem.hint) from problem
    if as_json:
        size = page.stat().st_size
        count = {"pieces" if kind == "line" else "polygons": len(restriction)}
        print_json({"file": str(result), "kind": kind, "page": str(page), "bytes": size, **count})
    else:
        print_note(f"{kind}: {restriction}")
        print_text(str(page))


def _load_result(path: Path, model: Path | None) -> tuple[Restriction | PlaneRestriction, str]:
    """Load a line or a plane, whichever the file contains, and return it with its kind."""
    from ..formats import load_network
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction
    from ..results.storage import LINE_FORMAT, PLANE_FORMAT

    kinds = {LINE_FORMAT: (Restriction, "line"), PLANE_FORMAT: (PlaneRestriction, "plane")}
    name = _read_format(path)
    if name not in kinds:
        raise FileError("The file contains neither a line nor a plane.", where=str(path), hint=SAVED_FILE_HINT)
    result_class, kind = kinds[name]
    return result_class.load(path, None if model is None else load_network(model)), kind


def _read_format(path: Path) -> str | None:
    """Read the name of the format from the header of a safetensors file; None if it has no such header."""
    import json

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, MAX_HEADER_BYTES)))
        return header["__metadata__"]["format"]
    except OSError as problem:
        raise FileError(
            f"The file cannot be read: {problem.strerror}", where=str(path), hint="Give an existing file."
        ) from problem
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
