"""How many samples integrated gradients need: section 4 of the paper, tables 1 and 2, and three more rules.

The gradients of all pieces are computed once per image; every rule with every number of samples looks them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...api import restrict
from ...arrays import Floats
from ...attr.sampling_rules import PieceGradients
from ...budget import DEFAULT_MEMORY
from ...errors import ArgumentError
from ..cache import ResultCache, measure_seconds
from ..published import NamedNetwork, NetworkSuite, PixelImages, load_ig_suite
from ..record import StudyProgress
from .syrenn_baseline import MAX_PARTITIONS, RUN_LENGTH, CachedPieces, SyrennPieces, search_partitions

VERSION = "ig 3"  # of the definitions below; cached results of other versions are ignored
PAPER_RULES = ("left", "right", "trapezoid")
EXTRA_RULES = ("midpoint", "simpson", "gauss-legendre")
RULES = (*PAPER_RULES, *EXTRA_RULES)
ERROR_TOLERANCE = 0.05
STORED_DIGITS = 10  # of errors in the cache; further digits depend on the order of summation

DEFINITIONS = (
    "All images are included, also misclassified ones. The baseline is black (input 0), F is the logit of the true"
    " label, inputs are pixels / 255.",
    "exact: the number of pieces from black to the image.",
    "m-tilde: the first m = 20, 21, ... 1000 for which the attributions of a left sum with m samples add up to within"
    " 1 % of F(x) - F(black). Table 1 shows the true error of that left sum.",
    "Error: mean over inputs of |approximation - exact| / |exact + 1e-11|.",
    "Samples to 5 %: the smallest n < 1006 such that n, n + 1, ... n + 4 partitions all have an error below 5 %."
    " Trapezoid and Simpson need n + 1 samples, which is what is counted.",
    "An image for which one of the paper's values is missing is left out of all columns; the tables show means.",
    "Gradients are looked up in the exact pieces, in float64.",
    "As the paper's tool computes it: breaks of a float32 sweep; the piece between two batches of 4,096 end points is"
    " lost; its own search, which tries every fifth number of partitions, steps back by five where one is good enough"
    " and continues only while each is, so it often reports a later run of five than the first.",
    "The mean numbers of samples depend on a few images with a pixel whose exact attribution is almost zero: each moves"
    " a mean by several samples, and rounding decides where it falls.",
)


@dataclass(frozen=True)
class SampleCounts:
    """Pieces, samples and errors of one image in one network."""

    network: str
    image: int
    label: int
    pieces: int
    m_tilde: int | None  # samples until the attributions of a left sum add up; None if they never do
    m_tilde_error: float | None  # the true error of that left sum
    samples: dict[
        str, int | None
    ]  # by rule: samples until the error stays below 5 %; None if a thousand do not suffice
    errors: dict[str, list[float | None]]  # by rule: the error with 1, 2, ... 128 samples; None where it needs more
    syrenn_samples: dict[str, int | None]  # by rule of the paper: as its tool computes it; empty for other networks
    syrenn_pieces: int | None = None
    syrenn_error: float | None = None  # of m-tilde, relative to the tool's integral
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether none of the paper's values is missing."""
        return self.m_tilde is not None and all(self.samples[rule] is not None for rule in PAPER_RULES)


@dataclass(frozen=True)
class SampleStudy:
    """The sample counts of all images in all networks, in order."""

    suite: NetworkSuite
    rows: tuple[SampleCounts, ...]
    reused: int  # rows that were read from the cache

    def complete_rows(self, network: str) -> list[SampleCounts]:
        """Return the rows of one network without missing values."""
        return [r for r in self.rows if r.network == network and r.is_complete]

    def count_images(self, network: str) -> int:
        """Return the number of images that were studied."""
        return sum(r.network == network for r in self.rows)

    def mean_pieces(self, network: str) -> float:
        """Return the mean number of pieces."""
        return _mean([r.pieces for r in self.complete_rows(network)])

    def mean_m_tilde_error(self, network: str) -> float:
        """Return the mean error of the left sum at m-tilde."""
        return _mean([r.m_tilde_error for r in self.complete_rows(network)])

    def mean_m_tilde(self, network: str) -> float:
        """Return the mean m-tilde."""
        return _mean([r.m_tilde for r in self.complete_rows(network)])

    def mean_samples(self, network: str, rule: str) -> float:
        """Return the mean number of samples until a rule stays below 5 %, over the images for which it does."""
        return _mean([r.samples[rule] for r in self.complete_rows(network)])

    def mean_syrenn(self, network: str) -> dict[str, float]:
        """Return the paper's columns as its tool computes them, and the number of images that have all of them."""
        rows = [r for r in self.rows if r.network == network and r.m_tilde is not None]
        rows = [r for r in rows if all(r.syrenn_samples.get(rule) is not None for rule in PAPER_RULES)]
        means = {rule: _mean([r.syrenn_samples[rule] for r in rows]) for rule in PAPER_RULES}
        means["exact"] = _mean([r.syrenn_pieces for r in rows])
        return means | {"error": _mean([r.syrenn_error for r in rows]), "images": len(rows)}

    def count_missed(self, network: str, rule: str) -> int:
        """Return the number of complete rows for which a rule never stays below 5 %."""
        return sum(r.samples[rule] is None for r in self.complete_rows(network))

    def mean_errors(self, network: str, rule: str) -> Floats:
        """Return the mean error with 1, 2, ... 128 samples; NaN where the rule needs more."""
        errors = [r.errors[rule] for r in self.complete_rows(network)]
        return np.array(errors, dtype=np.float64).mean(0) if errors else np.zeros(0)

    def cpu_seconds(self, network: str) -> float:
        """Return the processor time spent on one network, including that of cached results."""
        return sum(r.cpu_seconds for r in self.rows if r.network == network)

    def wall_seconds(self, network: str) -> float:
        """Return the wall-clock time spent on one network, including that of cached results."""
        return sum(r.wall_seconds for r in self.rows if r.network == network)


