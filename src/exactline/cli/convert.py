"""``exactline convert``: a network from one file format into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console.options import Normalize, Shape
from ..console.output import dims, say, say_json, writable
from ..errors import FileError
from ..humanize import count_noun


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A network: .onnx, .nnet, .eran, .tf, .pyt.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The file to write: .onnx or .eran.")],
    normalize: Normalize = True,
    shape: Shape = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of a sentence.")] = False,
) -> None:
    """Write a network in another format; the file appears whole or not at all.

    Example: exactline convert acas.nnet acas.onnx
    """
    from ..formats import load
    from ..network.listing import weights

    writable(target, "DST")
    if target.exists() and not force:
        raise FileError("The file is there already.", where=str(target), hint="Add --force to write over it.")
    network = load(source, normalize=normalize, shape=dims(shape))
    network.save(target)
    count = len(network.nodes) - len(network.inputs)
    held, size = weights(network), target.stat().st_size
    if as_json:
        say_json({"source": str(source), "file": str(target), "layers": count, "weights": held, "bytes": size})
    else:
        say(f"wrote {target}: {count_noun(count, 'layer')}, {count_noun(held, 'weight')}, {count_noun(size, 'byte')}")
