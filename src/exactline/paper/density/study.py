"""Count breaks along FGSM and random lines in any networks and in the checkpoints of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats
from ...errors import ArgumentError
from ...formats import load_network
from ...formats.labelled_images import LabelledImages
from ...fp_context import full_precision
from ...measures.break_density import density
from ...network import Network, as_network
from ..cache import ResultCache
from ..published import NamedNetwork
from ..record import BreakCounts, StudyProgress
from ..tables.linearity import compute_gradient
from .plan import LinePlan

VERSION = "density 1"  # of the definitions below; cached results of other versions are ignored
CURVE_MARGIN = 1e-9  # relative length by which lines exceed the longest length of the curve, far above its rounding


@dataclass(frozen=True, kw_only=True)
class DensityCounts(BreakCounts):
    """Breaks along the lines from one image in one network, by node and by length."""

    origins: dict[str, tuple[int, ...]]  # by node: breaks inside each line that originate there
    pieces_within: tuple[tuple[int, ...], ...]  # of each line, pieces up to each length; empty for a line of length 0


@dataclass(frozen=True)
class DensityStudy:
    """The break counts of all images in all networks and checkpoints, in order."""

    plan: LinePlan
    images: LabelledImages
    networks: tuple[NamedNetwork, ...]
    rows: tuple[DensityCounts, ...]
    checkpoints: tuple[NamedNetwork, ...]
    checkpoint_rows: tuple[DensityCounts, ...]
    reused: int  # rows that were read from the cache

    def correct_rows(self, network: str) -> dict[int, DensityCounts]:
        """Return the rows of the images that a network classifies correctly, by image number."""
        return {r.image: r for r in self.rows if r.network == network and r.is_correct}

    @property
    def curve_lengths(self) -> Floats:
        """The lengths at which pieces were counted."""
        return self.plan.curve_lengths(self.images.points.shape[1:])


def load_networks(
    networks: Mapping[str, Any] | Sequence[Path], shape: tuple[int, ...] | None = None
) -> list[NamedNetwork]:
    """Load networks to compare; all must have one input of one shape and the same number of scores.

    Args:
        networks: Models by name, or files.
        shape: The input shape, for models and files that leave it open.

    >>> [named.name for named in load_networks({"small": torch.nn.Linear(3, 2).eval()}, (3,))]
    ['small']

    Raises ArgumentError if the shapes differ or names repeat, FileError or CaptureError if a network cannot be loaded.
    """
    if isinstance(networks, Mapping):
        points = [] if shape is None else [torch.zeros(shape)]
        loaded = [NamedNetwork(str(name), as_network(model, points), "given") for name, model in networks.items()]
    else:
        stems = [path.name.split(".")[0] for path in networks]
        loaded = [
            NamedNetwork(stem if stems.count(stem) == 1 else str(path), load_network(path, shape=shape), path.name)
            for path, stem in zip(networks, stems, strict=True)
        ]
    shapes = {(named.network.input_shape, named.network.output_shape) for named in loaded}
    is_single = not any(named.network.several_inputs or named.network.several_outputs for named in loaded)
    if not is_single or len(shapes) != 1 or len({named.name for named in loaded}) < len(loaded):
        listed = (f"{named.name} {named.network.input_shape} -> {named.network.output_shape}" for named in loaded)
        raise ArgumentError(
            "Compared networks must have different names, and one input and one output each, of the same shapes.",
            where=", ".join(listed)[:300] or "no networks",
            hint="Give at least one network; leave out those that differ.",
        )
    return loaded


def load_bundled_networks() -> list[NamedNetwork]:
    """Load the three bundled digits networks."""
    from ...zoo import robust_network
    from ...zoo.robust import METHODS

    example = torch.zeros(1, 8, 8)
    return [
        NamedNetwork(name, as_network(robust_network(name), [example]), "bundled with exactline") for name in METHODS
    ]


def load_test_digits() -> LabelledImages:
    """Load the digits that the bundled networks were not trained on."""
    from ...zoo import digits_set

    images, labels = digits_set("test")
    return LabelledImages("test digits", images.double().numpy(), tuple(labels.tolist()))


def run(
    networks: Sequence[NamedNetwork],
    images: LabelledImages,
    plan: LinePlan | None = None,
    *,
    checkpoints: Sequence[NamedNetwork] = (),
    folder: Path | None = None,
    progress: StudyProgress | None = None,
) -> DensityStudy:
    """Count the breaks along FGSM and random lines from every image, in every network and checkpoint.

    Args:
        networks: The networks to compare, see `load_networks`.
        images: Images with their labels.
        plan: Which lines to examine; `LinePlan()` by default.
        checkpoints: One network at several times of its training, in order.
        folder: Where finished images are cached, so that a killed run can be continued.
        progress: Called with the share of the work done and a description of the current step.

    >>> from exactline.paper.density.study import load_bundled_networks, load_test_digits
    >>> study = run(load_bundled_networks()[:1], load_test_digits().take(1), LinePlan(reach=0.0))
    >>> len(study.rows), len(study.rows[0].breaks)
    (1, 5)

    Raises ArgumentError for labels that are not classes of the networks and for pixels outside the plan's range, and
    the errors of restrict.
    """
    plan = plan or LinePlan()
    if images.points.min() < plan.low or images.points.max() > plan.high:
        raise ArgumentError(
            f"Pixels range from {images.points.min():g} to {images.points.max():g}, but lines are clipped to "
            f"{plan.low:g} to {plan.high:g}.",
            where=images.name,
            hint="Divide the pixels (--scale 255), or give their range (--clip).",
        )
    cache = ResultCache(folder, VERSION)
    total, done = (len(networks) + len(checkpoints)) * len(images), 0

    def count_all(named_networks: Sequence[NamedNetwork], plan: LinePlan) -> tuple[DensityCounts, ...]:
        nonlocal done
        rows: list[DensityCounts] = []
        for named in named_networks:
            for index in range(len(images)):
                if progress is not None:
                    progress(done / total, f"{named.name}, image {index}")
                rows.append(_load_or_compute(named, images, index, plan, cache))
                done += 1
        return tuple(rows)

    return DensityStudy(
        plan=plan,
        images=images,
        networks=tuple(networks),
        rows=count_all(networks, plan),
        checkpoints=tuple(checkpoints),
        checkpoint_rows=count_all(checkpoints, replace(plan, reach=0.0)),
        reused=cache.reused,
    )


def _load_or_compute(
    named: NamedNetwork, images: LabelledImages, index: int, plan: LinePlan, cache: ResultCache
) -> DensityCounts:
    key = named.digest, images.digest(index), str(index), repr(asdict(plan))
    stored = cache.get_or_compute(lambda: _compute(named.network, images, index, plan), *key)
    return DensityCounts(
        network=named.name,
        image=index,
        label=stored["label"],
        predicted=stored["predicted"],
        breaks=tuple(stored["breaks"]),
        lengths=tuple(stored["lengths"]),
        origins={name: tuple(counts) for name, counts in stored["births"].items()},
        pieces_within=tuple(tuple(counts) for counts in stored["within"]),
    )


def _compute(network: Network, images: LabelledImages, index: int, plan: LinePlan) -> dict[str, Any]:
    """Compute the cached result of one image."""
    point = images.points[index]
    x = torch.from_numpy(point)
    with full_precision():
        scores = network.evaluate([x[None]], network.outputs)[network.outputs[0]].reshape(-1)
        predicted = int(scores.argmax())
        label = predicted if images.labels is None else images.labels[index]
        if label >= len(scores):
            raise ArgumentError(
                f"Image {index} is of class {label}, but the network has {len(scores)} classes.",
                where=f"labels of {images.name}",
                hint="Number the classes from 0.",
            )
        gradient = compute_gradient(network, x[None], (label + 1) % len(scores))[0].numpy()
    signs = np.stack([np.sign(gradient), *(plan.draw_sign(point.shape, index, j) for j in range(plan.random))])
    steps = np.stack([plan.perturb(point, sign) - point for sign in signs])
    lengths = plan.curve_lengths(point.shape)
    return {
        **_count_breaks(network, x, steps),
        "within": _count_pieces_within(network, x, signs, lengths) if len(lengths) else [],
        "predicted": predicted,
        "label": label,
    }


def _count_breaks(network: Network, x: Tensor, steps: Floats) -> dict[str, Any]:  # x (*in), steps (lines, *in)
    """Count the breaks of all lines, with their lengths and origins; zeros for lines of length 0."""
    moves = [bool(step.any()) for step in steps]
    found = density(network, x, torch.from_numpy(steps[moves]))

    def fill(values: Tensor) -> list[Any]:
        numbers = iter(values.tolist())
        return [next(numbers) if moving else 0 for moving in moves]

    origins = {name: fill(counts) for name, counts in found.origins.items()}
    return {"breaks": fill(found.counts), "lengths": fill(found.lengths), "births": origins}


def _count_pieces_within(
    network: Network,
    x: Tensor,  # (*in)
    signs: Floats,  # (lines, *in)
    lengths: Floats,  # (lengths,)
) -> list[list[int]]:
    """Count the pieces of each line up to each length; one sweep of the longest line counts all shorter ones too."""
    moves = [bool(sign.any()) for sign in signs]
    longest = float(lengths[-1]) * (1 + CURVE_MARGIN)
    found = density(network, x, torch.from_numpy(signs[moves]), length=longest)
    counts = iter(torch.stack([found.pieces_within(float(length)) for length in lengths], 1).tolist())
    return [next(counts) if moving else [] for moving in moves]
