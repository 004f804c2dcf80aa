"""How linear networks are along adversarial directions: section 5 of the paper, tables 3 and 4.

From each correctly classified image five lines run to perturbed images: one along the sign of a gradient (FGSM), four
along random signs. The more breaks a line has per unit of length, the less linear the network is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api import restrict_many
from ...arrays import Floats
from ...budget import DEFAULT_MEMORY
from ...engines.dense.piece_gradients import piece_gradients
from ...fp_context import full_precision
from ...network import Network
from ...results.restriction import Restriction
from ..cache import ResultCache, measure_seconds
from ..published import NamedNetwork, NetworkSuite, PixelImages, load_linearity_suites
from ..record import BreakCounts, StudyProgress
from .float32_sweep import find_float32_breaks

VERSION = "linearity 1"  # of the definitions below; cached results of other versions are ignored
PIXEL_CHANGE = 0.03  # share of its own brightness by which a pixel may change
RANDOM_DIRECTIONS = 4  # per image
DIRECTIONS = ("FGSM", *(f"random {j}" for j in range(RANDOM_DIRECTIONS)))
SEED_STRIDE = 20  # direction j of image i is drawn with the seed 20 i + j
GRADIENT_EPSILON = 1e-12  # keeps the tangent-plane error finite where a gradient is zero
GRADIENT_BATCH = 256  # points whose float32 gradients are computed at a time

DEFINITIONS = (
    "Only images that the network classifies correctly; inputs are pixels / 255, outputs are logits.",
    "Lines run from an image to img + floor(0.03 img) sign in pixel units, clipped to 0..255: black pixels never move.",
    "FGSM: the sign of the gradient of the logit (label + 1) mod 10, ascending; the class need not change.",
    "Random: 4 sign vectors per image, drawn with numpy's seed 20 i + j for image i, j = 0..3.",
    "Density: breaks, both ends counted, per unit of the line's Euclidean length in input units.",
    "Table 3: the FGSM density divided by each of the 4 random densities, pooled over images.",
    "Table 4: the normal network's density divided by the other's, for the same image and kind of direction, where both"
    " classify correctly.",
    "Tangent-plane error: mean over inputs of |(g0 - g) / (g + 1e-12)|, where g0 is the gradient of that logit at the"
    " image and g the gradient on a piece of the FGSM line, weighted by the pieces' lengths, averaged over images.",
)


@dataclass(frozen=True, kw_only=True)
class LinearityCounts(BreakCounts):
    """Breaks along the lines from one image in one network; without breaks if the prediction is wrong."""

    images: str
    float32_breaks: tuple[int, ...] = ()  # of exactline's float32 sweep, if requested
    naive_float32_breaks: tuple[int, ...] = ()  # of a float32 sweep that ignores rounding, as the paper's tool does
    tangent_error: float = 0.0  # mean relative error of the tangent plane along the FGSM line
    float32_tangent_error: float = 0.0  # with gradients evaluated in float32
    end_class: int = -1  # the class at the end of the FGSM line
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0


@dataclass(frozen=True)
class LinearityStudy:
    """The break counts of all images in all networks, in order."""

    suites: tuple[NetworkSuite, ...]
    rows: tuple[LinearityCounts, ...]
    reused: int  # rows that were read from the cache

    def correct_rows(self, images: str, network: str) -> dict[int, LinearityCounts]:
        """Return the rows of the images that a network classifies correctly, by image number."""
        return {r.image: r for r in self.rows if (r.images, r.network) == (images, network) and r.is_correct}

    def random_ratios(self, images: str, network: str) -> list[Floats]:
        """Return, per image, how much denser the FGSM line is than each random line (table 3)."""
        return [_drop_nonfinite(r.densities[0] / r.densities[1:]) for r in self.correct_rows(images, network).values()]

    def normal_ratios(self, images: str, network: str, *, random: bool) -> list[Floats]:
        """Return, per image, how much denser lines are in the normal network than in another (table 4)."""
        normal, other = self.correct_rows(images, "normal"), self.correct_rows(images, network)
        lines = slice(1, None) if random else slice(0, 1)
        return [_drop_nonfinite(normal[i].densities[lines] / other[i].densities[lines]) for i in normal if i in other]

    def pool_random_ratios(self, images: str, network: str) -> Floats:
        """Return the ratios of table 3, of all images."""
        return np.concatenate([np.zeros(0), *self.random_ratios(images, network)])

    def pool_normal_ratios(self, images: str, network: str, *, random: bool) -> Floats:
        """Return the ratios of one entry of table 4, of all images."""
        return np.concatenate([np.zeros(0), *self.normal_ratios(images, network, random=random)])

    def mean_tangent_error(self, images: str, network: str, *, float32: bool = False) -> float:
        """Return the tangent-plane error, mean over images."""
        rows = self.correct_rows(images, network).values()
        errors = [r.float32_tangent_error if float32 else r.tangent_error for r in rows]
        return float(np.mean(errors)) if errors else float("nan")

    def cpu_seconds(self, images: str) -> float:
        """Return the processor time spent on one set of images, including that of cached results."""
        return sum(r.cpu_seconds for r in self.rows if r.images == images)

    def wall_seconds(self, images: str) -> float:
        """Return the wall-clock time spent on one set of images, including that of cached results."""
        return sum(r.wall_seconds for r in self.rows if r.images == images)


def run(
    data: Path | None = None,
    *,
    images: int | None = None,
    folder: Path | None = None,
    float32: bool = False,
    progress: StudyProgress | None = None,
) -> LinearityStudy:
    """Count the breaks along FGSM and random lines from every image, in every network.

    Args:
        data: A folder with the published networks and images; None for the bundled digits networks.
        images: Number of images of each data set; None for all.
        folder: Where finished images are cached, so that a killed run can be continued.
        float32: Whether to count in float32 too, which takes several times as long.
        progress: Called with the share of the work done and a description of the current step.

    >>> study = run(images=1)
    >>> [row.network for row in study.rows], len(study.rows[0].breaks)
    (['normal', 'DiffAI', 'PGD'], 5)

    Raises FileError for a missing network or image file, and the errors of restrict.
    """
    suites = tuple(NetworkSuite(s.images.take(images), s.networks, s.bundled) for s in load_linearity_suites(data))
    cache, rows = ResultCache(folder, VERSION), list[LinearityCounts]()
    total = sum(len(s.images) * len(s.networks) for s in suites)
    for suite in suites:
        for named in suite.networks:
            for index in range(len(suite.images)):
                if progress is not None:
                    progress(len(rows) / total, f"{suite.name}, {named.name}, image {index}")
                row = _load_or_compute(suite.images, named, index, cache)
                if float32 and row.is_correct:
                    row = _add_float32_counts(row, suite.images, named, cache)
                rows.append(row)
    return LinearityStudy(suites, tuple(rows), cache.reused)


def perturb_pixels(
    pixels: Floats,  # (channel, height, width), 0 to 255
    sign: Floats,  # (channel, height, width)
) -> Floats:  # (channel, height, width)
    """Return the image at the end of a line, in pixel units.

    >>> perturb_pixels(np.array([[[0.0, 100.0, 250.0]]]), np.array([[[1.0, -1.0, 1.0]]])).tolist()
    [[[0.0, 97.0, 255.0]]]
    """
    return np.clip(pixels + np.floor(PIXEL_CHANGE * pixels) * sign, 0, 255)


def draw_random_sign(shape: tuple[int, ...], image: int, direction: int) -> Floats:
    """Draw a random direction (channel, height, width) of an image; numbers are drawn with channels last."""
    channels, height, width = shape
    drawn = np.random.RandomState(SEED_STRIDE * image + direction).choice([-1, 1], (height, width, channels))
    return drawn.transpose(2, 0, 1).astype(np.float64)


def compute_line_ends(network: Network, images: PixelImages, index: int) -> Floats:  # (5, channel, height, width)
    """Compute where the FGSM line and the random lines of an image end, as network inputs."""
    pixels = images.pixels[index]
    target = select_fgsm_target(images.labels[index], network)
    gradient = compute_gradient(network, images.point(index)[None], target)[0]
    random_signs = (draw_random_sign(pixels.shape, index, j) for j in range(RANDOM_DIRECTIONS))
    signs = [np.sign(gradient.numpy()), *random_signs]
    return np.stack([perturb_pixels(pixels, sign) for sign in signs]) / 255


def compute_lines(images: PixelImages, network: Network, index: int) -> tuple[Floats, Floats]:
    """Compute the starts and the ends of an image's lines, (lines, channel, height, width) each."""
    ends = compute_line_ends(network, images, index)
    return np.repeat(images.point(index)[None].numpy(), len(ends), 0), ends


