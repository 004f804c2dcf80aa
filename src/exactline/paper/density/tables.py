"""The tables of the density study: lines, densities, ratios, lengths, layers and epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Floats
from ...network import Network
from ...ops.base import Breaking
from .study import DensityCounts, DensityStudy

DIRECTION_KINDS = ("FGSM", "random")


class LineRow(NamedTuple):
    """One line; the fields are the columns of densities.csv."""

    network: str
    image: int
    label: int
    predicted: int
    right: str  # yes or no: whether the image is classified correctly
    kind: str
    line: int
    breaks: int
    length: str
    density: str


class DensityRow(NamedTuple):
    """The densities of one network along lines of one kind."""

    network: str
    right: int  # images that the network classifies correctly
    kind: str
    lines: int
    median: float
    lower_quartile: float
    upper_quartile: float


class RatioRow(NamedTuple):
    """Ratios of densities; the fields are the columns of ratios.csv."""

    ratio: str
    network: str
    over: str
    kind: str
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - the column has always been called so
    median: float
    lower_quartile: float
    upper_quartile: float


class LengthRow(NamedTuple):
    """Pieces of lines of one length; the fields are the columns of lengths.csv."""

    network: str
    kind: str
    length: float
    lines: int
    mean_pieces: float
    median: float
    lower_quartile: float
    upper_quartile: float


class LayerRow(NamedTuple):
    """Breaks that originate in one layer; the fields are the columns of layers.csv."""

    network: str
    kind: str
    layer: str
    units: int
    lines: int
    mean_breaks: float
    share: float
    breaks_for_each_unit_and_length: float


class EpochRow(NamedTuple):
    """Densities of one checkpoint; the fields are the columns of epochs.csv."""

    checkpoint: int
    file: str
    kind: str
    lines: int
    accuracy: float
    mean_pieces: float
    mean_density: float
    median: float
    lower_quartile: float
    upper_quartile: float


def slice_of_kind(kind: str) -> slice:
    """Return where the lines of a kind are among the lines of an image."""
    return slice(0, 1) if kind == "FGSM" else slice(1, None)


def pool_densities(rows: Iterable[DensityCounts], kind: str) -> Floats:
    """Return the densities of all lines of a kind."""
    return concatenate_finite([r.densities[slice_of_kind(kind)] for r in rows])


def concatenate_finite(parts: list[Floats]) -> Floats:
    """Concatenate arrays without the NaNs of lines of length 0."""
    flat = np.concatenate(parts) if parts else np.zeros(0)
    return flat[np.isfinite(flat)]


def compute_quartiles(values: Floats) -> tuple[float, float, float]:
    """Return the median, the lower and the upper quartile; NaNs without values."""
    if not len(values):
        return float("nan"), float("nan"), float("nan")
    median, low, high = np.percentile(values, [50, 25, 75]).tolist()
    return median, low, high


def compute_random_ratios(study: DensityStudy, network: str) -> Floats:
    """Compute how much denser the FGSM line is than each random line of the same image."""
    return concatenate_finite([r.densities[0] / r.densities[1:] for r in study.correct_rows(network).values()])


def compute_network_ratios(study: DensityStudy, network: str, other: str, kind: str) -> Floats:
    """Compute how much denser lines are in one network than in another, for images that both classify correctly."""
    rows, others, lines = study.correct_rows(network), study.correct_rows(other), slice_of_kind(kind)
    return concatenate_finite([rows[i].densities[lines] / others[i].densities[lines] for i in rows if i in others])


def list_lines(study: DensityStudy) -> Iterator[LineRow]:
    """List every line of every image."""
    for r in study.rows:
        for j, (breaks, length) in enumerate(zip(r.breaks, r.lengths, strict=True)):
            yield LineRow(
                network=r.network,
                image=r.image,
                label=r.label,
                predicted=r.predicted,
                right="yes" if r.is_correct else "no",
                kind=DIRECTION_KINDS[min(j, 1)],
                line=j,
                breaks=breaks,
                length=repr(length),
                density=repr(breaks / length) if length > 0 else "",
            )


def list_densities(study: DensityStudy) -> Iterator[DensityRow]:
    """List the densities of each network by kind of direction."""
    for named in study.networks:
        rows = study.correct_rows(named.name).values()
        for kind in DIRECTION_KINDS:
            values = pool_densities(rows, kind)
            yield DensityRow(named.name, len(rows), kind, len(values), *compute_quartiles(values))


def list_ratios(study: DensityStudy) -> Iterator[RatioRow]:
    """List the ratios FGSM over random in each network, and the first network over each other."""
    for named in study.networks:
        values = compute_random_ratios(study, named.name)
        yield RatioRow("FGSM over random", named.name, named.name, "", len(values), *compute_quartiles(values))
    first, *others = (named.name for named in study.networks)
    for other in others:
        for kind in DIRECTION_KINDS:
            values = compute_network_ratios(study, first, other, kind)
            yield RatioRow("first network over another", first, other, kind, len(values), *compute_quartiles(values))


def list_lengths(study: DensityStudy) -> Iterator[LengthRow]:
    """List the mean number of pieces of lines of each length."""
    for named in study.networks:
        for kind in DIRECTION_KINDS:
            rows = study.correct_rows(named.name).values()
            counts = [c for r in rows for c in r.pieces_within[slice_of_kind(kind)] if c]
            table = np.array(counts, dtype=np.float64).reshape(len(counts), len(study.curve_lengths))
            for length, column in zip(study.curve_lengths.tolist(), table.T, strict=True):
                yield LengthRow(named.name, kind, length, len(column), _mean(column), *compute_quartiles(column))


def list_layers(study: DensityStudy) -> Iterator[LayerRow]:
    """List where breaks originate: for each layer the mean number per line, and its share of all inner breaks."""
    for named in study.networks:
        units = _count_units(named.network)
        rows = list(study.correct_rows(named.name).values())
        for kind in DIRECTION_KINDS:
            own = slice_of_kind(kind)
            counts = {name: sum(sum(r.origins[name][own]) for r in rows) for name in units}
            lines = sum(length > 0 for r in rows for length in r.lengths[own])
            total, length = sum(counts.values()), sum(sum(r.lengths[own]) for r in rows)
            for name, count in counts.items():
                yield LayerRow(
                    network=named.name,
                    kind=kind,
                    layer=name,
                    units=units[name],
                    lines=lines,
                    mean_breaks=count / lines if lines else float("nan"),
                    share=count / total if total else float("nan"),
                    breaks_for_each_unit_and_length=(
                        count / length / units[name] if length and units[name] else float("nan")
                    ),
                )


def list_epochs(study: DensityStudy) -> Iterator[EpochRow]:
    """List the densities of each checkpoint over all images, classified correctly or not."""
    for place, named in enumerate(study.checkpoints):
        rows = [r for r in study.checkpoint_rows if r.network == named.name]
        accuracy = sum(r.is_correct for r in rows) / len(rows)
        for kind in DIRECTION_KINDS:
            values = pool_densities(rows, kind)
            pieces = [b - 1 for r in rows for b in r.breaks[slice_of_kind(kind)] if b]
            yield EpochRow(
                *(place, named.note, kind, len(values), accuracy),
                *(_mean(pieces), _mean(values)),
                *compute_quartiles(values),
            )


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _count_units(network: Network) -> dict[str, int]:
    """Return the number of units of each breaking node, in the order of the sweep."""
    nodes = network.nodes
    return {node.name: node.op.units(nodes[node.inputs[0]].shape) for node in nodes if isinstance(node.op, Breaking)}
