"""How many samples integrated gradients need: the paper's section 4, tables 1 and 2, and three rules more.

The gradients of all pieces are computed once for each image; every rule with every number of samples looks them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..api import restrict
from ..attr.sampling_rules import Pieces
from ..errors import ArgumentError
from ..options import MAX_CPU_BYTES
from .cache import Kept
from .published import Images, Subject, Suite, ig_suite
from .syrenn_baseline import Coarse, Remembered, partitions

Progress: TypeAlias = Callable[[float, str], None]
VERSION = "ig 3"  # of the definitions below: what was kept under others is not used
PAPER = ("left", "right", "trapezoid")
BEYOND = ("midpoint", "simpson", "gauss-legendre")
RULES = (*PAPER, *BEYOND)
TOLERANCE = 0.05
LAST = 1005  # the most partitions whose error, with the next four, may be the first below the tolerance
RUN = 5
DIGITS = 10  # of the errors that are kept: more hang on the order of sums

DEFINITIONS = (
    "All images, misclassified ones too; the baseline is black (input 0), F the logit of the true label, inputs are"
    " pixels / 255.",
    "exact: the number of pieces from black to the image.",
    "m-tilde: left sums with m = 20, 21, ... 1000 samples; the first m whose attributions add up to within 1 % of"
    " F(x) - F(black). Table 1 shows the true error of that left sum.",
    "Error: mean over inputs of |approximation - exact| / |exact + 1e-11|.",
    "Samples to 5 %: the smallest n such that n, n + 1, ... n + 4 partitions all have an error below 5 %, n < 1006;"
    " trapezoid and Simpson use n + 1 samples and count them.",
    "An image that misses any of the paper's values is left out of all columns; the tables show means.",
    "Gradients are looked up in the exact pieces, in float64.",
    "As the paper's tool computes it: breaks from a sweep in float32; the piece between two batches of 4,096 end points"
    " lost; its own search, which tries every fifth number of partitions, turns back by five where one is good and goes"
    " on only while each is, so that it often reports a later run of five than the first.",
    "The means of the samples hang on a few images with a pixel whose exact attribution nearly vanishes: where such an"
    " image falls moves a mean by some units, and rounding decides it.",
)


@dataclass(frozen=True)
class Row:
    """What was found for one image and one network."""

    network: str
    image: int
    label: int
    pieces: int
    stop: int | None  # m-tilde; None where no number of samples adds up
    stop_error: float | None  # the true error there
    samples: dict[str, int | None]  # by rule: how many samples stay below 5 %; None where a thousand do not
    errors: dict[str, list[float | None]]  # by rule: the error with 1, 2, ... 128 samples; None where it needs more
    tool: dict[str, int | None]  # by rule of the paper: the samples that its tool finds to be enough; none elsewhere
    tool_pieces: int | None = None  # that the tool finds
    tool_error: float | None = None  # of m-tilde, against the tool's sum
    seconds: float = 0.0  # of a processor
    wall: float = 0.0  # seconds on the wall

    @property
    def whole(self) -> bool:
        """Whether none of the paper's values is missing."""
        return self.stop is not None and all(self.samples[rule] is not None for rule in PAPER)


@dataclass(frozen=True)
class Study:
    """All images of all networks, in order."""

    suite: Suite
    rows: tuple[Row, ...]
    resumed: int  # rows that an earlier run had found

    def of(self, network: str) -> list[Row]:
        """The images of one network of which no value is missing."""
        return [r for r in self.rows if r.network == network and r.whole]

    def done(self, network: str) -> int:
        """How many images were looked at."""
        return sum(r.network == network for r in self.rows)

    def pieces(self, network: str) -> float:
        """Mean number of pieces."""
        return _mean([r.pieces for r in self.of(network)])

    def stop_error(self, network: str) -> float:
        """Mean error of the left sum at m-tilde."""
        return _mean([r.stop_error for r in self.of(network)])

    def stop(self, network: str) -> float:
        """Mean m-tilde."""
        return _mean([r.stop for r in self.of(network)])

    def samples(self, network: str, rule: str) -> float:
        """Mean number of samples until a rule stays below 5 %, over those images for which it gets there."""
        return _mean([r.samples[rule] for r in self.of(network)])

    def tool(self, network: str) -> dict[str, float]:
        """The paper's columns as its tool computes them, and how many images have them all."""
        rows = [r for r in self.rows if r.network == network and r.stop is not None]
        rows = [r for r in rows if all(r.tool.get(rule) is not None for rule in PAPER)]
        means = {rule: _mean([r.tool[rule] for r in rows]) for rule in PAPER}
        means["exact"] = _mean([r.tool_pieces for r in rows])
        return means | {"error": _mean([r.tool_error for r in rows]), "images": len(rows)}

    def missed(self, network: str, rule: str) -> int:
        """Images, among those that count, for which a rule never stays below 5 %."""
        return sum(r.samples[rule] is None for r in self.of(network))

    def curve(self, network: str, rule: str) -> NDArray[np.float64]:
        """Mean error with 1, 2, ... 128 samples; NaN where the rule needs more."""
        found = [r.errors[rule] for r in self.of(network)]
        return np.array(found, dtype=np.float64).mean(0) if found else np.zeros(0)

    def seconds(self, network: str) -> float:
        """Processor time for one network, also of an earlier run that was stopped."""
        return sum(r.seconds for r in self.rows if r.network == network)

    def wall(self, network: str) -> float:
        """The same on the wall."""
        return sum(r.wall for r in self.rows if r.network == network)