def compute_lengths(starts: Floats, ends: Floats) -> list[float]:
    """Compute the Euclidean lengths of lines, (lines, channel, height, width) each."""
    return np.sqrt(((ends - starts) ** 2).reshape(len(ends), -1).sum(1)).tolist()


def select_fgsm_target(label: int, network: Network) -> int:
    """Return the class whose logit FGSM increases: the one after the label."""
    classes = torch.Size(network.nodes[network.outputs[0]].shape).numel()
    return (label + 1) % classes


def compute_gradient(
    network: Network,
    points: Tensor,  # (points, *in)
    target: int,
) -> Tensor:  # (points, *in)
    """Compute the gradient of one logit at points, in the network's precision."""
    with torch.enable_grad():
        points = points.to(network.dtype).requires_grad_()
        (out,) = network.evaluate([points], network.outputs).values()
        return torch.autograd.grad(out.flatten(1)[:, target].sum(), points)[0]


def compute_tangent_errors(network: Network, line: Restriction, target: int) -> tuple[float, float]:
    """Compute the mean relative error of the tangent plane along a line, with float64 and with float32 gradients.

    Where a coordinate of the gradient is almost zero the relative error is large and depends on how close to zero it
    is, which in float32 is a matter of rounding.
    """
    single, start = network.to(dtype=torch.float32), line.lines.starts[0]
    with full_precision():
        (gradients,) = piece_gradients(network, line.lines, line.alphas, network.outputs[0], target)
        middles = (line.alphas[1:] + line.alphas[:-1]) / 2
        points = line.lines.at(torch.zeros(len(middles), dtype=torch.int64), middles)[0][0]
        gradients32 = torch.cat([compute_gradient(single, part, target) for part in points.split(GRADIENT_BATCH)])
        errors = [
            ((compute_gradient(net, start, target) - g) / (g + GRADIENT_EPSILON)).abs().flatten(1).mean(1).double()
            for net, g in ((network, gradients), (single, gradients32))
        ]
        return float(line.alphas.diff() @ errors[0]), float(line.alphas.diff() @ errors[1])


