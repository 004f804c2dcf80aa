"""The paper's tables with its published numbers beside ours: rows of text that every kind of file is made from."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from .ig import BEYOND, PAPER
from .ig import Study as Integrated
from .linearity import Linearity
from .published import MANY, Suite
from .rational_check import Proof

PERCENTILES = (50, 25, 75)
DRAWS = 1000  # of images, to see how far a median can be trusted
NONE = "-"  # where the paper has no number, or we have none
NO_MORE = (NONE,) * len(BEYOND)
TOOL = (
    "The paper's tool finds larger numbers than the smallest that the definition asks for: it tries every fifth number"
    " of partitions, turns back by five where one is good, and if that one is not, goes on five after the furthest; a"
    " run of five that begins between is then seen late. Its breaks in float32 move the sum that samples are compared"
    " with, which decides for a few images with a pixel whose attribution nearly vanishes."
)
KINDS = ("normal", "DiffAI", "PGD")
TABLE3 = {  # median, 25 %, 75 %
    ("MNIST", "normal"): "1.36 0.99 1.76",
    ("MNIST", "DiffAI"): "0.98 0.92 1.38",
    ("MNIST", "PGD"): "1.22 0.97 1.51",
    ("CIFAR10", "normal"): "1.78 1.60 2.02",
    ("CIFAR10", "DiffAI"): "1.67 1.47 2.03",
    ("CIFAR10", "PGD"): "1.84 1.65 2.10",
}
TABLE4 = {
    ("MNIST", "DiffAI", "FGSM"): "3.05 2.05 4.11",
    ("MNIST", "PGD", "FGSM"): "0.88 0.66 1.14",
    ("MNIST", "DiffAI", "random"): "2.50 1.67 3.00",
    ("MNIST", "PGD", "random"): "0.80 0.62 1.00",
    ("CIFAR10", "DiffAI", "FGSM"): "3.37 2.77 4.94",
    ("CIFAR10", "PGD", "FGSM"): "1.48 1.22 1.67",
    ("CIFAR10", "DiffAI", "random"): "3.43 2.78 4.42",
    ("CIFAR10", "PGD", "random"): "1.51 1.21 1.80",
}
TANGENT = {("CIFAR10", "normal"): "over 250"}  # per cent
TABLE1 = {"convsmall": "24.95"}  # per cent
TABLE2 = {"convsmall": {"exact": "2582.74", "left": "136.74", "right": "139.40", "trapezoid": "91.67"}}


@dataclass(frozen=True)
class Table:
    """A table of text."""

    name: str  # of its file
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def csv(self) -> str:
        """As comma-separated values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([self.head, *self.rows])
        return text.getvalue()


def three(ratios: Floats) -> str:
    """Median, 25 and 75 percentiles as the paper prints them.

    >>> three(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    '3.00 2.00 4.00'
    """
    return " ".join(f"{q:.2f}" for q in np.percentile(ratios, PERCENTILES)) if len(ratios) else NONE


def table3(found: Linearity) -> Table:
    """How much denser FGSM directions are than random ones."""
    rows: list[tuple[str, ...]] = []
    for suite in found.suites:
        for kind in KINDS:
            ours = three(found.against_random(suite.name, kind))
            right = f"{len(found.of(suite.name, kind))} of {len(suite.images)}"
            rows.append((suite.name, kind, right, ours, *_beside(TABLE3.get((suite.name, kind)), ours, suite)))
    head = ("images", "training", "right", "median 25 % 75 %", "published", "equal")
    return Table("table3", "Table 3: density along FGSM directions over density along random ones", head, tuple(rows))


def table4(found: Linearity) -> Table:
    """How much denser lines are in the normal network than in those trained to be robust."""
    rows: list[tuple[str, ...]] = []
    for suite in found.suites:
        for kind in KINDS[1:]:
            for direction in ("FGSM", "random"):
                ours = three(found.against_normal(suite.name, kind, random=direction == "random"))
                theirs = TABLE4.get((suite.name, kind, direction))
                rows.append((suite.name, f"normal/{kind}", direction, ours, *_beside(theirs, ours, suite)))
    head = ("images", "networks", "direction", "median 25 % 75 %", "published", "equal")
    return Table("table4", "Table 4: density in the normal network over density in the other", head, tuple(rows))


def _beside(theirs: str | None, ours: str, suite: Suite) -> tuple[str, str]:
    """The published numbers, and how many of the three are the same; fewer images cannot have the same."""
    if theirs is None or len(suite.images) < MANY:
        return theirs or NONE, NONE
    same = sum(a == b for a, b in zip(theirs.split(), ours.split(), strict=False))
    return theirs, f"{same} of 3"


def equal_entries(found: Linearity) -> tuple[int, int]:
    """How many entries of tables 3 and 4 are the published ones to the last digit, and how many there are."""
    cells = [row[-1] for table in (table3(found), table4(found)) for row in table.rows if row[-1] != NONE]
    return sum(int(cell.split()[0]) for cell in cells), 3 * len(cells)


