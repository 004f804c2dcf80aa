"""Read networks from files and write them to files, with one module for each format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError, FileError
from .open_file import read_file

if TYPE_CHECKING:
    from ..network.graph import Network
    from ..network.smooth_network import SmoothNetwork

PointShapes: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]
ERAN_SUFFIXES = (".eran", ".tf", ".pyt")
PICKLE_SUFFIXES = (
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
READABLE_FORMATS = "one of .onnx, .nnet, .eran, .tf, .pyt; text formats also as .gz"


def load(
    path: str | os.PathLike[str] | Any,
    *,
    normalize: bool = True,
    shape: PointShapes | None = None,
) -> Network | SmoothNetwork:
    """Read a network from a file, or convert a fitted perceptron of scikit-learn.

    Nothing in a file is ever run, and sizes are checked before memory is allocated. A file with smooth operators, such
    as GELU or attention, gives a `SmoothNetwork`, for `exactline.approximate` and attributions to a tolerance.

    Args:
        path: ends in .onnx, .nnet or, for ERAN text, in .eran, .tf or .pyt; text formats may be packed as .gz.
            Or a fitted MLPClassifier or MLPRegressor of scikit-learn, alone or behind scalers in a Pipeline.
        normalize: for .nnet, include the normalization of inputs and outputs that the file describes. The network
            then works in physical units, such as feet and radians for ACAS Xu; otherwise it is the bare layers.
        shape: of one input point, for ONNX files with dynamic dimensions; for several inputs a list of shapes in the
            order of the file, or a dict of shapes by the names of the inputs. It also decides whether a fixed first
            dimension is a batch: leave it out for a batch, include it if it belongs to the point.

    >>> import tempfile, torch
    >>> from exactline.network import as_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     as_network(torch.nn.ReLU(), [torch.zeros(3)]).save(f"{folder}/relu.onnx")
    ...     load(f"{folder}/relu.onnx")
    <Network (3,) -> (3,): 2 nodes, 3 relu units>

    Raises FileError for a damaged file or an unknown ending, UnsupportedError naming every operator that is not known,
    ArgumentError where ``shape`` does not fit.
    """
    if not isinstance(path, (str, os.PathLike)):
        return _convert(path)
    file = Path(path)
    suffix = _detect_format(file)
    if suffix == ".onnx":
        from .onnx import read_onnx

        return read_onnx(read_file(file), str(file), folder=file.parent, shape=shape)
    if suffix == ".nnet":
        from .nnet import read_nnet

        return read_nnet(read_file(file), str(file), normalize=normalize)
    from .eran import read_eran

    return read_eran(read_file(file), str(file))


def _convert(model: Any) -> Network:
    """Convert an estimator of scikit-learn."""
    import torch

    from ..network import as_network
    from ..network.sklearn_models import feature_count, is_estimator

    if not is_estimator(model):
        raise ArgumentError(
            f"A {type(model).__name__} is not a path.",
            where="argument path",
            hint="Give the path of a file, or a fitted MLPClassifier or MLPRegressor of scikit-learn.",
        )
    return as_network(model, [torch.zeros(feature_count(model))])


def load_network(path: str | os.PathLike[str], *, normalize: bool = True, shape: PointShapes | None = None) -> Network:
    """Read a piecewise-linear network from a file, as `load` does.

    Raises UnsupportedError naming every operator that is not piecewise linear, and what `load` raises.
    """
    from ..network.smooth_network import require_piecewise_linear

    return require_piecewise_linear(load(path, normalize=normalize, shape=shape))


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a file.

    Args:
        network: the network.
        path: ends in ``.onnx``, or in ``.eran`` for a network whose layers form a chain.

    >>> import tempfile, torch
    >>> from exactline.network import as_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(as_network(torch.nn.Linear(2, 1), [torch.zeros(2)]), f"{folder}/linear.eran")
    ...     load(f"{folder}/linear.eran")
    <Network (2,) -> (1,): 2 nodes, no breaking units>

    Raises UnsupportedError for a node that the format cannot express, FileError for another ending.
    """
    from ..files import write_atomically

    file = Path(path)
    if file.suffix == ".onnx":
        from .onnx_writer import encode_onnx

        write_atomically(file, encode_onnx(network))
    elif file.suffix in ERAN_SUFFIXES:
        from .eran_writer import encode_eran

        write_atomically(file, encode_eran(network))
    else:
        raise FileError(
            f"A network cannot be written as {file.suffix or 'a file without an ending'}.",
            where=str(file),
            hint="Name the file .onnx, or .eran where the layers form a chain.",
        )


def _detect_format(file: Path) -> str:
    """The format of a file as .onnx, .nnet or .eran, by its name."""
    name = file.name.lower().removesuffix(".gz")
    suffix = next((s for s in (".onnx", ".nnet", *ERAN_SUFFIXES) if name.endswith(s)), None)
    if suffix is not None:
        return ".eran" if suffix in ERAN_SUFFIXES else suffix
    if any(name.endswith(s) for s in PICKLE_SUFFIXES):
        raise FileError(
            f"{file.suffix} files are not opened: reading one can run code that is hidden in it.",
            where=str(file),
            hint="Load it yourself if you trust it, and pass the module or the ExportedProgram; or export it to ONNX.",
        )
    raise FileError(
        f"{file.suffix} is not a known format."
        if file.suffix
        else "The file has no ending, so its format is not known.",
        where=str(file),
        hint=f"Give {READABLE_FORMATS}.",
    )
