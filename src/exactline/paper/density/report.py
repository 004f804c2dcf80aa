"""The density study as CSV files and as a Markdown report with the definitions of all numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..text_files import format_csv, format_markdown_table, write_texts
from .plan import LinePlan
from .study import DensityStudy
from .tables import (
    DIRECTION_KINDS,
    EpochRow,
    LayerRow,
    LengthRow,
    LineRow,
    RatioRow,
    list_densities,
    list_epochs,
    list_layers,
    list_lengths,
    list_lines,
    list_ratios,
)

QUARTILES = ("median", "25 %", "75 %")
LISTED_LENGTHS = 4  # the report lists every fourth length


def save_report(study: DensityStudy, folder: Path) -> list[Path]:
    """Write all tables and report.md into a folder, each file atomically."""
    texts = {
        "densities.csv": format_csv(LineRow._fields, list_lines(study)),
        "ratios.csv": format_csv(RatioRow._fields, list_ratios(study)),
        "layers.csv": format_csv(LayerRow._fields, list_layers(study)),
    }
    if len(study.curve_lengths):
        texts["lengths.csv"] = format_csv(LengthRow._fields, list_lengths(study))
    if study.checkpoints:
        texts["epochs.csv"] = format_csv(EpochRow._fields, list_epochs(study))
    texts["report.md"] = format_report(study)
    return write_texts(folder, texts)


def format_report(study: DensityStudy) -> str:
    """Format the report; equal studies give equal texts."""
    parts = [
        "# Density of breaks",
        _describe_networks(study),
        "## Definitions",
        "\n".join(f"* {text}" for text in list_definitions(study)),
        "## Densities: breaks per unit of length",
        format_markdown_table(("network", "correct", "kind", "lines", *QUARTILES), _format_rows(list_densities(study))),
        "## Ratios",
        format_markdown_table(
            ("ratio", "network", "over", "kind", "count", *QUARTILES), _format_rows(list_ratios(study))
        ),
        *_summarize_findings(study),
        "## Where breaks originate",
        format_markdown_table(
            ("network", "kind", "layer", "units", "lines", "breaks per line", "share", "per unit and length"),
            _format_rows(list_layers(study)),
        ),
    ]
    if len(study.curve_lengths):
        listed = study.curve_lengths[LISTED_LENGTHS - 1 :: LISTED_LENGTHS].tolist()  # lengths.csv has all
        rows = [row for row in list_lengths(study) if row.length in listed]
        head = ("network", "kind", "length", "lines", "mean pieces", *QUARTILES)
        parts += ["## Pieces by length of the line", format_markdown_table(head, _format_rows(rows))]
    if study.checkpoints:
        head = ("checkpoint", "file", "kind", "lines", "accuracy", "mean pieces", "mean density", *QUARTILES)
        parts += ["## During training", format_markdown_table(head, _format_rows(list_epochs(study)))]
    return "\n\n".join(parts) + "\n"


def list_definitions(study: DensityStudy) -> list[str]:
    """List what every number means."""
    plan = study.plan
    label = "its label" if study.images.labels is not None else "the class that the network predicts, as none was given"
    seed = f"{plan.seed} + {plan.seed_stride} i" if plan.seed else f"{plan.seed_stride} i"
    texts = [
        f"An image is correct where the network's largest score is that of {label}; other images are left out, except "
        "in the table of training.",
        f"A line runs from an image x to {format_line_end(plan)}, clipped to {plan.low:g}..{plan.high:g}.",
        "FGSM: s is the sign of the gradient of the score of the class after the image's own, ascending; the class "
        "need not change.",
        f"Random: {plan.random} random signs per image, drawn with numpy's seed {seed} + j for image i, j = 0.."
        f"{plan.random - 1}.",
        "Density: breaks, both ends of the line counted, per unit of its Euclidean length. All breaks are counted, "
        "none is sampled. Short lines are dense because each has at least two breaks.",
        "Ratios are of lines of the same image; their median and quartiles are those of all images together.",
        "A break originates in the first layer in which a unit changes its branch there.",
    ]
    if len(study.curve_lengths):
        texts.append(
            f"Lengths: the same signs without clipping, lines of up to {study.curve_lengths[-1]:.4g}; the pieces of a "
            "shorter line are counted on the longer one, which gives the same number."
        )
    return texts


def format_line_end(plan: LinePlan) -> str:
    """Format where a line ends, as a formula."""
    step = f"{plan.eps:g} x" if plan.multiplicative else f"{plan.eps:g}"
    if plan.levels is not None:
        step = f"floor({plan.levels} {step}) / {plan.levels}"
    return f"x + {step} s"


def _describe_networks(study: DensityStudy) -> str:
    shape = "x".join(map(str, study.images.points.shape[1:]))
    lines = [f"* Images: {len(study.images)} of {study.images.name}, {shape}."]
    for named in study.networks:
        units, correct = sum(named.network.units.values()), len(study.correct_rows(named.name))
        lines.append(f"* {named.name}: {named.note}; {units:,} units, {correct} images correct.")
    return "\n".join(lines)


def _summarize_findings(study: DensityStudy) -> list[str]:
    """Say whether the paper's two findings hold here."""
    texts: list[str] = []
    for row in list_ratios(study):
        if row.median != row.median:
            continue
        if row.ratio == "FGSM over random":
            how = "are denser than" if row.median > 1 else "are **not** denser than"
            texts.append(f"* {row.network}: FGSM directions {how} random ones (median ratio {row.median:.2f}).")
        else:
            how = "denser" if row.median > 1 else "**no denser**"
            texts.append(
                f"* {row.kind} lines are {how} in {row.network} than in {row.over} (median ratio {row.median:.2f})."
            )
    if len(study.curve_lengths):
        texts += [f"* {_describe_longest(study, kind)}" for kind in DIRECTION_KINDS]
    return ["\n".join(texts)] if texts else []


def _describe_longest(study: DensityStudy, kind: str) -> str:
    """Describe the longest lines, which leave the neighbourhood of the images."""
    longest = float(study.curve_lengths[-1])
    rows = [row for row in list_lengths(study) if row.kind == kind and row.length == longest]
    means = ", ".join(f"{row.network} {row.mean_pieces:.1f}" for row in rows)
    return f"Mean number of pieces on {kind} lines of length {longest:.4g}: {means}."


def _format_rows(rows: Iterable[tuple[object, ...]]) -> list[list[str]]:
    return [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
