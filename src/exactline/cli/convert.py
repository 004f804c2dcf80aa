"""``exactline convert``: write a network in another file format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console.inputs import parse_shapes
from ..console.options import NETWORK_SUFFIXES, Normalize, Shape
from ..console.output import print_json, print_text, require_writable
from ..errors import FileError
from ..humanize import count_noun


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help=f"A network: {NETWORK_SUFFIXES}.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The file to write: .onnx or .eran.")],
    normalize: Normalize = True,
    shape: Shape = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a sentence.")] = False,
) -> None:
    """Write a network in another format; the file is written completely or not at all.

    Example: exactline convert acas.nnet acas.onnx
    """
    from ..formats import load_network
    from ..network.listing import count_weights

    require_writable(target, "DST")
    if target.exists() and not force:
        raise FileError("The file exists already.", where=str(target), hint="Add --force to overwrite it.")
    network = load_network(source, normalize=normalize, shape=parse_shapes(shape))
    network.save(target)
    layers = len(network.nodes) - len(network.inputs)
    weights, size = count_weights(network), target.stat().st_size
    if as_json:
        print_json({"source": str(source), "file": str(target), "layers": layers, "weights": weights, "bytes": size})
    else:
        counts = (count_noun(layers, "layer"), count_noun(weights, "weight"), count_noun(size, "byte"))
        print_text(f"wrote {target}: {', '.join(counts)}")