def run(
    data: Path | None = None,
    *,
    images: int | None = None,
    networks: Sequence[str] = (),
    folder: Path | None = None,
    progress: StudyProgress | None = None,
) -> SampleStudy:
    """Count the pieces of every image in every network, and the samples that each quadrature rule needs.

    Args:
        data: A folder with the published networks and images; None for the bundled digits networks.
        images: Number of images; None for all, or for as many as a large network allows.
        networks: Names of the networks to study; all if empty.
        folder: Where finished images are cached, so that a killed run can be continued.
        progress: Called with the share of the work done and a description of the current step.

    >>> study = run(images=1, networks=["normal"])
    >>> study.rows[0].pieces > 10, study.mean_samples("normal", "left") > 1
    (True, True)

    Raises FileError for a missing network or image file, ArgumentError for an unknown network, and the errors of
    restrict.
    """
    suite = load_ig_suite(data)
    known = [named.name for named in suite.networks]
    for name in networks:
        if name not in known:
            raise ArgumentError(
                f"There is no network {name!r}.", where="option --network", hint=f"Choose from {', '.join(known)}."
            )
    chosen = tuple(named for named in suite.networks if not networks or named.name in networks)
    suite = NetworkSuite(suite.images.take(images), chosen, suite.bundled)
    cache, rows = ResultCache(folder, VERSION), list[SampleCounts]()
    counts = [_count_default_images(suite, named) if images is None else len(suite.images) for named in chosen]
    for named, count in zip(chosen, counts, strict=True):
        for index in range(count):
            if progress is not None:
                progress(len(rows) / sum(counts), f"{named.name}, image {index}")
            rows.append(_load_or_compute(suite.images, named, index, cache))
    return SampleStudy(suite, tuple(rows), cache.reused)


def _count_default_images(suite: NetworkSuite, named: NamedNetwork) -> int:
    return len(suite.images) if named.max_images is None else min(named.max_images, len(suite.images))


def _load_or_compute(images: PixelImages, named: NamedNetwork, index: int, cache: ResultCache) -> SampleCounts:
    key = named.digest, images.digest(index)
    stored = cache.get_or_compute(lambda: measure_seconds(lambda: _compute(images, named, index)), *key)
    return SampleCounts(
        network=named.name,
        image=index,
        label=images.labels[index],
        pieces=stored["pieces"],
        m_tilde=stored["stop"],
        m_tilde_error=stored["stop_error"],
        samples=stored["samples"],
        errors=stored["errors"],
        syrenn_samples=stored["tool"],
        syrenn_pieces=stored.get("tool_pieces"),
        syrenn_error=stored.get("tool_error"),
        cpu_seconds=stored["seconds"],
        wall_seconds=stored["wall"],
    )


def _compute(images: PixelImages, named: NamedNetwork, index: int) -> dict[str, Any]:
    """Compute the cached result of one image."""
    point = images.point(index)
    line = restrict(named.network, point * 0, point, memory=DEFAULT_MEMORY, values=False)
    pieces = CachedPieces(line, PieceGradients.of(line, images.labels[index]).rates)
    m_tilde, m_tilde_error = pieces.find_complete_count() or (None, None)
    samples: dict[str, int | None] = {}
    errors: dict[str, list[float | None]] = {}
    for rule in RULES:
        samples[rule], curve = pieces.find_stable_count(rule, ERROR_TOLERANCE, _max_samples(rule))
        errors[rule] = [_round_error(e) for e in curve.tolist()]
    result = {
        "pieces": len(line),
        "stop": m_tilde,
        "stop_error": None if m_tilde_error is None else _round_error(m_tilde_error),
        "samples": samples,
        "errors": errors,
        "tool": {},
    }
    return result | _compute_syrenn(pieces, named, m_tilde) if named.has_published_results else result


def _compute_syrenn(pieces: CachedPieces, named: NamedNetwork, m_tilde: int | None) -> dict[str, Any]:
    """Compute the part of a cached result that reproduces the paper's tool."""
    syrenn = SyrennPieces.build(pieces, named.network)
    partitions = search_partitions(syrenn, ERROR_TOLERANCE)
    return {
        "tool": {rule: None if n is None else n + (rule == "trapezoid") for rule, n in partitions.items()},
        "tool_pieces": len(syrenn.breaks) - 1,
        "tool_error": None if m_tilde is None else _round_error(float(syrenn.rule_errors("left", [m_tilde])[0])),
    }


def _max_samples(rule: str) -> int:
    """Return the largest number of samples to try; n partitions of trapezoid and Simpson have n + 1 samples."""
    return MAX_PARTITIONS + RUN_LENGTH - 1 + (rule in ("trapezoid", "simpson"))


def _round_error(error: float) -> float | None:
    return None if error != error else float(f"{error:.{STORED_DIGITS}g}")


def _mean(numbers: Sequence[float | None]) -> float:
    present = [n for n in numbers if n is not None]
    return float(np.mean(present)) if present else float("nan")
