"""Densities of one's own networks: breaks along FGSM and random lines, against length, layer and training epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..density import density
from ..errors import ArgumentError
from ..network import Network, as_network
from ..sweep.precise import precise
from .kept import Kept
from .labelled import Labelled
from .linearity import gradient_at
from .published import Subject

Floats: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[float, str], None]
VERSION = "density 1"  # of the definitions below: what was kept under others is not used
CURVE = 24  # lengths at which pieces are counted
FARTHER = 4.0  # the longest line, in lengths of an additive perturbation


@dataclass(frozen=True)
class Plan:
    """Which lines run from an image.

    Each pixel moves by ``eps`` (or, multiplicative, by ``eps`` times itself) along a sign; with ``levels`` the step is
    rounded down to whole levels of so many in the range 1, as an image file has them. The end is clipped to low..high.
    """

    eps: float = 0.1
    multiplicative: bool = False
    levels: int | None = None
    low: float = 0.0
    high: float = 1.0
    random: int = 4  # directions of each image
    reach: float | None = None  # the longest line of the curve of lengths; four perturbations if left out; 0 for none
    seed: int = 0

    def __post_init__(self) -> None:
        sound = {
            "eps": 0 < self.eps < float("inf"),
            "levels": self.levels is None or 1 <= self.levels <= 2**31,
            "low": float("-inf") < self.low < self.high < float("inf"),
            "random": 1 <= self.random <= 1000,
            "reach": self.reach is None or 0 <= self.reach < float("inf"),
            "seed": 0 <= self.seed < 2**31,
        }
        for name, good in sound.items():
            if not good:
                raise ArgumentError(
                    f"{name} cannot be {getattr(self, name)!r}.",
                    where=f"argument {name}",
                    hint="eps and reach are above 0, low is below high, random is from 1 to 1000, seed at least 0.",
                )

    def changed(self, point: Floats, sign: Floats) -> Floats:
        """The image at the end of a line.

        >>> Plan(eps=0.25, multiplicative=True).changed(np.array([0.0, 0.8, 0.9]), np.array([1.0, -1.0, 1.0])).tolist()
        [0.0, 0.6000000000000001, 1.0]
        """
        base = point if self.multiplicative else np.ones_like(point)
        if self.levels is None:
            step = self.eps * base
        else:  # a whole level is a whole number again, so that 3 % of 100 levels are 3
            step = np.floor(self.eps * np.round(base * self.levels, 9)) / self.levels
        return np.clip(point + step * sign, self.low, self.high)

    def sign(self, shape: tuple[int, ...], image: int, direction: int) -> Floats:
        """A random direction of an image."""
        drawn = np.random.RandomState((self.seed + max(20, self.random) * image + direction) % 2**32)
        return drawn.choice([-1, 1], shape).astype(np.float64)

    def lengths(self, shape: tuple[int, ...]) -> Floats:
        """Lengths at which pieces are counted, ascending."""
        reach = FARTHER * self.eps * float(np.sqrt(np.prod(shape))) if self.reach is None else self.reach
        return reach * np.arange(1, CURVE + 1) / CURVE if reach else np.zeros(0)


@dataclass(frozen=True)
class Row:
    """What was found for one image and one network; lines are FGSM, then the random ones."""

    network: str
    image: int
    label: int
    predicted: int
    breaks: tuple[int, ...]  # both ends counted; 0 where the line has no length
    lengths: tuple[float, ...]
    births: dict[str, tuple[int, ...]]  # by node
    within: tuple[tuple[int, ...], ...]  # pieces of the first so much of the long lines; nothing without direction

    @property
    def right(self) -> bool:
        """Whether the network classifies the image rightly."""
        return self.predicted == self.label

    @property
    def densities(self) -> Floats:
        """Breaks for each unit of length; NaN for a line without length."""
        lengths = np.array(self.lengths)
        return np.array(self.breaks) / np.where(lengths > 0, lengths, np.nan)


@dataclass(frozen=True)
class Densities:
    """All images of all networks, and of all checkpoints, in order."""

    plan: Plan
    images: Labelled
    subjects: tuple[Subject, ...]
    rows: tuple[Row, ...]
    checkpoints: tuple[Subject, ...]
    epochs: tuple[Row, ...]
    resumed: int  # rows that an earlier run had found

    def of(self, network: str) -> dict[int, Row]:
        """The images that a network classifies rightly, by number."""
        return {r.image: r for r in self.rows if r.network == network and r.right}

    @property
    def lengths(self) -> Floats:
        """Lengths at which pieces were counted."""
        return self.plan.lengths(self.images.points.shape[1:])


def subjects_of(networks: Mapping[str, Any] | Sequence[Path], shape: tuple[int, ...] | None = None) -> list[Subject]:
    """Networks by name, or out of files; all must take one input of one shape and give the same number of scores.

    Raises ArgumentError where they differ, FileError and CaptureError where one cannot be read.
    """
    from ..formats import load

    found: list[Subject] = []
    if isinstance(networks, Mapping):
        for name, model in networks.items():
            points = [] if shape is None else [torch.zeros(shape)]
            found.append(Subject(str(name), as_network(model, points), "given"))
    else:
        stems = [path.name.split(".")[0] for path in networks]
        for path, stem in zip(networks, stems, strict=True):
            name = stem if stems.count(stem) == 1 else str(path)
            found.append(Subject(name, load(path, shape=shape), str(path.name)))
    shapes = {(s.network.input_shape, s.network.output_shape) for s in found}
    flat = len(shapes) == 1 and not any(s.network.several_inputs or s.network.several_outputs for s in found)
    if not flat or len({s.name for s in found}) < len(found):
        raise ArgumentError(
            "Networks that are compared have different names, one input and one output each, of the same shapes.",
            where=", ".join(f"{s.name} {s.network.input_shape} -> {s.network.output_shape}" for s in found)[:300]
            or "no",
            hint="Give at least one network; leave out those that differ.",
        )
    return found


def embedded() -> list[Subject]:
    """The three digits networks that ship with exactline."""
    from ..zoo import robust
    from ..zoo.robust import METHODS

    example = torch.zeros(1, 8, 8)
    return [Subject(name, as_network(robust(name), [example]), "ships with exactline") for name in METHODS]


def unseen_digits() -> Labelled:
    """Digits that they were not trained on."""
    from ..zoo import digits_set

    images, labels = digits_set("test")
    return Labelled("test digits", images.double().numpy(), tuple(labels.tolist()))


def run(
    subjects: Sequence[Subject],
    images: Labelled,
    plan: Plan | None = None,
    *,
    checkpoints: Sequence[Subject] = (),
    folder: Path | None = None,  # finished images are kept there
    progress: Progress | None = None,
) -> Densities:
    """Count the breaks along FGSM and random lines from every image, in every network and checkpoint.

    Raises ArgumentError for labels that are no class of the networks, and what restrict raises.
    """
    plan = plan or Plan()
    kept = Kept(folder, VERSION)
    jobs = [(s, plan, i, False) for s in subjects for i in range(len(images))]
    jobs += [(s, replace(plan, reach=0.0), i, True) for s in checkpoints for i in range(len(images))]
    rows: tuple[list[Row], list[Row]] = ([], [])
    for done, (subject, asked, index, epoch) in enumerate(jobs):
        if progress is not None:
            progress(done / len(jobs), f"{subject.name}, image {index}")
        rows[epoch].append(_row(subject, images, index, asked, kept))
    return Densities(plan, images, tuple(subjects), tuple(rows[0]), tuple(checkpoints), tuple(rows[1]), kept.found)


def _row(subject: Subject, images: Labelled, index: int, plan: Plan, kept: Kept) -> Row:
    made_from = subject.mark, images.mark(index), str(index), repr(asdict(plan))
    part = kept.get(*made_from)
    if part is None:
        part = _found(subject.network, images, index, plan)
        kept.put(part, *made_from)
    births = {name: tuple(counts) for name, counts in part["births"].items()}
    within = tuple(tuple(counts) for counts in part["within"])
    lines = tuple(part["breaks"]), tuple(part["lengths"])
    return Row(subject.name, index, part["label"], part["predicted"], *lines, births, within)


def _found(network: Network, images: Labelled, index: int, plan: Plan) -> dict[str, Any]:
    point = images.points[index]
    x = torch.from_numpy(point)
    with precise():
        scores = network.evaluate([x[None]], network.outputs)[network.outputs[0]].reshape(-1)
        predicted = int(scores.argmax())
        label = predicted if images.labels is None else images.labels[index]
        if label >= len(scores):
            raise ArgumentError(
                f"Image {index} is of class {label}, and the network knows {len(scores)}.",
                where=f"labels of {images.name}",
                hint="Number classes from 0.",
            )
        slope = gradient_at(network, x[None], (label + 1) % len(scores))[0].numpy()
    signs = [np.sign(slope), *(plan.sign(point.shape, index, j) for j in range(plan.random))]
    ways = np.stack([plan.changed(point, s) - point for s in signs])
    part = _counted(network, x, ways)
    lengths = plan.lengths(point.shape)
    part["within"] = _curves(network, x, np.stack(signs), lengths) if len(lengths) else []
    return part | {"predicted": predicted, "label": label}


def _counted(network: Network, x: torch.Tensor, ways: Floats) -> dict[str, Any]:
    """Breaks, lengths and births of all lines; zeros where a line has no length."""
    moving = np.array([bool(way.any()) for way in ways])
    found = density(network, x, torch.from_numpy(ways[moving]))

    def spread(values: torch.Tensor) -> list[Any]:
        given = iter(values.tolist())
        return [next(given) if moves else 0 for moves in moving]

    births = {name: spread(counts) for name, counts in found.births.items()}
    return {"breaks": spread(found.counts), "lengths": spread(found.lengths), "births": births}


def _curves(network: Network, x: torch.Tensor, signs: Floats, lengths: Floats) -> list[list[int]]:
    """Pieces of the first so much of each long line: one sweep has the counts of all shorter lines in it."""
    moving = np.array([bool(sign.any()) for sign in signs])
    longest = float(lengths[-1])
    found = density(network, x, torch.from_numpy(signs[moving]), length=longest * (1 + 1e-9))
    columns = torch.stack([found.within(float(size)) for size in lengths], 1).tolist()  # (lines, lengths)
    given = iter(columns)
    return [next(given) if moves else [] for moves in moving]
