"""The third chapter: integrated gradients without samples, and the errors of sampled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import zoo
from ..api import restrict
from ..arrays import Floats
from ..attr.integrated_gradients import IntegratedGradients
from ..attr.sampling_rules import PieceGradients, mean_relative_error
from ..humanize import count_noun
from ..plot.attribution import draw_error_curves
from ..plot.panels import plot_attribution_panels
from .report import Chapter, ChapterPicture, ChapterTable, format_number, format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGE = 9  # a bundled digit
RULES = ("left", "trapezoid", "gauss-legendre")
SAMPLE_COUNTS = (10, 20, 50, 300)  # in the table
PICTURE_SAMPLES = 20  # in the picture
CAPTUM_RULE, CAPTUM_SAMPLES = "gauss-legendre", 50  # captum's defaults
MAX_CURVE_SAMPLES = 128
CODE = """import torch
from exactline import zoo
from exactline.attr import IntegratedGradients, plot  # in place of captum.attr

images, labels = zoo.digits_images()
exact = IntegratedGradients(zoo.digits_network()).attribute(images[9:10], baselines=0, target=4)
plot(exact[0], images[9])
"""


@dataclass(frozen=True)
class RuleResult:
    """Attributions by one sampling rule, compared with the exact ones."""

    rule: str
    count: int  # samples
    values: Tensor  # (1, height, width)
    mean_error: float  # mean over pixels of |sampled - exact| / |exact|
    max_error: float  # largest error of a pixel, as a share of the largest attribution
    delta: float  # the sum of the attributions minus the change of the output


def gradients_chapter() -> Chapter:
    """Exact integrated gradients of a digit, compared with three sampling rules."""
    images, labels = zoo.digits_images()
    image, label = images[IMAGE].double(), int(labels[IMAGE])
    network = zoo.digits_network()
    method = IntegratedGradients(network)
    exact, delta = method.attribute(image[None], baselines=0, target=label, return_convergence_delta=True)
    line = restrict(network, torch.zeros_like(image), image)
    pieces = PieceGradients.of(line, label)
    results = [_sample(pieces, rule, count) for rule in RULES for count in SAMPLE_COUNTS]
    swept = _compare("exact", len(line), exact[0].flatten(), pieces, float(delta))
    curves = {rule: pieces.rule_errors(rule, range(1, MAX_CURVE_SAMPLES + 1)).numpy() for rule in RULES}
    pictured = {r.rule: r.values.numpy() for r in results if r.count == PICTURE_SAMPLES}
    captum = next(r for r in results if (r.rule, r.count) == (CAPTUM_RULE, CAPTUM_SAMPLES))
    return Chapter(
        name="gradients",
        title="Attributions without samples",
        texts=(
            f"Why does the network read a {label}? Integrated gradients answer with a number for each pixel: the "
            "gradient, averaged along the line from a blank image to this one. Usually the average is taken over "
            f"samples. But along the line there are only {count_noun(len(line), 'piece')} with one gradient each, so "
            "it can be added up exactly, and there is no number of steps to choose.",
            f"With {captum.count} samples (captum's default rule and number) the mean error of a pixel is "
            f"{format_percent(captum.mean_error)}, and the attributions miss the change of the output by "
            f"{abs(captum.delta):.2g}. The exact ones miss it by {abs(float(delta)):.0e}, which is rounding.",
        ),
        code=CODE,
        facts={
            "label": label,
            "pieces": len(line),
            "exact": exact[0].tolist(),
            "exact_delta": float(delta),
            "exact_error": swept.mean_error,
            "rules": [_to_json(r) for r in results],
        },
        tables=(_tabulate(results, swept, float(exact.sum())),),
        pictures=(
            ChapterPicture(
                "gradients",
                lambda: plot_attribution_panels(image.numpy(), exact[0].numpy(), pictured, PICTURE_SAMPLES),
                f"The digit, its exact attributions and those of {len(pictured)} sampling rules; below, their errors",
                f"Red is evidence for a {label}, blue against it. Above: exact, and with {PICTURE_SAMPLES} samples. "
                "Below: the errors of the sampled ones, on a scale of their own.",
            ),
            ChapterPicture(
                "errors",
                lambda: _draw_errors(curves, len(line)),
                f"Mean error of {len(RULES)} rules against the number of samples, both axes logarithmic: the curves "
                "fall slowly and are jagged",
                "More samples help slowly, and not always: the error depends on where the samples fall between the "
                "breaks. The exact answer has no such curve.",
            ),
        ),
    )


def _sample(pieces: PieceGradients, rule: str, count: int) -> RuleResult:
    flat = pieces.apply_rule(rule, [count])[0]
    return _compare(rule, count, flat, pieces, float(flat.sum() - pieces.exact.sum()))


def _compare(rule: str, count: int, flat: Tensor, pieces: PieceGradients, delta: float) -> RuleResult:
    """Compare attributions (features,) with the sum over all pieces, each with its own gradient."""
    max_error = (flat - pieces.exact).abs().max() / pieces.exact.abs().max()
    mean_error = float(mean_relative_error(flat, pieces.exact))
    values = pieces.unflatten(flat)
    if not isinstance(values, Tensor):
        raise TypeError("the network has one input")
    return RuleResult(rule, count, values, mean_error=mean_error, max_error=float(max_error), delta=delta)


def _tabulate(results: list[RuleResult], exact: RuleResult, change: float) -> ChapterTable:
    rows = [
        (
            r.rule,
            f"{r.count:,} pieces" if r is exact else f"{r.count:,}",
            format_percent(r.mean_error),
            format_percent(r.max_error),
            f"{r.delta:+.2g}",
        )
        for r in [*results, exact]
    ]
    title = f"Errors of sampled attributions; their sum should be {format_number(change, 6)}"
    head = ("rule", "gradients", "mean error of a pixel", "largest error / largest attribution", "error of the sum")
    return ChapterTable(title, head, tuple(rows))


def _to_json(result: RuleResult) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "samples": result.count,
        "mean_error": result.mean_error,
        "max_error": result.max_error,
        "delta": result.delta,
    }


def _draw_errors(curves: dict[str, Floats], pieces: int) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    ax = figure.subplots()
    draw_error_curves(ax, curves)
    ax.set(xlabel="samples", ylabel="mean error of a pixel")
    ax.set_xticks([1, 2, 5, 10, 20, 50, 100])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    ax.grid(visible=True, which="major", alpha=0.5, linewidth=0.6)
    ax.legend(title=f"the line has {pieces:,} pieces", alignment="left")
    return figure
