"""Arguments and options that several commands share, each said in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

POINT = "20,30 or a file: .npy, .npz:key, .csv, .csv:row, .png, .jpg; once for each input of the network."

File = Annotated[Path, typer.Argument(metavar="FILE", help="A network: .onnx, .nnet, .eran, .tf, .pyt.")]
Start = Annotated[list[str], typer.Option("--from", metavar="POINT", help=f"Where the line begins: {POINT}")]
End = Annotated[list[str], typer.Option("--to", metavar="POINT", help="Where it ends, in the same ways.")]
Shape = Annotated[
    str | None,
    typer.Option(metavar="12,12,3", help="The shape of one input point, for ONNX files that leave it open."),
]
Normalize = Annotated[bool, typer.Option(help="Follow what a .nnet says of its inputs and outputs.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda.")]
Memory = Annotated[str | None, typer.Option(help="Bound the working set: bytes, or 512M, 2G.")]
MaxBreaks = Annotated[int | None, typer.Option(help="Stop after so many breaks.")]
Seconds = Annotated[float | None, typer.Option(help="Stop after so long.")]
Order = Annotated[str, typer.Option(metavar="max|min", help="Whether the largest output decides.")]
Labels = Annotated[str | None, typer.Option(metavar="A,B,C", help="Names of the outputs, in order.")]
Output = Annotated[int | None, typer.Option(help="Which output, where the network has several.")]
Saved = Annotated[Path | None, typer.Option(help="Save the answer as .safetensors.")]
Pictures = Annotated[bool, typer.Option(help="Draw the pictures.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of the table.")]
AsJsonTables = Annotated[bool, typer.Option("--json", help="One JSON document instead of the tables.")]
Bar = Annotated[bool, typer.Option(help="A bar on standard error, where that is a terminal.")]
