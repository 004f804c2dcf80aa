"""``exactline report``: a saved line or plane as one web page to explore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import Labels, Order, Output
from ..console.output import dims, ready, remark, say, say_json
from ..errors import ArgumentError, FileError

if TYPE_CHECKING:
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction

SAVED = "Give a file that exactline restrict --out or exactline plane --out wrote."
ONLY_LINES = "--features, --image, --table and --output are for lines."


def report(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="What restrict or plane saved with --out.")],
    out: Annotated[Path | None, typer.Option(help="The page, .html; beside RESULT when left out.")] = None,
    title: Annotated[str | None, typer.Option(help="Its title; the name of RESULT when left out.")] = None,
    labels: Labels = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Names of the numbers of the input, in order.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="28,28", help="Show the input as an image of this shape.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Show an input that is an image as a table.")] = False,
    order: Order = "max",
    output: Output = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The network: a plane's classes need it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of a text.")] = False,
) -> None:
    """A saved line or plane as one web page to explore, which works offline and needs nothing installed.

    Example: exactline report line.safetensors --labels no,yes
    """
    if result.exists() and not result.is_file():  # a folder, a pipe
        raise FileError("It is not a regular file.", where=str(result), hint=SAVED)
    page = result.with_suffix(".html") if out is None else out
    ready({"--out": (page, (".html", ".htm"))})
    if order not in ("max", "min"):
        raise ArgumentError(f"There is no order {order!r}.", where="--order", hint="Give max or min.")
    if table and image is not None:
        raise ArgumentError("--table and --image contradict each other.", where="--table", hint="Give one of them.")
    found, kind = _loaded(result, model)
    options: dict[str, Any] = {"title": title or result.name, "labels": _listed(labels), "order": order}
    if kind == "line":
        seen = False if table else _shape(image)
        options |= {"features": _listed(features), "image": seen, "output": output or 0}
    elif features is not None or image is not None or table or output is not None:
        raise ArgumentError(ONLY_LINES, where=str(result), hint="This file holds a plane: leave them out.")
    elif labels is not None and model is None:
        raise ArgumentError("The classes of a plane need the network.", where="--labels", hint="Give it with --model.")
    try:
        found.to_html(page, **options)
    except ArgumentError as problem:
        option = problem.where.replace("argument ", "--")
        raise ArgumentError(problem.problem, where=option, hint=problem.hint) from problem
    if as_json:
        size = page.stat().st_size
        count = {"pieces" if kind == "line" else "polygons": len(found)}
        say_json({"file": str(result), "kind": kind, "page": str(page), "bytes": size, **count})
    else:
        remark(f"{kind}: {found}")
        say(str(page))


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _shape(text: str | None) -> tuple[int, ...] | None:
    try:
        return dims(text)
    except ArgumentError as problem:
        raise ArgumentError(problem.problem, where="--image", hint="Give sizes such as 28,28 or 3,32,32.") from None


def _loaded(path: Path, model: Path | None) -> tuple[Restriction | PlaneRestriction, str]:
    """What a file holds, as its header says."""
    from ..formats import load
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction
    from ..results.storage import LINE_FORMAT as LINE
    from ..results.storage import PLANE_FORMAT as PLANE

    kinds = {PLANE: (PlaneRestriction, "plane"), LINE: (Restriction, "line")}
    if (found := kinds.get(_format(path) or "")) is not None:
        return found[0].load(path, None if model is None else load(model)), found[1]
    raise FileError(
        "The file holds neither a line nor a plane.",
        where=str(path),
        hint=SAVED,
    )


def _format(path: Path) -> str | None:
    """The name of the format in the header of a safetensors file; None where there is no such header."""
    import json

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 100_000_000)))
        return header["__metadata__"]["format"]
    except OSError as problem:
        raise FileError(
            f"The file cannot be read: {problem.strerror}", where=str(path), hint="Give a file that is there."
        ) from problem
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
