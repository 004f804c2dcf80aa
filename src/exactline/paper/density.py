"""Densities of one's own networks: breaks along FGSM and random lines, against length, layer and training epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from ..arrays import Floats
from ..errors import ArgumentError
from ..formats.labelled_images import Labelled
from ..fp_context import full_precision
from ..measures.break_density import density
from ..network import Network, as_network
from .cache import Kept
from .density_plan import Plan as Plan
from .linearity import gradient_at
from .published import Subject
from .record import Counted

Progress: TypeAlias = Callable[[float, str], None]
VERSION = "density 1"  # of the definitions below: what was kept under others is not used


@dataclass(frozen=True, kw_only=True)
class Row(Counted):
    """What was found for one image and one network."""

    births: dict[str, tuple[int, ...]]  # by node
    within: tuple[tuple[int, ...], ...]  # pieces of the first so much of the long lines; nothing without direction


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

    Raises ArgumentError for labels that are no class of the networks and for pixels outside the plan's range, and
    what restrict raises.
    """
    plan = plan or Plan()
    if images.points.min() < plan.low or images.points.max() > plan.high:
        raise ArgumentError(
            f"Pixels run from {images.points.min():g} to {images.points.max():g}, and lines end inside {plan.low:g} to "
            f"{plan.high:g}.",
            where=images.name,
            hint="Divide them (--scale 255), or give their range (--clip).",
        )
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
    return Row(subject.name, index, part["label"], part["predicted"], *lines, births=births, within=within)


def _found(network: Network, images: Labelled, index: int, plan: Plan) -> dict[str, Any]:
    point = images.points[index]
    x = torch.from_numpy(point)
    with full_precision():
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
