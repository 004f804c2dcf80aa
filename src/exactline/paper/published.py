"""What the paper's tables are made from: the published networks and images of a folder, or those that ship with us."""

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
from ..formats import load
from ..formats.graph_builder import Sketch
from ..formats.open_file import opened
from ..network import Network, as_network
from ..network.builder import Value
from .encounter import joined

KINDS = {"normal": "Point", "DiffAI": "DiffAI", "PGD": "PGDK"}  # our word for a training, and the files'
SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3)}  # height, width, channel
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR10"}
MNIST = (0.1307, 0.3081)  # mean and deviation that the MNIST networks expect their input normalised by
TRAINED = {"convmedium": "cifar10_convMed_nat", "convbig": "cifar10_convBig_nat"}
MOST = {"convbig": 5}  # an image of which takes minutes
OTHER = "the paper's shape, other weights: the paper's are not public any more"
MANY = 100  # of our own digits, as many as the paper takes
HINT = "Give a folder with eran/, images/ and trained/ as docs/paper.md describes, or leave out --data."


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images in pixel units."""

    name: str
    pixels: Floats  # (images, channel, height, width), 0 to 255
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def point(self, index: int) -> Tensor:  # (channel, height, width)
        """One image as networks take it: pixels / 255."""
        return torch.from_numpy(self.pixels[index] / 255)

    def first(self, count: int | None) -> Images:
        """The first so many of them."""
        return self if count is None else Images(self.name, self.pixels[:count], self.labels[:count])

    def mark(self, index: int) -> str:
        """A name for one image and its label that no other has."""
        return sha256(self.pixels[index].tobytes() + bytes([self.labels[index]])).hexdigest()


@dataclass(frozen=True, eq=False)
class Subject:
    """One network of a study."""

    name: str  # how it was trained, or how large it is
    network: Network
    note: str  # which file, and whether it is the paper's
    papers: bool = False  # whether the paper has numbers of these very weights
    most: int | None = None  # images that are taken unless more are asked for, where an image takes minutes

    @cached_property
    def mark(self) -> str:
        """A name for the function that the network computes."""
        shapes = "".join(repr(node) for node in self.network.nodes)
        return f"{self.network.checksum()}-{sha256(shapes.encode()).hexdigest()}"


@dataclass(frozen=True, eq=False)
class Suite:
    """Networks that are compared on the same images."""

    images: Images
    subjects: tuple[Subject, ...]
    ours: bool  # the networks that ship with exactline, not the paper's

    @property
    def name(self) -> str:
        """Of the images."""
        return self.images.name


def linearity_suites(folder: Path | None) -> list[Suite]:
    """Normal, DiffAI and PGD networks: the paper's for MNIST and CIFAR10, or ours for small digits."""
    if folder is None:
        return [digits_suite()]
    found: list[Suite] = []
    for name in SHAPES:
        files = {kind: folder / "eran" / name / f"convSmallRELU__{word}.onnx" for kind, word in KINDS.items()}
        subjects = tuple(Subject(kind, _network(path, name), path.name) for kind, path in files.items())
        found.append(Suite(read_images(folder, name), subjects, ours=False))
    return found


def ig_suite(folder: Path | None) -> Suite:
    """Networks of three sizes for CIFAR10, or ours for small digits."""
    if folder is None:
        return digits_suite()
    path = folder / "eran" / "cifar10" / "convSmallRELU__Point.onnx"
    subjects = [Subject("convsmall", _network(path, "cifar10"), f"{path.name}, the paper's", papers=True)]
    for name, stem in TRAINED.items():
        path = folder / "trained" / f"{stem}.onnx"
        if path.exists():
            subjects.append(Subject(name, _network(path, "cifar10"), f"{path.name}: {OTHER}", most=MOST.get(name)))
    return Suite(read_images(folder, "cifar10"), tuple(subjects), ours=False)


def digits_suite() -> Suite:
    """The three networks that ship with exactline, and a hundred digits they were not trained on."""
    from ..zoo.digit_set import digits_set
    from ..zoo.robust import robust

    images, labels = (part[:MANY] for part in digits_set("test"))
    subjects = tuple(
        Subject(name, as_network(robust(name.lower()), [images[0]]), "ships with exactline, not the paper's")
        for name in KINDS
    )
    return Suite(Images("digits", images.double().numpy() * 255, tuple(labels.tolist())), subjects, ours=True)


def read_images(folder: Path, name: str) -> Images:
    """The images of ``images/NAME_test.csv``: one in each row, the label first, then height, width, channel.

    Raises FileError for a file that is missing or holds anything else.
    """
    path = folder / "images" / f"{name}_test.csv"
    height, width, channels = SHAPES[name]
    try:
        rows = [[int(cell) for cell in row.split(b",")] for row in opened(path).split()]
        table = np.array(rows, dtype=np.int64)
        sound = table.ndim == 2 and table.shape[1] == 1 + height * width * channels and len(table) > 0
        sound = sound and bool(((table >= 0) & (table <= 255)).all()) and bool((table[:, 0] < 10).all())
    except (ValueError, OverflowError):
        table, sound = np.zeros((0, 1), dtype=np.int64), False
    if not sound:
        raise FileError(
            f"It should hold a label and {height * width * channels} pixels from 0 to 255 in each row.",
            where=str(path),
            hint=HINT,
        )
    pixels = table[:, 1:].reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    return Images(TITLES[name], np.ascontiguousarray(pixels, dtype=np.float64), tuple(table[:, 0].tolist()))


def _network(path: Path, name: str) -> Network:
    """A published network that takes pixels / 255; the MNIST files leave the normalisation to their reader."""
    if not path.exists():
        raise FileError("This published network is not there.", where=str(path), hint=HINT)
    network, (height, width, channels) = load(path), SHAPES[name]
    if network.input_shape != (channels, height, width) or network.output_shape != (10,):
        raise FileError(
            f"The network takes {network.input_shape} and gives {network.output_shape}.",
            where=str(path),
            hint=f"It should take ({channels}, {height}, {width}) and give 10 scores.",
        )
    return network if name != "mnist" else normalised(network, *MNIST)


def normalised(network: Network, mean: float, deviation: float) -> Network:
    """The network behind (x - mean) / deviation, as one graph."""
    front = Sketch("the study")
    x: Value = front.input("image", network.nodes[network.inputs[0]].shape)
    for name, operator, number in (("mean", "sub.Tensor", mean), ("std", "div.Tensor", deviation)):
        front.at(f"normalize.{name}")
        x = front.call(operator, x, torch.full((1, *x.shape), number, dtype=torch.float64))
    return joined(front.network([x]), network)
