"""How linear networks are along adversarial directions: the paper's section 5, tables 3 and 4.

From each image that a network classifies rightly five lines run to changed images: one along the sign of a gradient
(FGSM), four along random signs. The more breaks a line has for its length, the less linear the network is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..api import restrict_many
from ..arrays import Floats
from ..engines.dense.piece_gradients import piece_gradients
from ..fp_context import full_precision
from ..network import Network
from ..options import MAX_CPU_BYTES
from ..results.restriction import Restriction
from .cache import Kept
from .float32_sweep import plain_breaks
from .published import Images, Subject, Suite, linearity_suites
from .record import Counted

Progress: TypeAlias = Callable[[float, str], None]
VERSION = "linearity 1"  # of the definitions below: what was kept under others is not used
SHARE = 0.03  # of a pixel's own brightness, that it may change by
RANDOM = 4  # random directions of each image
SEED = 20  # image i draws its direction j from the seed 20 i + j
TINY = 1e-12  # keeps the tangent plane's error finite where a gradient is zero

DEFINITIONS = (
    "Only images that the network classifies rightly; inputs are pixels / 255, outputs raw logits.",
    "Lines run from an image to img + floor(0.03 img) sign in pixel units, clipped to 0..255: black pixels never move.",
    "FGSM: the sign of the gradient of the logit (label + 1) mod 10, ascending; the class need not change.",
    "Random: 4 sign vectors for each image, numpy's seed 20 i + j, image i, j = 0..3.",
    "Density: breaks, both ends counted, for each unit of the line's Euclidean length in input units.",
    "Table 3: the FGSM density over each of the 4 random densities, pooled over images.",
    "Table 4: the normal network's density over the other's, same image, same kind of direction, right for both.",
    "Tangent-plane error: mean over inputs of |(g0 - g) / (g + 1e-12)|, g0 the gradient of that logit at the image, g"
    " on a piece of the FGSM line, weighted by the pieces' lengths, averaged over images.",
)


@dataclass(frozen=True, kw_only=True)
class Row(Counted):
    """What was found for one image and one network; no breaks for a wrong prediction."""

    images: str
    breaks32: tuple[int, ...] = ()  # what our sweep in float32 counts, where that was asked for
    plain32: tuple[int, ...] = ()  # what one in float32 counts that doubts no value, as the paper's tool
    tangent: float = 0.0  # the tangent plane's mean relative error along the FGSM line
    tangent32: float = 0.0  # the same with gradients evaluated in float32
    end: int = -1  # the class at the end of the FGSM line
    seconds: float = 0.0  # of a processor
    wall: float = 0.0  # seconds on the wall


@dataclass(frozen=True)
class Linearity:
    """All images of all networks, in order."""

    suites: tuple[Suite, ...]
    rows: tuple[Row, ...]
    resumed: int  # rows that an earlier run had found

    def of(self, images: str, network: str) -> dict[int, Row]:
        """The images that a network classifies rightly, by number."""
        return {r.image: r for r in self.rows if (r.images, r.network) == (images, network) and r.right}

    def random_ratios(self, images: str, network: str) -> list[Floats]:
        """Table 3 image by image: how much denser the FGSM line is than each random one."""
        return [_finite(r.densities[0] / r.densities[1:]) for r in self.of(images, network).values()]

    def normal_ratios(self, images: str, network: str, *, random: bool) -> list[Floats]:
        """Table 4 image by image: how much denser lines are in the normal network than in another."""
        normal, other = self.of(images, "normal"), self.of(images, network)
        lines = slice(1, None) if random else slice(0, 1)
        return [_finite(normal[i].densities[lines] / other[i].densities[lines]) for i in normal if i in other]

    def against_random(self, images: str, network: str) -> Floats:
        """All ratios of table 3."""
        return np.concatenate([np.zeros(0), *self.random_ratios(images, network)])

    def against_normal(self, images: str, network: str, *, random: bool) -> Floats:
        """All ratios of an entry of table 4."""
        return np.concatenate([np.zeros(0), *self.normal_ratios(images, network, random=random)])

    def tangent(self, images: str, network: str, *, float32: bool = False) -> float:
        """The tangent plane's error, mean over images."""
        found = [r.tangent32 if float32 else r.tangent for r in self.of(images, network).values()]
        return float(np.mean(found)) if found else float("nan")

    def seconds(self, images: str) -> float:
        """Processor time for one kind of images, also of an earlier run that was stopped."""
        return sum(r.seconds for r in self.rows if r.images == images)

    def wall(self, images: str) -> float:
        """The same on the wall."""
        return sum(r.wall for r in self.rows if r.images == images)