def _load_or_compute(images: PixelImages, named: NamedNetwork, index: int, cache: ResultCache) -> LinearityCounts:
    key = named.digest, images.digest(index), str(index)
    stored = cache.get_or_compute(lambda: measure_seconds(lambda: _compute(images, named.network, index)), *key)
    counts = LinearityCounts(
        images=images.name,
        network=named.name,
        image=index,
        label=images.labels[index],
        predicted=stored["predicted"],
        cpu_seconds=stored["seconds"],
        wall_seconds=stored["wall"],
    )
    if not counts.is_correct:
        return counts
    return replace(
        counts,
        breaks=tuple(stored["breaks"]),
        lengths=tuple(stored["lengths"]),
        tangent_error=stored["tangent"],
        float32_tangent_error=stored["tangent32"],
        end_class=stored["end"],
    )


def _compute(images: PixelImages, network: Network, index: int) -> dict[str, Any]:
    """Compute the cached result of one image."""
    point, label = images.point(index), images.labels[index]
    with full_precision():
        predicted = int(network.evaluate([point[None]], network.outputs)[network.outputs[0]].argmax())
    if predicted != label:
        return {"predicted": predicted}
    starts, ends = compute_lines(images, network, index)
    lines = restrict_many(network, starts, ends, memory=DEFAULT_MEMORY)
    tangent_error, float32_tangent_error = compute_tangent_errors(network, lines[0], select_fgsm_target(label, network))
    scores = lines[0].values
    return {
        "predicted": predicted,
        "breaks": [n + 1 for n in lines.pieces.tolist()],
        "lengths": compute_lengths(starts, ends),
        "tangent": tangent_error,
        "tangent32": float32_tangent_error,
        "end": int((scores[0] if isinstance(scores, tuple) else scores)[-1].argmax()),
    }


def _add_float32_counts(
    row: LinearityCounts, images: PixelImages, named: NamedNetwork, cache: ResultCache
) -> LinearityCounts:
    key = named.digest, images.digest(row.image), str(row.image), "float32, plain too"
    stored = cache.get_or_compute(lambda: _count_float32_breaks(images, named.network, row.image), *key)
    return replace(row, float32_breaks=tuple(stored["breaks32"]), naive_float32_breaks=tuple(stored["plain32"]))


def _count_float32_breaks(images: PixelImages, network: Network, index: int) -> dict[str, Any]:
    """Count the breaks of an image's lines in float32, by exactline's sweep and by a naive one."""
    starts, ends = compute_lines(images, network, index)
    pieces = restrict_many(
        network, starts, ends, memory=DEFAULT_MEMORY, dtype=torch.float32, values=False, engine="dense"
    ).pieces.tolist()
    pairs = zip(map(torch.from_numpy, starts), map(torch.from_numpy, ends), strict=True)
    return {
        "breaks32": [n + 1 for n in pieces],
        "plain32": [len(find_float32_breaks(network, start, end)) for start, end in pairs],
    }


def _drop_nonfinite(ratios: Floats) -> Floats:
    """Drop the ratios of lines of length 0."""
    return ratios[np.isfinite(ratios)]
