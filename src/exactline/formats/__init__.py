"""Networks from files and into files: one module for each format, all of them making a Network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FileError
from .open_file import opened

if TYPE_CHECKING:
    from ..network.graph import Network

ERAN = (".eran", ".tf", ".pyt")
PICKLES = (
    ".pt",
    ".pth",
    ".pt2",
    ".pkl",
    ".pickle",
    ".ckpt",
    ".bin",
    ".joblib",
    ".npy",
    ".npz",
    ".h5",
    ".keras",
    ".jit",
)
READABLE = "one of .onnx, .nnet, .eran, .tf, .pyt; text formats also as .gz"


def load(path: str | os.PathLike[str], *, normalize: bool = True, shape: Sequence[int] | None = None) -> Network:
    """A network from a file: ONNX, ERAN text (.eran, .tf, .pyt, also .gz) or .nnet.

    ``normalize`` is for .nnet, whose files say how inputs are normalised and outputs scaled back: with it the
    network takes and gives what the file's numbers mean (feet and radians for ACAS Xu), without it the bare layers.
    ``shape`` is that of one input point, for ONNX files that leave it open.

    >>> import tempfile, torch
    >>> from exactline.network import as_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     as_network(torch.nn.ReLU(), [torch.zeros(3)]).save(f"{folder}/relu.onnx")
    ...     load(f"{folder}/relu.onnx")
    <Network (3,) -> (3,): 2 nodes, 3 relu units>

    Raises FileError where the file is damaged, UnsupportedError naming every operator that is not piecewise linear.
    """
    file = Path(path)
    kind = _kind(file)
    if kind == ".onnx":
        from .onnx import read_onnx

        return read_onnx(opened(file), str(file), folder=file.parent, shape=shape)
    if kind == ".nnet":
        from .nnet import read_nnet

        return read_nnet(opened(file), str(file), normalize=normalize)
    from .eran import read_eran

    return read_eran(opened(file), str(file))


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a file: ``.onnx``, or ``.eran`` for networks that are one layer after another."""
    from ..files import write_atomically

    file = Path(path)
    if file.suffix == ".onnx":
        from .onnx_writer import onnx_bytes

        write_atomically(file, onnx_bytes(network))
    elif file.suffix in ERAN:
        from .eran_writer import eran_bytes

        write_atomically(file, eran_bytes(network))
    else:
        raise FileError(
            f"Networks are not written as {file.suffix or 'a file without an ending'}.",
            where=str(file),
            hint="Name the file .onnx, or .eran where the network is one layer after another.",
        )


def _kind(file: Path) -> str:
    """The format, by the ending of the name."""
    name = file.name.lower().removesuffix(".gz")
    kind = next((s for s in (".onnx", ".nnet", *ERAN) if name.endswith(s)), None)
    if kind is not None:
        return ".eran" if kind in ERAN else kind
    if any(name.endswith(s) for s in PICKLES):
        raise FileError(
            f"{file.suffix} files are not opened: reading one can run code that is hidden in it.",
            where=str(file),
            hint="Load it yourself if you trust it, and pass the module or the ExportedProgram; or export it to ONNX.",
        )
    raise FileError(
        f"{file.suffix or 'A file without an ending'} is not a format we know.",
        where=str(file),
        hint=f"Give {READABLE}.",
    )