def run(
    data: Path | None = None,
    *,
    images: int | None = None,  # only the first so many
    folder: Path | None = None,  # finished images are kept there
    float32: bool = False,  # count in float32 too, which takes several times as long
    progress: Progress | None = None,
) -> Linearity:
    """Count the breaks along FGSM and random lines from every image, in every network.

    Raises FileError where a published network or image is not there, and what restrict raises.
    """
    suites = tuple(Suite(s.images.first(images), s.subjects, s.ours) for s in linearity_suites(data))
    kept, rows = Kept(folder, VERSION), list[Row]()
    total = sum(len(s.images) * len(s.subjects) for s in suites)
    for suite in suites:
        for subject in suite.subjects:
            for index in range(len(suite.images)):
                if progress is not None:
                    progress(len(rows) / total, f"{suite.name}, {subject.name}, image {index}")
                row = _row(suite.images, subject, index, kept)
                rows.append(_with_float32(row, suite.images, subject, kept) if float32 and row.right else row)
    return Linearity(suites, tuple(rows), kept.found)


def changed(
    pixels: Floats,  # (channel, height, width), 0 to 255
    sign: Floats,  # the same shape
) -> Floats:
    """The image at the end of a line, in pixel units.

    >>> changed(np.array([[[0.0, 100.0, 250.0]]]), np.array([[[1.0, -1.0, 1.0]]])).tolist()
    [[[0.0, 97.0, 255.0]]]
    """
    return np.clip(pixels + np.floor(SHARE * pixels) * sign, 0, 255)


def random_sign(shape: tuple[int, ...], image: int, direction: int) -> Floats:
    """A random direction of an image (channel, height, width), drawn in the paper's order: channels last."""
    channels, height, width = shape
    drawn = np.random.RandomState(SEED * image + direction).choice([-1, 1], (height, width, channels))
    return drawn.transpose(2, 0, 1).astype(np.float64)


def ends_of(network: Network, images: Images, index: int) -> NDArray[np.float64]:
    """(5, channel, height, width) where the FGSM line and the random ones end, as inputs."""
    pixels = images.pixels[index]
    gradient = gradient_at(network, images.point(index)[None], target_of(images.labels[index], network))[0]
    signs = [np.sign(gradient.numpy()), *(random_sign(pixels.shape, index, j) for j in range(RANDOM))]
    return np.stack([changed(pixels, sign) for sign in signs]) / 255


def lines_of(images: Images, network: Network, index: int) -> tuple[Floats, Floats]:
    """Both ends of an image's lines, (lines, channel, height, width) each."""
    ends = ends_of(network, images, index)
    return np.repeat(images.point(index)[None].numpy(), len(ends), 0), ends


def target_of(label: int, network: Network) -> int:
    """The class whose logit FGSM raises: the next one."""
    classes = torch.Size(network.nodes[network.outputs[0]].shape).numel()
    return (label + 1) % classes


def gradient_at(
    network: Network,
    points: Tensor,  # (points, *in)
    target: int,
) -> Tensor:  # (points, *in)
    """The gradient of one logit at points, in the network's precision."""
    with torch.enable_grad():
        points = points.to(network.dtype).requires_grad_()
        (out,) = network.evaluate([points], network.outputs).values()
        return torch.autograd.grad(out.flatten(1)[:, target].sum(), points)[0]