def run(
    data: Path | None = None,
    *,
    images: int | None = None,  # only the first so many; all, or as many as a large network allows
    networks: Sequence[str] = (),  # only these; all if none is named
    folder: Path | None = None,  # finished images are kept there
    progress: Progress | None = None,
) -> Study:
    """Count pieces and samples for every image, in every network.

    Raises FileError where a published network or image is not there, ArgumentError for a network that is not, and what
    restrict raises.
    """
    suite = ig_suite(data)
    known = [subject.name for subject in suite.subjects]
    for name in networks:
        if name not in known:
            raise ArgumentError(
                f"There is no network {name!r}.", where="option --network", hint=f"Choose from {', '.join(known)}."
            )
    chosen = tuple(s for s in suite.subjects if not networks or s.name in networks)
    suite = Suite(suite.images.first(images), chosen, suite.ours)
    kept, rows = Kept(folder, VERSION), list[Row]()
    counts = [len(suite.images) if images or s.most is None else min(s.most, len(suite.images)) for s in chosen]
    total = sum(counts)
    for subject, count in zip(chosen, counts, strict=True):
        for index in range(count):
            if progress is not None:
                progress(len(rows) / total, f"{subject.name}, image {index}")
            rows.append(_row(suite.images, subject, index, kept))
    return Study(suite, tuple(rows), kept.found)


def _row(images: Images, subject: Subject, index: int, kept: Kept) -> Row:
    made_from = subject.mark, images.mark(index)
    part = kept.get(*made_from)
    if part is None:
        began, looked = process_time(), perf_counter()
        part = _found(images, subject, index)
        part["seconds"], part["wall"] = process_time() - began, perf_counter() - looked
        kept.put(part, *made_from)
    known: dict[str, Any] = {"network": subject.name, "image": index, "label": images.labels[index]}
    return Row(**(known | part))


def _found(images: Images, subject: Subject, index: int) -> dict[str, Any]:
    point = images.point(index)
    line = restrict(subject.network, point * 0, point, memory=MAX_CPU_BYTES, values=False)
    pieces = Remembered(line, Pieces.of(line, images.labels[index]).steps)
    stop = pieces.completeness()
    samples: dict[str, int | None] = {}
    errors: dict[str, list[float | None]] = {}
    for rule in RULES:
        samples[rule], shown = pieces.settled(rule, TOLERANCE, _most(rule))
        errors[rule] = [_rounded(e) for e in shown.tolist()]
    found = {
        "pieces": len(line),
        "stop": None if stop is None else stop[0],
        "stop_error": None if stop is None else _rounded(stop[1]),
        "samples": samples,
        "errors": errors,
        "tool": {},
    }
    return found | _by_tool(pieces, subject, None if stop is None else stop[0]) if subject.papers else found


def _by_tool(pieces: Remembered, subject: Subject, stop: int | None) -> dict[str, Any]:
    """What the paper's tool would find."""
    coarse = Coarse.made(pieces, subject.network)
    return {
        "tool": {rule: _count(rule, n) for rule, n in partitions(coarse, TOLERANCE).items()},
        "tool_pieces": len(coarse.breaks) - 1,
        "tool_error": None if stop is None else _rounded(float(coarse.errors("left", [stop])[0])),
    }


def _most(rule: str) -> int:
    """The most samples that are tried."""
    return LAST + RUN - 1 + (1 if rule in ("trapezoid", "simpson") else 0)  # these have one more than partitions


def _count(rule: str, partitions: int | None) -> int | None:
    """Samples of so many partitions."""
    return None if partitions is None else partitions + (rule == "trapezoid")


def _rounded(error: float) -> float | None:
    return None if error != error else float(f"{error:.{DIGITS}g}")


def _mean(numbers: Sequence[float | None]) -> float:
    there = [n for n in numbers if n is not None]
    return float(np.mean(there)) if there else float("nan")
