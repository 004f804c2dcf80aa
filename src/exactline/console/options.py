"""Arguments and options that several commands share, and dataclasses of options that several commands take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

NETWORK_SUFFIXES = ".onnx, .nnet, .eran, .tf, .pyt"
POINT_HELP = "20,30 or a file: .npy, .npz:key, .csv, .csv:row, .png, .jpg; once for each input of the network."

NetworkFile = Annotated[Path, typer.Argument(metavar="FILE", help=f"A network: {NETWORK_SUFFIXES}.")]
Start = Annotated[list[str], typer.Option("--from", metavar="POINT", help=f"Where the line starts: {POINT_HELP}")]
End = Annotated[list[str], typer.Option("--to", metavar="POINT", help="Where the line ends, in the same formats.")]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="12,12,3",
        help="Shape of one input, for ONNX files that leave it open; of several: image=3,32,32;age=5.",
    ),
]
Normalize = Annotated[bool, typer.Option(help="Apply the normalization of inputs and outputs in a .nnet file.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda.")]
Memory = Annotated[str | None, typer.Option(help="Bound the working set: bytes, or 512M, 2G.")]
MaxBreaks = Annotated[int | None, typer.Option(help="Stop after this many breaks.")]
MaxPolygons = Annotated[int | None, typer.Option(help="Stop with an error if there are more polygons.")]
TimeLimit = Annotated[float | None, typer.Option(help="Stop after this many seconds.")]
Order = Annotated[str, typer.Option(metavar="max|min", help="Whether the largest or the smallest output decides.")]
Labels = Annotated[str | None, typer.Option(metavar="A,B,C", help="Names of the outputs, in order.")]
Features = Annotated[
    str | None,
    typer.Option(metavar="A,B,C", help="Names of the features of the input, in order, best with their units."),
]
OutputIndex = Annotated[int | None, typer.Option(help="Which output, if the network has several.")]
OutputName = Annotated[
    str | None, typer.Option(metavar="NAME|K", help="Which output, by name or from 0, if the network has several.")
]
Threshold = Annotated[
    float | None,
    typer.Option(help="Between the two classes of a network with one output; 0.5 behind a sigmoid."),
]
SavePath = Annotated[Path | None, typer.Option(help="Save the result as .safetensors.")]
StudyFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder for tables and pictures; created if missing.")]
DrawPictures = Annotated[bool, typer.Option(help="Draw the pictures.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")]
AsJsonTables = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the tables.")]
PlaneTimeLimit = Annotated[float | None, typer.Option(help="Stop with an error after this many seconds.")]
ShowProgress = Annotated[
    bool, typer.Option(help="Show progress on standard error: a bar in a terminal, elsewhere a line now and then.")
]


@dataclass(frozen=True)
class PointConversions:
    """Options of all commands that read points: what to convert, and how."""

    resize: Annotated[bool, typer.Option("--resize", help="Resize an array that is an image of another size.")] = False
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="chw|hwc|flat",
            help="Order of an array's dims; flat: its numbers in order, whatever its shape.",
        ),
    ] = None
    scale: Annotated[
        float | None,
        typer.Option(help="Divide the numbers: 255 for pixels, 1 to take them as they are (default: 255 for images)."),
    ] = None
    mean: Annotated[
        str | None, typer.Option(metavar="M,M,M", help="Subtract this from the scaled numbers: one, or one a channel.")
    ] = None
    std: Annotated[
        str | None, typer.Option(metavar="S,S,S", help="Divide by this after --mean: one number, or one a channel.")
    ] = None


def expand_options(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let typer offer the fields of a dataclass as options of a command.

    Several commands can then share a list of options. The command takes one parameter ``options`` of that dataclass; on
    the command line the fields stand in its place.

    Args:
        options: A dataclass whose fields are annotated as typer options.
    """
    names = [field.name for field in fields(options)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            shared = options(**{name: arguments.pop(name) for name in names})
            command(**arguments, options=shared)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "options":
                parameters += inspect.signature(options, eval_str=True).parameters.values()
            else:
                parameters.append(parameter)
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = inspect.Signature(keywords)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {p.name: p.annotation for p in keywords}
        return run

    return decorate
