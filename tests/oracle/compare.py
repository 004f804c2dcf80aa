"""Hold a float restriction's breaks against the exact ones: none missed, none invented, none far off."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor

from exactline.exact import ExactRestriction

TOLERANCE = 1e-10  # how far a break may be from its exact place
RESOLUTION = 1e-14  # exact breaks closer than this may share a float break


@dataclass(frozen=True)
class Cluster:
    """Exact breaks with gaps that floats need not resolve, and how many float breaks may stand for them.

    At most one each: a sliver made by rounding is one too many. At least as many as lie pairwise further
    apart than the resolution: a chain of close breaks is no excuse to return a single one.
    """

    breaks: tuple[Fraction, ...]
    least: int

    def holds(self, alpha: Fraction, tolerance: Fraction) -> bool:
        """Whether a float break is close enough to one of these."""
        return any(abs(alpha - b) <= tolerance for b in self.breaks)


def mismatch(
    line_alphas: Tensor,  # (n,)
    exact: ExactRestriction,
    tolerance: float = TOLERANCE,
    resolution: float = RESOLUTION,
) -> str | None:
    """What is wrong with a float restriction's breaks, or None.

    Exact breaks are merged into clusters first, where neighbours are closer than the resolution. Then, in
    order, every cluster must take its share of the float breaks, each within the tolerance of an exact one,
    and all must be used up. The tolerance alone forgives nothing: two exact breaks that lie closer than it,
    but further apart than the resolution, still need two float breaks.
    """
    wrong = _malformed(line_alphas)
    if wrong is not None:
        return wrong
    found = [Fraction(a) for a in line_alphas.tolist()]
    clusters = merged(exact.alphas, Fraction(resolution))
    close = Fraction(tolerance)
    used = {0}  # how many float breaks the clusters so far can have taken
    for cluster in clusters:
        used = {after for before in used for after in _shares(cluster, found, before, close)}
    return None if len(found) in used else _diagnosis(found, clusters, exact, close)


def merged(alphas: list[Fraction], resolution: Fraction) -> list[Cluster]:
    """Neighbours closer than the resolution share a cluster."""
    groups: list[list[Fraction]] = [[alphas[0]]]
    for left, right in pairwise(alphas):
        if right - left > resolution:
            groups.append([])
        groups[-1].append(right)
    return [Cluster(tuple(group), _apart(group, resolution)) for group in groups]


def _apart(group: list[Fraction], resolution: Fraction) -> int:
    """How many of some sorted breaks lie pairwise further apart than the resolution."""
    last, count = group[0], 1
    for alpha in group:
        if alpha - last > resolution:
            last, count = alpha, count + 1
    return count


def _shares(cluster: Cluster, found: list[Fraction], before: int, tolerance: Fraction) -> list[int]:
    """How many float breaks can be used up after this cluster, if so many were before it."""
    ends: list[int] = []
    for at in range(before, min(before + len(cluster.breaks), len(found))):
        if not cluster.holds(found[at], tolerance):
            break
        if at + 1 - before >= cluster.least:
            ends.append(at + 1)
    return ends


def _malformed(alphas: Tensor) -> str | None:
    if alphas.dim() != 1 or alphas.dtype != torch.float64:
        return f"alphas are {alphas.dtype} of shape {tuple(alphas.shape)}, not a row of float64"
    if len(alphas) < 2 or alphas[0] != 0 or alphas[-1] != 1:
        return f"alphas do not run from 0 to 1: {alphas.tolist()[:3]} ..."
    if not bool((alphas[1:] > alphas[:-1]).all()):
        at = int((alphas[1:] > alphas[:-1]).logical_not().nonzero()[0])
        return f"alphas do not rise at {at}: {alphas[at].item()!r}, {alphas[at + 1].item()!r}"
    return None


def _diagnosis(found: list[Fraction], clusters: list[Cluster], exact: ExactRestriction, tolerance: Fraction) -> str:
    """The first thing that spoils the match, in words."""
    for cluster in clusters:
        if not any(cluster.holds(alpha, tolerance) for alpha in found):
            at = cluster.breaks[0]
            off = min(abs(alpha - at) for alpha in found)
            return (
                f"missed {float(at)!r}, {exact.origins[exact.alphas.index(at)]}: the nearest is {float(off):.1e} away"
            )
    for alpha in found:
        if not any(cluster.holds(alpha, tolerance) for cluster in clusters):
            off = min(abs(alpha - b) for b in exact.alphas)
            return f"invented {float(alpha)!r}: the nearest exact break is {float(off):.1e} away"
    for region in _regions(clusters, tolerance):
        least, most = sum(c.least for c in region), sum(len(c.breaks) for c in region)
        count = sum(any(c.holds(alpha, tolerance) for c in region) for alpha in found)
        if not least <= count <= most:
            kind, truth = ("missed", least) if count < least else ("invented", most)
            return f"{kind} a break near {float(region[0].breaks[0])!r}: {count} where the truth has {truth}"
    return "breaks lie within the tolerance of exact ones, but not one to one"


def _regions(clusters: list[Cluster], tolerance: Fraction) -> list[list[Cluster]]:
    """Clusters so close that one float break could belong to several."""
    regions = [[clusters[0]]]
    for left, right in pairwise(clusters):
        if right.breaks[0] - left.breaks[-1] > 2 * tolerance:
            regions.append([])
        regions[-1].append(right)
    return regions