def _row(images: Images, subject: Subject, index: int, kept: Kept) -> Row:
    made_from = subject.mark, images.mark(index), str(index)
    known: dict[str, Any] = {
        "images": images.name,
        "network": subject.name,
        "image": index,
        "label": images.labels[index],
    }
    part = kept.get(*made_from)
    if part is None:
        began, looked = process_time(), perf_counter()
        part = _found(images, subject.network, index)
        part["seconds"], part["wall"] = process_time() - began, perf_counter() - looked
        kept.put(part, *made_from)
    lists: dict[str, Any] = {name: tuple(part[name]) for name in ("breaks", "lengths") if name in part}
    return Row(**(known | part | lists))


def _with_float32(row: Row, images: Images, subject: Subject, kept: Kept) -> Row:
    made_from = subject.mark, images.mark(row.image), str(row.image), "float32, plain too"
    part: dict[str, Any] | None = kept.get(*made_from)
    if part is None:
        part = _counted(images, subject.network, row.image)
        kept.put(part, *made_from)
    return replace(row, breaks32=tuple(part["breaks32"]), plain32=tuple(part["plain32"]))


def _counted(images: Images, network: Network, index: int) -> dict[str, Any]:
    """The breaks of an image's lines, counted twice in float32: as carefully as we do, and with no care at all."""
    starts, ends = lines_of(images, network, index)
    ours = restrict_many(
        network, starts, ends, memory=MAX_CPU_BYTES, dtype=torch.float32, values=False, engine="dense"
    ).pieces.tolist()
    pairs = zip(map(torch.from_numpy, starts), map(torch.from_numpy, ends), strict=True)
    return {"breaks32": [n + 1 for n in ours], "plain32": [len(plain_breaks(network, a, b)) for a, b in pairs]}


def _found(images: Images, network: Network, index: int) -> dict[str, Any]:
    point, label = images.point(index), images.labels[index]
    with full_precision():
        predicted = int(network.evaluate([point[None]], network.outputs)[network.outputs[0]].argmax())
    if predicted != label:
        return {"predicted": predicted}
    starts, ends = lines_of(images, network, index)
    lines = restrict_many(network, starts, ends, memory=MAX_CPU_BYTES)
    tangent, tangent32 = tangent_errors(network, lines[0], target_of(label, network))
    scores = lines[0].values
    return {
        "predicted": predicted,
        "breaks": [n + 1 for n in lines.pieces.tolist()],
        "lengths": np.sqrt(((ends - starts) ** 2).reshape(len(ends), -1).sum(1)).tolist(),
        "tangent": tangent,
        "tangent32": tangent32,
        "end": int((scores[0] if isinstance(scores, tuple) else scores)[-1].argmax()),
    }


def tangent_errors(network: Network, line: Restriction, target: int) -> tuple[float, float]:
    """The tangent plane's mean relative error along a line: exact, and with gradients evaluated in float32.

    Where a coordinate of the gradient nearly vanishes, the relative error is huge and hangs on how near: in float32
    that is rounding.
    """
    coarse, start = network.to(dtype=torch.float32), line.lines.starts[0]
    with full_precision():
        (pieces,) = piece_gradients(network, line.lines, line.alphas, network.outputs[0], target)
        middles = (line.alphas[1:] + line.alphas[:-1]) / 2
        points = line.lines.at(torch.zeros(len(middles), dtype=torch.int64), middles)[0][0]
        pieces32 = torch.cat([gradient_at(coarse, part, target) for part in points.split(256)])
        both = ((gradient_at(network, start, target), pieces), (gradient_at(coarse, start, target), pieces32))
        found = [((at - g) / (g + TINY)).abs().flatten(1).mean(1).double() for at, g in both]
        return float(line.alphas.diff() @ found[0]), float(line.alphas.diff() @ found[1])


def _finite(ratios: Floats) -> Floats:
    """Without those of lines that have no length."""
    return ratios[np.isfinite(ratios)]
