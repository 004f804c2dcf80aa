"""Tables 1 and 2 of the paper beside the published numbers, and the report of the study."""

from __future__ import annotations

from collections.abc import Sequence

from . import ig
from .ig import EXTRA_RULES, PAPER_RULES, SampleStudy
from .report import NO_VALUE, BulletList, ReportBlock, ReportHeading, ReportPicture, ReportTable, format_percent

NO_EXTRA_RULES = (NO_VALUE,) * len(EXTRA_RULES)
SYRENN_NOTE = (
    "The paper's tool reports larger numbers than the smallest that satisfies the definition: it tries every fifth"
    " number of partitions, steps back by five where one is good enough, and if that one is not, continues five after"
    " the furthest, so it misses runs of five that begin in between. Its float32 breaks change the integral that"
    " samples are compared with, which matters for a few images with a pixel whose attribution is almost zero."
)
PUBLISHED_TABLE1 = {"convsmall": "24.95"}  # percent
PUBLISHED_TABLE2 = {"convsmall": {"exact": "2582.74", "left": "136.74", "right": "139.40", "trapezoid": "91.67"}}


def build_table1(study: SampleStudy) -> ReportTable:
    """Build table 1: the true error of left sums that add up to within 1 %."""
    rows = tuple(
        (
            named.name,
            f"{len(study.complete_rows(named.name))} of {study.count_images(named.name)}",
            f"{study.mean_m_tilde(named.name):.2f}",
            format_percent(study.mean_m_tilde_error(named.name)),
            format_percent(study.mean_syrenn(named.name)["error"]),
            PUBLISHED_TABLE1[named.name] if named.has_published_results else NO_VALUE,
            named.note,
        )
        for named in study.suite.networks
    )
    head = ("network", "images", "m-tilde", "error %", "as the tool %", "published %", "weights")
    return ReportTable("table1", "Table 1: true error of left sums that add up to within 1 %", head, rows)


def build_table2(study: SampleStudy) -> ReportTable:
    """Build table 2: how many gradients each quadrature rule needs."""
    rows: list[tuple[str, ...]] = []
    for named in study.suite.networks:
        name, images = named.name, study.count_images(named.name)
        means = {"exact": study.mean_pieces(name)} | {rule: study.mean_samples(name, rule) for rule in ig.RULES}
        missed = {rule: study.count_missed(name, rule) for rule in EXTRA_RULES}
        cells = (f"{mean:.2f}" + (f" ({missed[k]} never)" if missed.get(k) else "") for k, mean in means.items())
        rows.append((name, f"{len(study.complete_rows(name))} of {images}", *cells))
        if named.has_published_results:
            syrenn = study.mean_syrenn(name)
            syrenn_cells = [f"{syrenn[column]:.2f}" for column in ("exact", *PAPER_RULES)]
            rows.append(
                (f"{name}, as the paper's tool", f"{syrenn['images']} of {images}", *syrenn_cells, *NO_EXTRA_RULES)
            )
            published = (PUBLISHED_TABLE2[name].get(column, NO_VALUE) for column in means)
            rows.append((f"{name}, published", "", *published))
    notes = ["Midpoint, Simpson and Gauss-Legendre are not in the paper."]
    if any(named.has_published_results for named in study.suite.networks):
        notes.append(SYRENN_NOTE)
    return ReportTable(
        "table2",
        "Table 2: gradients until the error stays below 5 %",
        ("network", "images", "exact", *ig.RULES),
        tuple(rows),
        tuple(notes),
    )


def build_images_table(study: SampleStudy) -> ReportTable:
    """Build the table of all images with their pieces and samples."""
    rows = tuple(
        (
            r.network,
            *map(_format_number, (r.image, r.label, r.pieces, r.m_tilde, r.m_tilde_error, *r.samples.values())),
            *map(
                _format_number, (r.syrenn_pieces, r.syrenn_error, *(r.syrenn_samples.get(rule) for rule in PAPER_RULES))
            ),
        )
        for r in study.rows
    )
    head = ("network", "image", "label", "pieces", "m_tilde", "m_tilde_error", *ig.RULES)
    syrenn_head = ("tool_pieces", "tool_error", *(f"tool_{rule}" for rule in PAPER_RULES))
    return ReportTable("images", "Every image", (*head, *syrenn_head), rows)


def build_curves_table(study: SampleStudy) -> ReportTable:
    """Build the table of mean errors of every rule with 1, 2, ... 128 samples."""
    rows: list[tuple[str, ...]] = []
    for named in study.suite.networks:
        curves = [study.mean_errors(named.name, rule).tolist() for rule in ig.RULES]
        for n, errors in enumerate(zip(*curves, strict=True), 1):
            rows.append((named.name, str(n), *(_format_number(e) for e in errors)))
    return ReportTable("errors", "Mean error by number of samples", ("network", "samples", *ig.RULES), tuple(rows))


def build_ig_blocks(study: SampleStudy, pictures: Sequence[ReportPicture] = ()) -> list[ReportBlock]:
    """Build the report of section 4: samples of integrated gradients."""
    suite = study.suite
    networks = (
        f"{named.name}: {study.count_images(named.name)} images of {suite.name}, {named.note}."
        for named in suite.networks
    )
    return [
        ReportHeading("Samples of integrated gradients (tables 1 and 2)"),
        BulletList(tuple(networks)),
        build_table1(study),
        build_table2(study),
        *pictures,
        ReportHeading("Definitions", 3),
        BulletList(ig.DEFINITIONS),
    ]


def _format_number(value: float | None) -> str:
    if value is None or value != value:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.9g}"
