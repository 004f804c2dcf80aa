"""Tables 3 and 4 of the paper beside the published numbers, and the report of the study."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Floats
from ..published import PAPER_IMAGES, NetworkSuite
from .linearity import DEFINITIONS, DIRECTIONS, LinearityStudy
from .rational_check import RationalCheck
from .report import NO_VALUE, BulletList, ReportBlock, ReportHeading, ReportPicture, ReportTable, format_percent

PERCENTILES = (50, 25, 75)
BOOTSTRAP_DRAWS = 1000  # of the images, to estimate the error of a median
TRAININGS = ("normal", "DiffAI", "PGD")
PUBLISHED_TABLE3 = {  # median, 25 %, 75 %
    ("MNIST", "normal"): "1.36 0.99 1.76",
    ("MNIST", "DiffAI"): "0.98 0.92 1.38",
    ("MNIST", "PGD"): "1.22 0.97 1.51",
    ("CIFAR10", "normal"): "1.78 1.60 2.02",
    ("CIFAR10", "DiffAI"): "1.67 1.47 2.03",
    ("CIFAR10", "PGD"): "1.84 1.65 2.10",
}
PUBLISHED_TABLE4 = {
    ("MNIST", "DiffAI", "FGSM"): "3.05 2.05 4.11",
    ("MNIST", "PGD", "FGSM"): "0.88 0.66 1.14",
    ("MNIST", "DiffAI", "random"): "2.50 1.67 3.00",
    ("MNIST", "PGD", "random"): "0.80 0.62 1.00",
    ("CIFAR10", "DiffAI", "FGSM"): "3.37 2.77 4.94",
    ("CIFAR10", "PGD", "FGSM"): "1.48 1.22 1.67",
    ("CIFAR10", "DiffAI", "random"): "3.43 2.78 4.42",
    ("CIFAR10", "PGD", "random"): "1.51 1.21 1.80",
}
PUBLISHED_TANGENT = {("CIFAR10", "normal"): "over 250"}  # percent


def format_quartiles(ratios: Floats) -> str:
    """Format the median, the 25th and the 75th percentile as the paper prints them.

    >>> format_quartiles(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    '3.00 2.00 4.00'
    """
    return " ".join(f"{q:.2f}" for q in np.percentile(ratios, PERCENTILES)) if len(ratios) else NO_VALUE


def build_table3(study: LinearityStudy) -> ReportTable:
    """Build table 3: how much denser breaks are along FGSM directions than along random ones."""
    rows: list[tuple[str, ...]] = []
    for suite in study.suites:
        for training in TRAININGS:
            computed = format_quartiles(study.pool_random_ratios(suite.name, training))
            correct = f"{len(study.correct_rows(suite.name, training))} of {len(suite.images)}"
            compared = _compare_with_published(PUBLISHED_TABLE3.get((suite.name, training)), computed, suite)
            rows.append((suite.name, training, correct, computed, *compared))
    head = ("images", "training", "right", "median 25 % 75 %", "published", "equal")
    title = "Table 3: density along FGSM directions over density along random ones"
    return ReportTable("table3", title, head, tuple(rows))


def build_table4(study: LinearityStudy) -> ReportTable:
    """Build table 4: how much denser breaks are in the normal network than in those trained to be robust."""
    rows: list[tuple[str, ...]] = []
    for suite in study.suites:
        for training in TRAININGS[1:]:
            for direction in ("FGSM", "random"):
                ratios = study.pool_normal_ratios(suite.name, training, random=direction == "random")
                computed = format_quartiles(ratios)
                published = PUBLISHED_TABLE4.get((suite.name, training, direction))
                compared = _compare_with_published(published, computed, suite)
                rows.append((suite.name, f"normal/{training}", direction, computed, *compared))
    head = ("images", "networks", "direction", "median 25 % 75 %", "published", "equal")
    title = "Table 4: density in the normal network over density in the other"
    return ReportTable("table4", title, head, tuple(rows))


def count_equal_entries(study: LinearityStudy) -> tuple[int, int]:
    """Count the entries of tables 3 and 4 that equal the published ones to the last digit, and all entries."""
    cells = [row[-1] for table in (build_table3(study), build_table4(study)) for row in table.rows]
    compared = [cell for cell in cells if cell != NO_VALUE]
    return sum(int(cell.split()[0]) for cell in compared), 3 * len(compared)


def build_tangent_table(study: LinearityStudy) -> ReportTable:
    """Build the table of how far gradients along the FGSM line are from the gradient at the image."""
    rows: list[tuple[str, ...]] = []
    for suite in study.suites:
        for training in TRAININGS:
            means = [study.mean_tangent_error(suite.name, training, float32=float32) for float32 in (False, True)]
            worst = max(
                study.correct_rows(suite.name, training).values(),
                key=lambda r: abs(r.float32_tangent_error - r.tangent_error),
                default=None,
            )
            difference = NO_VALUE
            if worst is not None:
                errors = format_percent(worst.tangent_error), format_percent(worst.float32_tangent_error)
                difference = f"{worst.image}: {errors[0]}, {errors[1]}"
            published = PUBLISHED_TANGENT.get((suite.name, training), NO_VALUE)
            rows.append((suite.name, training, *map(format_percent, means), published, difference))
    head = ("images", "training", "exact %", "float32 %", "published %", "image that differs most: exact, float32 %")
    note = (
        "The relative error divides by the gradient: where one coordinate is almost zero, a single image dominates the"
        " mean, and in float32 the size of that coordinate is mostly rounding error."
    )
    return ReportTable("tangent", "Tangent-plane error along FGSM directions", head, tuple(rows), (note,))


def build_lines_table(study: LinearityStudy) -> ReportTable:
    """Build the table of all lines with their breaks and lengths."""
    rows: list[tuple[str, ...]] = []
    for r in study.rows:
        known = (r.images, r.network, str(r.image), str(r.label), str(r.predicted))
        if not r.is_correct:
            rows.append((*known, *[""] * 7))
        for k in range(len(r.breaks)):
            float32 = (str(r.float32_breaks[k]), str(r.naive_float32_breaks[k])) if r.float32_breaks else ("", "")
            errors = (f"{r.tangent_error:.9g}", f"{r.float32_tangent_error:.9g}") if k == 0 else ("", "")
            rows.append((*known, DIRECTIONS[k].lower(), str(r.breaks[k]), *float32, repr(r.lengths[k]), *errors))
    head = (
        *("images", "network", "image", "label", "predicted", "direction", "breaks", "breaks_float32"),
        *("breaks_plain_float32", "length", "tangent_error", "tangent_error_float32"),
    )
    return ReportTable("lines", "Every line", head, tuple(rows))


def build_float32_table(study: LinearityStudy) -> ReportTable:
    """Build the table of how often and by how much float32 sweeps count other breaks."""
    rows: list[tuple[str, ...]] = []
    for suite in study.suites:
        for training in TRAININGS:
            correct = study.correct_rows(suite.name, training).values()
            pairs = [p for r in correct for p in zip(r.breaks, r.float32_breaks, strict=False)]
            naive = sum(a != b for r in correct for a, b in zip(r.breaks, r.naive_float32_breaks, strict=False))
            more, fewer = sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)
            largest = max((abs(b - a) for a, b in pairs), default=0)
            rows.append((suite.name, training, f"{len(pairs):,}", *map(str, (naive, more, fewer, largest))))
    head = (
        *("images", "training", "lines", "plain float32 differs"),
        *("float32 more", "float32 fewer", "largest difference"),
    )
    note = (
        "Plain: the signs of rounded values are used as they are, as in the paper's tool. exactline's own float32 sweep"
        " treats values within rounding error of zero as zero: two breaks that float32 cannot distinguish become one,"
        " so it counts fewer. lines.csv lists the lines."
    )
    return ReportTable("float32", "The same lines swept in float32", head, tuple(rows), (note,))


def build_check_table(checks: Sequence[RationalCheck]) -> ReportTable:
    """Build the table of lines whose count was checked in rational arithmetic."""
    rows = tuple(
        (
            *(c.images, c.network, str(c.image), c.direction),
            *map(str, (c.breaks, c.float32_breaks, c.naive_float32_breaks, c.rational_breaks)),
            f"{c.min_gap:.1e}",
        )
        for c in checks
    )
    correct = sum(c.breaks == c.rational_breaks for c in checks)
    head = ("images", "training", "image", "direction", "float64", "float32", "plain float32", "rationals", "closest")
    note = (
        f"float64 counts the same breaks as rational arithmetic on {correct} of these {len(checks)} lines. Closest: the"
        " distance between the two closest breaks as a share of the line; float32 cannot distinguish such a pair."
    )
    return ReportTable("proofs", "Which count is right, according to the rational oracle", head, rows, (note,))


def build_linearity_tables(study: LinearityStudy, checks: Sequence[RationalCheck] = ()) -> list[ReportTable]:
    """Build all tables of the study except the list of all lines."""
    tables = [build_table3(study), build_table4(study), build_tangent_table(study)]
    if any(r.float32_breaks for r in study.rows):
        tables.append(build_float32_table(study))
    return [*tables, build_check_table(checks)] if checks else tables


def build_linearity_blocks(
    study: LinearityStudy, pictures: Sequence[ReportPicture] = (), checks: Sequence[RationalCheck] = ()
) -> list[ReportBlock]:
    """Build the report of section 5: linearity along adversarial directions."""
    equal, entries = count_equal_entries(study)
    notes = [
        f"{suite.name}: {len(suite.images)} images, {'; '.join(f'{n.name}: {n.note}' for n in suite.networks)}"
        for suite in study.suites
    ]
    if entries and all(len(suite.images) == PAPER_IMAGES for suite in study.suites):
        notes.append(f"{equal} of the {entries} entries of tables 3 and 4 equal the published ones to the last digit.")
    elif any(not suite.bundled for suite in study.suites):
        notes.append(f"The published numbers are of {PAPER_IMAGES} images, these are of fewer.")
    return [
        ReportHeading("Linearity along adversarial directions (tables 3 and 4)"),
        BulletList(tuple(notes)),
        ReportHeading("Findings", 3),
        BulletList(tuple(summarize_findings(study))),
        *build_linearity_tables(study, checks),
        *pictures,
        ReportHeading("Definitions", 3),
        BulletList(DEFINITIONS),
    ]


def summarize_findings(study: LinearityStudy) -> list[str]:
    """Say for each set of images whether the paper's two findings hold."""
    findings: list[str] = []
    for suite in study.suites:
        for training in TRAININGS:
            verdict = compare_densities(study.random_ratios(suite.name, training), "FGSM", "random")
            findings.append(f"{suite.name}, {training} network: {verdict}.")
        for random, direction in ((False, "FGSM"), (True, "random")):
            ratios = study.normal_ratios(suite.name, "DiffAI", random=random)
            verdict = compare_densities(ratios, "the normal network's", "the DiffAI network's")
            findings.append(f"{suite.name}, {direction} directions: {verdict}.")
    return findings


def compare_densities(ratios: Sequence[Floats], one: str, other: str) -> str:
    """Say whether the lines of one kind are denser than those of another, with a bootstrap interval of the median.

    Args:
        ratios: The density ratios of each image, (lines,) each.
        one: The name of the lines in the numerator.
        other: The name of the lines in the denominator.

    >>> compare_densities([np.array([2.0, 3.0]), np.array([2.0])], "red", "blue")
    'red lines ARE denser than blue (median ratio 2.00, 95 % interval 2.00 to 2.50)'
    >>> compare_densities([np.array([1.0]), np.array([1.0])], "red", "blue")
    'red lines are neither denser nor sparser than blue (median ratio 1.00, 95 % interval 1.00 to 1.00)'
    """
    present = [r for r in ratios if len(r)]
    if not present:
        return f"there are no {one} lines to compare with {other}"
    table = np.full((len(present), max(map(len, present))), np.nan)  # (images, lines)
    for row, own in zip(table, present, strict=True):
        row[: len(own)] = own
    drawn = table[np.random.default_rng(0).integers(len(present), size=(BOOTSTRAP_DRAWS, len(present)))]
    low, high = np.percentile(np.nanmedian(drawn.reshape(BOOTSTRAP_DRAWS, -1), axis=1), (2.5, 97.5))
    how = "ARE denser" if low > 1 else "are NOT denser but sparser" if high < 1 else "are neither denser nor sparser"
    median = np.median(np.concatenate(present))
    return f"{one} lines {how} than {other} (median ratio {median:.2f}, 95 % interval {low:.2f} to {high:.2f})"


def _compare_with_published(published: str | None, computed: str, suite: NetworkSuite) -> tuple[str, str]:
    """Return the published numbers, and how many of the three are equal if all of the paper's images were used."""
    if published is None or len(suite.images) < PAPER_IMAGES:
        return published or NO_VALUE, NO_VALUE
    equal = sum(a == b for a, b in zip(published.split(), computed.split(), strict=False))
    return published, f"{equal} of 3"
