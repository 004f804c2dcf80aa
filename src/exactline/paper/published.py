"""Networks and images of the studies: those that the paper published, or the bundled digits networks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..errors import FileError
from ..formats import load_network
from ..formats.open_file import read_file
from ..network import Network, as_network
from .compose import prepend_normalization

TRAINING_FILES = {"normal": "Point", "DiffAI": "DiffAI", "PGD": "PGDK"}  # training method: its name in file names
IMAGE_SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3)}  # height, width, channel
DATASET_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR10"}
MNIST_NORMALIZATION = (0.1307, 0.3081)  # mean and standard deviation that the MNIST networks expect
RETRAINED_FILES = {"convmedium": "cifar10_convMed_nat", "convbig": "cifar10_convBig_nat"}
MAX_IMAGES = {"convbig": 5}  # images studied by default, for networks that take minutes per image
RETRAINED_NOTE = "the paper's architecture with other weights, because the paper's are no longer public"
PAPER_IMAGES = 100  # images of each data set in the paper
DATA_HINT = "Give a folder with eran/, images/ and trained/ as docs/paper.md describes, or omit --data."


@dataclass(frozen=True, eq=False)
class PixelImages:
    """Labelled images in pixel units."""

    name: str
    pixels: Floats  # (images, channel, height, width), 0 to 255
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def point(self, index: int) -> Tensor:  # (channel, height, width)
        """Return one image as a network input: pixels / 255."""
        return torch.from_numpy(self.pixels[index] / 255)

    def take(self, count: int | None) -> PixelImages:
        """Return the first images; all of them for None."""
        return self if count is None else PixelImages(self.name, self.pixels[:count], self.labels[:count])

    def digest(self, index: int) -> str:
        """Return a hash of one image and its label."""
        return sha256(self.pixels[index].tobytes() + bytes([self.labels[index]])).hexdigest()


@dataclass(frozen=True, eq=False)
class NamedNetwork:
    """A network of a study."""

    name: str  # its training method or its size
    network: Network
    note: str  # its file, and whether it is the paper's network
    has_published_results: bool = False  # whether the paper reports numbers for these weights
    max_images: int | None = None  # images studied by default, where one takes minutes

    @cached_property
    def digest(self) -> str:
        """A hash of the function that the network computes."""
        shapes = "".join(repr(node) for node in self.network.nodes)
        return f"{self.network.checksum()}-{sha256(shapes.encode()).hexdigest()}"


@dataclass(frozen=True, eq=False)
class NetworkSuite:
    """Networks that are compared on one set of images."""

    images: PixelImages
    networks: tuple[NamedNetwork, ...]
    bundled: bool  # whether these are the bundled networks, not the paper's

    @property
    def name(self) -> str:
        """The name of the images."""
        return self.images.name


def load_linearity_suites(folder: Path | None) -> list[NetworkSuite]:
    """Load normal, DiffAI and PGD networks: the paper's for MNIST and CIFAR10, or the bundled ones for digits."""
    if folder is None:
        return [load_digits_suite()]
    suites: list[NetworkSuite] = []
    for name in IMAGE_SHAPES:
        files = {kind: folder / "eran" / name / f"convSmallRELU__{word}.onnx" for kind, word in TRAINING_FILES.items()}
        networks = tuple(NamedNetwork(kind, _load_network(path, name), path.name) for kind, path in files.items())
        suites.append(NetworkSuite(read_images(folder, name), networks, bundled=False))
    return suites


def load_ig_suite(folder: Path | None) -> NetworkSuite:
    """Load networks of three sizes for CIFAR10, or the bundled networks for digits."""
    if folder is None:
        return load_digits_suite()
    path = folder / "eran" / "cifar10" / "convSmallRELU__Point.onnx"
    networks = [
        NamedNetwork(
            "convsmall", _load_network(path, "cifar10"), f"{path.name}, the paper's", has_published_results=True
        )
    ]
    for name, stem in RETRAINED_FILES.items():
        path = folder / "trained" / f"{stem}.onnx"
        if path.exists():
            networks.append(
                NamedNetwork(
                    name,
                    _load_network(path, "cifar10"),
                    f"{path.name}: {RETRAINED_NOTE}",
                    max_images=MAX_IMAGES.get(name),
                )
            )
    return NetworkSuite(read_images(folder, "cifar10"), tuple(networks), bundled=False)


def load_digits_suite() -> NetworkSuite:
    """Load the three bundled digits networks and 100 test digits."""
    from ..zoo.digits import digits_set
    from ..zoo.robust import robust_network

    images, labels = (part[:PAPER_IMAGES] for part in digits_set("test"))
    networks = tuple(
        NamedNetwork(
            name, as_network(robust_network(name.lower()), [images[0]]), "bundled with exactline, not the paper's"
        )
        for name in TRAINING_FILES
    )
    return NetworkSuite(
        PixelImages("digits", images.double().numpy() * 255, tuple(labels.tolist())), networks, bundled=True
    )


def read_images(folder: Path, name: str) -> PixelImages:
    """Read ``images/NAME_test.csv``: one image per row, its label first, then its pixels by height, width, channel.

    Raises FileError if the file is missing or malformed.
    """
    path = folder / "images" / f"{name}_test.csv"
    height, width, channels = IMAGE_SHAPES[name]
    try:
        rows = [[int(cell) for cell in row.split(b",")] for row in read_file(path).split()]
        table = np.array(rows, dtype=np.int64)
        valid = table.ndim == 2 and table.shape[1] == 1 + height * width * channels and len(table) > 0
        valid = valid and bool(((table >= 0) & (table <= 255)).all()) and bool((table[:, 0] < 10).all())
    except (ValueError, OverflowError):
        table, valid = np.zeros((0, 1), dtype=np.int64), False
    if not valid:
        raise FileError(
            f"Each row must hold a label and {height * width * channels} pixels from 0 to 255.",
            where=str(path),
            hint=DATA_HINT,
        )
    pixels = table[:, 1:].reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    return PixelImages(
        DATASET_TITLES[name], np.ascontiguousarray(pixels, dtype=np.float64), tuple(table[:, 0].tolist())
    )


def _load_network(path: Path, name: str) -> Network:
    """Load a published network that takes pixels / 255; the MNIST files leave out their normalization."""
    if not path.exists():
        raise FileError("The published network is missing.", where=str(path), hint=DATA_HINT)
    network, (height, width, channels) = load_network(path), IMAGE_SHAPES[name]
    if network.input_shape != (channels, height, width) or network.output_shape != (10,):
        raise FileError(
            f"The network maps {network.input_shape} to {network.output_shape}.",
            where=str(path),
            hint=f"Give a network that maps ({channels}, {height}, {width}) to 10 scores.",
        )
    return network if name != "mnist" else prepend_normalization(network, *MNIST_NORMALIZATION)
