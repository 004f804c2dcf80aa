"""What the density study found, in words and tables, as Markdown; the definitions are printed with it."""

from __future__ import annotations

from collections.abc import Iterable

from .acas_report import as_table
from .density import Densities, Plan
from .density_tables import KINDS, epoch_rows, layer_rows, length_rows, pooled, quarters, ratio_rows


def report(found: Densities) -> str:
    """The whole report; the same data give the same bytes."""
    parts = [
        "# Density of breaks",
        _subjects(found),
        "## Definitions",
        "\n".join(f"* {text}" for text in definitions(found)),
        "## Densities: breaks for each unit of length",
        as_table(("network", "right", "kind", "lines", "median", "25 %", "75 %"), _densities(found)),
        "## Ratios",
        as_table(("ratio", "network", "over", "kind", "count", "median", "25 %", "75 %"), _rounded(ratio_rows(found))),
        *_findings(found),
        "## Where breaks are born",
        as_table(
            ("network", "kind", "layer", "units", "lines", "breaks on a line", "share", "for each unit and length"),
            _rounded(layer_rows(found)),
        ),
    ]
    if len(found.lengths):
        rows = [row for row in length_rows(found) if _shown(found, row[2])]
        parts += ["## Pieces against the length of a line", as_table(_LENGTHS, _rounded(rows))]
    if found.checkpoints:
        parts += ["## Against training", as_table(_EPOCHS, _rounded(epoch_rows(found)))]
    return "\n\n".join(parts) + "\n"


_LENGTHS = ("network", "kind", "length", "lines", "mean pieces", "median", "25 %", "75 %")
_EPOCHS = ("checkpoint", "file", "kind", "lines", "accuracy", "mean pieces", "mean density", "median", "25 %", "75 %")


def definitions(found: Densities) -> list[str]:
    """What every number means, in words."""
    plan = found.plan
    known = "its label" if found.images.labels is not None else "the class the network gives it, as none was given"
    texts = [
        f"An image is right where the network's largest score is that of {known}; other images count for nothing, "
        "except against training.",
        f"A line runs from an image to {moved(plan)}, clipped to {plan.low:g}..{plan.high:g}.",
        "FGSM: s is the sign of the gradient of the score of the class after the image's own, ascending; the class "
        "need not change.",
        f"Random: {plan.random} random signs for each image, numpy's seed {_seed(plan)} + j for image i, j = 0.."
        f"{plan.random - 1}.",
        "Density: breaks, both ends of the line counted, for each unit of its Euclidean length. All breaks are "
        "counted, none is sampled. Short lines have dense ends: two breaks however short.",
        "Ratios are of lines of the same image, pooled over images and then their median and quartiles are taken.",
        "A break is born in the first layer in which a unit changes its branch there.",
    ]
    if len(found.lengths):
        texts.append(
            f"Lengths: the same signs without clipping, lines of up to {found.lengths[-1]:.4g}; a shorter line's "
            "pieces are counted on the longer one, which gives the same number."
        )
    return texts


def moved(plan: Plan) -> str:
    """Where a line ends, as a formula."""
    step = f"{plan.eps:g} x" if plan.multiplicative else f"{plan.eps:g}"
    if plan.levels is not None:
        step = f"floor({plan.levels} {step}) / {plan.levels}"
    return f"x + {step} s"


def _seed(plan: Plan) -> str:
    each = f"{max(20, plan.random)} i"
    return f"{plan.seed} + {each}" if plan.seed else each


def _subjects(found: Densities) -> str:
    shape = "x".join(map(str, found.images.points.shape[1:]))
    lines = [f"* Images: {len(found.images)} of {found.images.name}, {shape}."]
    for s in found.subjects:
        units = sum(s.network.units.values())
        lines.append(f"* {s.name}: {s.note}; {units:,} units, {len(found.of(s.name))} images right.")
    return "\n".join(lines)


def _densities(found: Densities) -> list[list[str]]:
    rows: list[tuple[object, ...]] = []
    for s in found.subjects:
        own = found.of(s.name).values()
        for kind in KINDS:
            values = pooled(own, kind)
            rows.append((s.name, len(own), kind, len(values), *quarters(values)))
    return _rounded(rows)


def _findings(found: Densities) -> list[str]:
    """The paper's two findings, as they turn out here."""
    texts: list[str] = []
    for kind, network, other, direction, _, median, *_ in ratio_rows(found):
        if not isinstance(median, float) or median != median:
            continue
        if kind == "FGSM over random":
            held = "are denser than" if median > 1 else "are **not** denser than"
            texts.append(f"* {network}: FGSM directions {held} random ones (median ratio {median:.2f}).")
        else:
            held = "denser" if median > 1 else "**no denser**"
            texts.append(f"* {direction} lines are {held} in {network} than in {other} (median ratio {median:.2f}).")
    if len(found.lengths):
        texts += [f"* {_longest(found, kind)}" for kind in KINDS]
    return ["\n".join(texts)] if texts else []


def _longest(found: Densities, kind: str) -> str:
    """Whether what holds near the images holds far from them."""
    last = [row for row in length_rows(found) if row[1] == kind and row[2] == float(found.lengths[-1])]
    means = ", ".join(f"{row[0]} {row[4]:.1f}" for row in last)
    return f"{kind} lines of length {found.lengths[-1]:.4g} have so many pieces on average: {means}."


def _shown(found: Densities, length: object) -> bool:
    """Every fourth length: lengths.csv has all."""
    return length in found.lengths[3::4].tolist()


def _rounded(rows: Iterable[tuple[object, ...]]) -> list[list[str]]:
    return [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
