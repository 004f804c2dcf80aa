"""The density study as tables: densities, ratios, lengths, layers and epochs as CSV, and a report in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..arrays import Floats
from .acas_report import as_csv, write_texts
from .density import Densities, Row

KINDS = ("FGSM", "random")
QUARTERS = ("median", "lower_quartile", "upper_quartile")
LINES = ("network", "image", "label", "predicted", "right", "kind", "line", "breaks", "length", "density")
RATIOS = ("ratio", "network", "over", "kind", "count", *QUARTERS)
LENGTHS = ("network", "kind", "length", "lines", "mean_pieces", *QUARTERS)
LAYERS = ("network", "kind", "layer", "units", "lines", "mean_breaks", "share", "breaks_for_each_unit_and_length")
EPOCHS = ("checkpoint", "file", "kind", "lines", "accuracy", "mean_pieces", "mean_density", *QUARTERS)


def of_kind(kind: str) -> slice:
    """Where the lines of a kind are among those of an image."""
    return slice(0, 1) if kind == "FGSM" else slice(1, None)


def pooled(rows: Iterable[Row], kind: str) -> Floats:
    """The densities of all lines of a kind."""
    return finite([r.densities[of_kind(kind)] for r in rows])


def finite(parts: list[Floats]) -> Floats:
    """One row of numbers, without those of lines that have no length."""
    flat = np.concatenate(parts) if parts else np.zeros(0)
    return flat[np.isfinite(flat)]


def quarters(values: Floats) -> tuple[float, float, float]:
    """Median, lower and upper quartile; NaN where there is nothing."""
    if not len(values):
        return float("nan"), float("nan"), float("nan")
    half, low, high = np.percentile(values, [50, 25, 75]).tolist()
    return half, low, high


def against_random(found: Densities, network: str) -> Floats:
    """How much denser the FGSM line is than each random one of the same image."""
    return finite([r.densities[0] / r.densities[1:] for r in found.of(network).values()])


def against_other(found: Densities, network: str, other: str, kind: str) -> Floats:
    """How much denser lines are in a network than in another: same image and line, right for both."""
    one, two = found.of(network), found.of(other)
    return finite([one[i].densities[of_kind(kind)] / two[i].densities[of_kind(kind)] for i in one if i in two])


def line_rows(found: Densities) -> Iterator[tuple[object, ...]]:
    """Every line of every image that is classified rightly, and the wrong images without lines."""
    for r in found.rows:
        head = (r.network, r.image, r.label, r.predicted, "yes" if r.right else "no")
        for j, (breaks, length) in enumerate(zip(r.breaks, r.lengths, strict=True)):
            value = repr(breaks / length) if length > 0 else ""
            yield *head, KINDS[min(j, 1)], j, breaks, repr(length), value


def ratio_rows(found: Densities) -> Iterator[tuple[object, ...]]:
    """FGSM over random in each network; the first network over each other."""
    for s in found.subjects:
        values = against_random(found, s.name)
        yield "FGSM over random", s.name, s.name, "", len(values), *quarters(values)
    first, *others = (s.name for s in found.subjects)
    for other in others:
        for kind in KINDS:
            values = against_other(found, first, other, kind)
            yield "first network over another", first, other, kind, len(values), *quarters(values)


def length_rows(found: Densities) -> Iterator[tuple[object, ...]]:
    """Expected number of pieces of a line of each length."""
    for s in found.subjects:
        for kind in KINDS:
            counts = [c for r in found.of(s.name).values() for c in r.within[of_kind(kind)] if c]
            table = np.array(counts, dtype=np.float64).reshape(len(counts), len(found.lengths))
            for k, length in enumerate(found.lengths.tolist()):
                column = table[:, k]
                mean = float(column.mean()) if len(column) else float("nan")
                yield s.name, kind, length, len(column), mean, *quarters(column)


def layer_rows(found: Densities) -> Iterator[tuple[object, ...]]:
    """Where breaks are born: for each layer the mean number on a line, and its share of all inside the line."""
    for s in found.subjects:
        units = _units(s.network)
        for kind in KINDS:
            rows, part = list(found.of(s.name).values()), of_kind(kind)
            counts = {name: sum(sum(r.births[name][part]) for r in rows) for name in units}
            lines = sum(length > 0 for r in rows for length in r.lengths[part])
            whole, run = sum(counts.values()), sum(sum(r.lengths[part]) for r in rows)
            for name, count in counts.items():
                mean = count / lines if lines else float("nan")
                share = count / whole if whole else float("nan")
                each = count / run / units[name] if run and units[name] else float("nan")
                yield s.name, kind, name, units[name], lines, mean, share, each


def epoch_rows(found: Densities) -> Iterator[tuple[object, ...]]:
    """Densities of each checkpoint over all images, rightly classified or not."""
    for place, s in enumerate(found.checkpoints):
        rows = [r for r in found.epochs if r.network == s.name]
        accuracy = sum(r.right for r in rows) / len(rows)
        for kind in KINDS:
            values = pooled(rows, kind)
            pieces = [b - 1 for r in rows for b in r.breaks[of_kind(kind)] if b]
            means = [float(np.mean(v)) if len(v) else float("nan") for v in (pieces, values)]
            yield place, s.note, kind, len(values), accuracy, *means, *quarters(values)


def save(found: Densities, folder: Path) -> list[Path]:
    """Write all tables and report.md into a folder, each whole or not at all."""
    from .density_report import report

    texts = {
        "densities.csv": as_csv(LINES, line_rows(found)),
        "ratios.csv": as_csv(RATIOS, ratio_rows(found)),
        "layers.csv": as_csv(LAYERS, layer_rows(found)),
    }
    if len(found.lengths):
        texts["lengths.csv"] = as_csv(LENGTHS, length_rows(found))
    if found.checkpoints:
        texts["epochs.csv"] = as_csv(EPOCHS, epoch_rows(found))
    texts["report.md"] = report(found)
    return write_texts(folder, texts)


def _units(network: object) -> dict[str, int]:
    """How many units each breaking node has, in sweep order."""
    from ..network import Network
    from ..ops.base import Breaking

    if not isinstance(network, Network):
        return {}
    nodes = network.nodes
    return {node.name: node.op.units(nodes[node.inputs[0]].shape) for node in nodes if isinstance(node.op, Breaking)}