def tangent(found: Linearity) -> Table:
    """How far gradients along the FGSM line are from the one at the image."""
    rows: list[tuple[str, ...]] = []
    for suite in found.suites:
        for kind in KINDS:
            numbers = [found.tangent(suite.name, kind, float32=single) for single in (False, True)]
            worst = max(found.of(suite.name, kind).values(), key=lambda r: abs(r.tangent32 - r.tangent), default=None)
            apart = NONE if worst is None else f"{worst.image}: {_percent(worst.tangent)}, {_percent(worst.tangent32)}"
            rows.append((suite.name, kind, *map(_percent, numbers), TANGENT.get((suite.name, kind), NONE), apart))
    head = ("images", "training", "exact %", "float32 %", "published %", "image that differs most: exact, float32 %")
    note = (
        "A relative error divides by the gradient: where one coordinate nearly vanishes, one image decides the mean,"
        " and in float32 how nearly it vanishes is rounding."
    )
    return Table("tangent", "Tangent-plane error along FGSM directions", head, tuple(rows), (note,))


def lines_table(found: Linearity) -> Table:
    """Every line with its breaks and its length."""
    names = ("fgsm", "random 0", "random 1", "random 2", "random 3")
    rows: list[tuple[str, ...]] = []
    for r in found.rows:
        known = (r.images, r.network, str(r.image), str(r.label), str(r.predicted))
        if not r.right:
            rows.append((*known, *[""] * 7))
        for k, name in enumerate(names[: len(r.breaks)]):
            single = (str(r.breaks32[k]), str(r.plain32[k])) if r.breaks32 else ("", "")
            errors = (f"{r.tangent:.9g}", f"{r.tangent32:.9g}") if k == 0 else ("", "")
            rows.append((*known, name, str(r.breaks[k]), *single, repr(r.lengths[k]), *errors))
    head = ("images", "network", "image", "label", "predicted", "direction", "breaks", "breaks_float32")
    return Table(
        "lines",
        "Every line",
        (*head, "breaks_plain_float32", "length", "tangent_error", "tangent_error_float32"),
        tuple(rows),
    )


def float32_table(found: Linearity) -> Table:
    """Where a sweep in float32 counts otherwise, and by how much."""
    rows: list[tuple[str, ...]] = []
    for suite in found.suites:
        for kind in KINDS:
            there = found.of(suite.name, kind).values()
            pairs = [p for r in there for p in zip(r.breaks, r.breaks32, strict=False)]
            plain = sum(a != b for r in there for a, b in zip(r.breaks, r.plain32, strict=False))
            more, less = (sum(sign * b > sign * a for a, b in pairs) for sign in (1, -1))
            most = max((abs(b - a) for a, b in pairs), default=0)
            rows.append((suite.name, kind, f"{len(pairs):,}", str(plain), str(more), str(less), str(most)))
    head = (
        "images",
        "training",
        "lines",
        "plain float32 differs",
        "float32 more",
        "float32 fewer",
        "largest difference",
    )
    note = (
        "Plain: signs of rounded values are believed, as in the paper's tool. Our own sweep in float32 believes none"
        " that rounding may have turned: two breaks that float32 cannot tell apart become one, so it counts fewer."
        " Which lines: lines.csv."
    )
    return Table("float32", "The same lines swept in float32", head, tuple(rows), (note,))


def proof_table(proved: Sequence[Proof]) -> Table:
    """Which count is right, on some of those lines."""
    rows = tuple(
        (
            p.images,
            p.network,
            str(p.image),
            p.direction,
            *map(str, (p.breaks, p.breaks32, p.plain32, p.truth)),
            f"{p.closest:.1e}",
        )
        for p in proved
    )
    right = sum(p.breaks == p.truth for p in proved)
    head = ("images", "training", "image", "direction", "float64", "float32", "plain float32", "rationals", "closest")
    note = (
        f"Float64 counts what rationals count on {right} of these {len(proved)} lines. Closest: how far apart the two"
        " nearest breaks are, of the whole line's length; float32 cannot tell such a pair from one break."
    )
    return Table("proofs", "Which count is right, by the rational oracle", head, rows, (note,))


def table1(found: Integrated) -> Table:
    """What the usual heuristic's attributions are worth."""
    rows = tuple(
        (
            s.name,
            f"{len(found.of(s.name))} of {found.done(s.name)}",
            f"{found.stop(s.name):.2f}",
            _percent(found.stop_error(s.name)),
            _percent(found.tool(s.name)["error"]),
            TABLE1[s.name] if s.papers else NONE,
            s.note,
        )
        for s in found.suite.subjects
    )
    head = ("network", "images", "m-tilde", "error %", "as the tool %", "published %", "weights")
    return Table("table1", "Table 1: true error of left sums that add up to within 1 %", head, rows)


