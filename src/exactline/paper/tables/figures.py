"""The data of figures 3 to 5 of the paper: an image faded in from black, and the lines from one image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...api import restrict, restrict_many
from ...arrays import Floats
from ...budget import DEFAULT_MEMORY
from ...decide.intervals import ManyDecisions
from ...engines.dense.piece_gradients import piece_gradients
from ...fp_context import full_precision
from ...results.restriction import Restriction
from ..published import NetworkSuite, load_digits_suite, load_linearity_suites
from .linearity import LinearityStudy, compute_lengths, compute_lines


@dataclass(frozen=True, eq=False)
class LineFan:
    """The lines from one image in one network."""

    images: str
    network: str
    image: int
    label: int
    point: Tensor  # (channel, height, width)
    ends: Floats  # (lines, channel, height, width)
    lines: tuple[Restriction, ...]
    lengths: tuple[float, ...]  # in input units
    decisions: ManyDecisions  # the class everywhere on the lines


@dataclass(frozen=True, eq=False)
class FadeIn:
    """One image faded in from black: the line, and the gradient on each of its pieces."""

    images: str
    network: str
    image: int
    label: int
    line: Restriction
    point: Tensor  # (channel, height, width)
    gradients: Tensor  # (pieces, channel, height, width) of the label's logit
    attribution: Tensor  # (channel, height, width) exact integrated gradients


def compute_line_fans(study: LinearityStudy) -> list[list[LineFan]]:
    """Compute, for each set of images, the lines of one image in every network.

    The image is the first that all networks classify correctly and whose class changes along the normal network's FGSM
    line, or else the first that all networks classify correctly.
    """
    chosen: list[list[LineFan]] = []
    for suite in study.suites:
        rows = [study.correct_rows(suite.name, named.name) for named in suite.networks]
        common = [i for i in rows[0] if all(i in others for others in rows)]
        changing = [i for i in common if rows[0][i].end_class != rows[0][i].label]
        if common:
            chosen.append(_compute_fans(suite, (changing or common)[0]))
    return chosen


def _compute_fans(suite: NetworkSuite, image: int) -> list[LineFan]:
    fans: list[LineFan] = []
    for named in suite.networks:
        starts, ends = compute_lines(suite.images, named.network, image)
        lines = restrict_many(named.network, starts, ends, memory=DEFAULT_MEMORY)
        fans.append(
            LineFan(
                images=suite.name,
                network=named.name,
                image=image,
                label=suite.images.labels[image],
                point=suite.images.point(image),
                ends=ends,
                lines=tuple(lines),
                lengths=tuple(compute_lengths(starts, ends)),
                decisions=lines.decisions(),
            )
        )
    return fans


def compute_fade_in(data: Path | None, image: int = 0) -> FadeIn:
    """Fade a digit in from black in the normal network: the paper's for MNIST, or the bundled one."""
    suite = load_digits_suite() if data is None else load_linearity_suites(data)[0]
    named, label, point = suite.networks[0], suite.images.labels[image], suite.images.point(image)
    line = restrict(named.network, torch.zeros_like(point), point, memory=DEFAULT_MEMORY)
    with full_precision():
        (gradients,) = piece_gradients(named.network, line.lines, line.alphas, named.network.outputs[0], label)
    attribution = point * torch.tensordot(line.alphas.diff(), gradients, 1)
    return FadeIn(
        images=suite.name,
        network=named.name,
        image=image,
        label=label,
        line=line,
        point=point,
        gradients=gradients,
        attribution=attribution,
    )
