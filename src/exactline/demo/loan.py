"""The first chapter: a network small enough to be solved by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import zoo
from ..api import restrict
from ..humanize import count_noun
from ..plot.style import DASHES, current_theme
from .report import Chapter, ChapterFile, ChapterPicture, ChapterTable, format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..results.restriction import Restriction

FEATURES, OUTPUTS = ("age", "income"), ("score", "premium")
CODE = """import exactline as xl
from exactline import zoo

line = xl.restrict(zoo.loan_network(), [20.0, 30.0], [30.0, 50.0])
print(line.alphas)
A, b = line.piece(1).affine()  # f(x) = A x + b on the second piece
"""


def loan_chapter() -> Chapter:
    """The running example of the paper."""
    start, end = zoo.loan_line()
    line = restrict(zoo.loan_network(), start, end)
    values = line.values
    if not isinstance(values, Tensor):
        raise TypeError("the loan network has one output")
    maps = [line.piece(i).affine() for i in range(len(line))]
    inner = " and ".join(format_number(a) for a in line.alphas[1:-1].tolist())
    return Chapter(
        name="loan",
        title="Between two applicants",
        texts=(
            "A bank scores an applicant by age and income: two inputs, one layer of two ReLU units, two outputs. What "
            f"happens from age {start[0]:g} and income {start[1]:g} to age {end[0]:g} and income {end[1]:g}?",
            f"The network is linear on each of {count_noun(len(line), 'piece')}. It changes at alpha = {inner}, where "
            "alpha is the share of the way, and nowhere else. By hand you find 1/3 and 2/3.",
        ),
        code=CODE,
        facts={
            "pieces": len(line),
            "alphas": line.alphas.tolist(),
            "values": values.tolist(),
            "maps": [{"A": _round(A), "b": _round(b)} for A, b in maps],
        },
        tables=(_tabulate_maps(line, maps),),
        pictures=(
            ChapterPicture(
                "loan",
                lambda: _draw(line, values),
                f"Score and premium against alpha: linear on {len(line)} pieces that meet at {inner}",
                "Both outputs along the line. The dashed lines are the breaks; between them each curve is straight.",
            ),
        ),
        files=(
            ChapterFile(
                "loan.html",
                "Explore this line",
                lambda path: line.to_html(
                    path,
                    labels=OUTPUTS,
                    features=FEATURES,
                    title="loan score and premium",
                    classes=False,  # a score and a price are not rivals
                ),
            ),
        ),
    )


def _tabulate_maps(line: Restriction, maps: list[tuple[Any, Any]]) -> ChapterTable:
    rows = [
        (
            f"{format_number(line.alphas[i].item())} to {format_number(line.alphas[i + 1].item())}",
            *(_format_affine(matrix[k].tolist(), offset[k].item()) for k in range(len(OUTPUTS))),
        )
        for i, (matrix, offset) in enumerate(maps)
    ]
    return ChapterTable("The network on each piece, as a formula", ("alpha", *OUTPUTS), tuple(rows), text_columns=3)


def _format_affine(weights: list[float], offset: float) -> str:
    """A formula.

    >>> _format_affine([-1.7, 1.0], 3.0), _format_affine([0.0, 0.0], 0.0)
    ('-1.7 age + income + 3', '0')
    """
    terms = [(w, name) for w, name in zip(weights, FEATURES, strict=True) if format_number(w) != "0"]
    parts = [(w, f"{'' if abs(w) == 1 else format_number(abs(w)) + ' '}{name}") for w, name in terms]
    parts += [(offset, format_number(abs(offset)))] if format_number(offset) != "0" else []
    text = " ".join(f"{'-' if w < 0 else '+'} {part}" for w, part in parts)
    return text.removeprefix("+ ").replace("- ", "-", 1) if text.startswith("- ") else text.removeprefix("+ ") or "0"


def _round(values: Any) -> Any:
    return torch.round(values, decimals=12).tolist()


def _draw(line: Restriction, values: Tensor) -> Figure:  # values is (breaks, 2)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    ax = figure.subplots()
    alphas = line.alphas.numpy()
    for alpha in alphas[1:-1]:
        ax.axvline(alpha, color=current_theme().faint, linewidth=0.8, linestyle=(0, (4, 3)))
    for k, name in enumerate(OUTPUTS):
        ax.plot(
            alphas,
            values[:, k].numpy(),
            DASHES[k],
            color=current_theme().colour(k),
            marker="o",
            markersize=4,
            label=name,
        )
    ax.set(xlim=(-0.01, 1.01), xlabel="alpha", ylabel="output")
    ax.set_xticks(alphas.tolist(), [format_number(a, 3) for a in alphas.tolist()])
    ax.legend(loc="upper center")
    return figure
