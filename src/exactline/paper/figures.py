"""What the paper's figures 3 to 5 show, computed: one image's way from black, and lines from one image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..api import restrict, restrict_many
from ..arrays import Floats
from ..decide.intervals import ManyDecisions
from ..engines.dense.piece_gradients import piece_gradients
from ..fp_context import full_precision
from ..options import MAX_CPU_BYTES
from ..results.restriction import Restriction
from .linearity import RANDOM, Linearity, ends_of
from .published import Suite, digits_suite, linearity_suites

DIRECTIONS = ("FGSM", *(f"random {j}" for j in range(RANDOM)))


@dataclass(frozen=True, eq=False)
class Fan:
    """The lines from one image in one network."""

    images: str
    network: str
    image: int
    label: int
    point: Tensor  # (channel, height, width)
    ends: Floats  # (lines, channel, height, width)
    lines: tuple[Restriction, ...]
    lengths: tuple[float, ...]  # in input units
    decided: ManyDecisions  # the class everywhere


@dataclass(frozen=True, eq=False)
class Fade:
    """One image faded in from black: the line, and the gradient on each of its pieces."""

    images: str
    network: str
    image: int
    label: int
    line: Restriction
    point: Tensor  # (channel, height, width)
    gradients: Tensor  # (pieces, channel, height, width) of the logit of the label
    attribution: Tensor  # (channel, height, width) exact integrated gradients


def fans(found: Linearity) -> list[list[Fan]]:
    """For each kind of images the lines of one image in every network.

    The image is the first that all classify rightly and whose class changes along the normal network's FGSM line;
    where there is none, the first that all classify rightly.
    """
    chosen: list[list[Fan]] = []
    for suite in found.suites:
        rows = [found.of(suite.name, subject.name) for subject in suite.subjects]
        common = [i for i in rows[0] if all(i in others for others in rows)]
        turning = [i for i in common if rows[0][i].end != rows[0][i].label]
        if common:
            chosen.append(_fans(suite, (turning or common)[0]))
    return chosen


def _fans(suite: Suite, image: int) -> list[Fan]:
    found: list[Fan] = []
    point = suite.images.point(image)
    for subject in suite.subjects:
        ends = ends_of(subject.network, suite.images, image)
        starts = np.repeat(point[None].numpy(), len(ends), 0)
        lines = restrict_many(subject.network, starts, ends, memory=MAX_CPU_BYTES)
        lengths = np.sqrt(((ends - starts) ** 2).reshape(len(ends), -1).sum(1)).tolist()
        label = suite.images.labels[image]
        known = suite.name, subject.name, image, label, point, ends
        found.append(Fan(*known, tuple(lines), tuple(lengths), lines.decisions()))
    return found


def fade(data: Path | None, image: int = 0) -> Fade:
    """A digit faded in from black, in the normal network: the paper's for MNIST, or ours."""
    suite = digits_suite() if data is None else linearity_suites(data)[0]
    subject, label, point = suite.subjects[0], suite.images.labels[image], suite.images.point(image)
    line = restrict(subject.network, torch.zeros_like(point), point, memory=MAX_CPU_BYTES)
    with full_precision():
        (gradients,) = piece_gradients(subject.network, line.lines, line.alphas, subject.network.outputs[0], label)
    attribution = point * torch.tensordot(line.alphas.diff(), gradients, 1)
    return Fade(suite.name, subject.name, image, label, line, point, gradients, attribution)