def table2(found: Integrated) -> Table:
    """How many gradients each way to integrate takes."""
    rows: list[tuple[str, ...]] = []
    for s in found.suite.subjects:
        numbers = {"exact": found.pieces(s.name)} | {r: found.samples(s.name, r) for r in (*PAPER, *BEYOND)}
        missed = {r: found.missed(s.name, r) for r in BEYOND}
        cells = (f"{v:.2f}" + (f" ({missed[k]} never)" if missed.get(k) else "") for k, v in numbers.items())
        rows.append((s.name, f"{len(found.of(s.name))} of {found.done(s.name)}", *cells))
        if s.papers:
            tool = found.tool(s.name)
            means = [f"{tool[name]:.2f}" for name in ("exact", *PAPER)]
            rows.append(
                (f"{s.name}, as the paper's tool", f"{tool['images']} of {found.done(s.name)}", *means, *NO_MORE)
            )
            rows.append((f"{s.name}, published", "", *(TABLE2[s.name].get(name, NONE) for name in numbers)))
    head = ("network", "images", "exact", *PAPER, *BEYOND)
    notes = ["Midpoint, Simpson and Gauss-Legendre are not in the paper."]
    if any(s.papers for s in found.suite.subjects):
        notes.append(TOOL)
    return Table("table2", "Table 2: gradients until the error stays below 5 %", head, tuple(rows), tuple(notes))


def images_table(found: Integrated) -> Table:
    """Every image with its pieces and samples."""
    rows = tuple(
        (
            r.network,
            *map(_text, (r.image, r.label, r.pieces, r.stop, r.stop_error, *r.samples.values())),
            *map(_text, (r.tool_pieces, r.tool_error, *(r.tool.get(rule) for rule in PAPER))),
        )
        for r in found.rows
    )
    head = ("network", "image", "label", "pieces", "m_tilde", "m_tilde_error", *PAPER, *BEYOND)
    tool = ("tool_pieces", "tool_error", *(f"tool_{rule}" for rule in PAPER))
    return Table("images", "Every image", (*head, *tool), rows)


def curves_table(found: Integrated) -> Table:
    """The mean error of every rule with 1, 2, ... 128 samples."""
    rows: list[tuple[str, ...]] = []
    for s in found.suite.subjects:
        curves = [found.curve(s.name, rule).tolist() for rule in (*PAPER, *BEYOND)]
        rows += [(s.name, str(n), *(_text(e) for e in column)) for n, column in enumerate(zip(*curves, strict=True), 1)]
    return Table("errors", "Mean error with so many samples", ("network", "samples", *PAPER, *BEYOND), tuple(rows))


def _text(value: float | None) -> str:
    if value is None or value != value:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _percent(share: float | None) -> str:
    return NONE if share is None or share != share else f"{100 * share:.2f}"


def findings(found: Linearity) -> list[str]:
    """Whether the paper's two findings hold for each kind of images, said plainly."""
    said: list[str] = []
    for suite in found.suites:
        for kind in KINDS:
            said.append(
                f"{suite.name}, {kind} network: {verdict(found.random_ratios(suite.name, kind), 'FGSM', 'random')}."
            )
        for random, name in ((False, "FGSM"), (True, "random")):
            ratios = found.normal_ratios(suite.name, "DiffAI", random=random)
            told = verdict(ratios, "the normal network's", "the DiffAI network's")
            said.append(f"{suite.name}, {name} directions: {told}.")
    return said


def verdict(ratios: Sequence[Floats], one: str, other: str) -> str:
    """Whether the lines of one are denser than those of the other, as far as so many images tell.

    The interval holds the median in 95 of 100 draws of as many images, with repetition.

    >>> verdict([np.array([2.0, 3.0]), np.array([2.0])], "these", "those")
    'these lines ARE denser than those (median ratio 2.00, 95 % interval 2.00 to 2.50)'
    >>> verdict([np.array([1.0]), np.array([1.0])], "these", "those")
    'these lines are neither denser nor sparser than those (median ratio 1.00, 95 % interval 1.00 to 1.00)'
    """
    there = [r for r in ratios if len(r)]
    if not there:
        return f"there are no {one} lines to compare with {other}"
    table = np.full((len(there), max(map(len, there))), np.nan)  # an image in each row
    for row, own in zip(table, there, strict=True):
        row[: len(own)] = own
    drawn = table[np.random.default_rng(0).integers(len(there), size=(DRAWS, len(there)))]
    low, high = np.percentile(np.nanmedian(drawn.reshape(DRAWS, -1), axis=1), (2.5, 97.5))
    how = "ARE denser" if low > 1 else "are NOT denser but sparser" if high < 1 else "are neither denser nor sparser"
    middle = np.median(np.concatenate(there))
    return f"{one} lines {how} than {other} (median ratio {middle:.2f}, 95 % interval {low:.2f} to {high:.2f})"
