"""The third chapter: integrated gradients without samples, and how wrong samples are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import zoo
from ..api import restrict
from ..attr.integrated_gradients import IntegratedGradients
from ..attr.sampling_rules import Pieces, relative_error
from ..humanize import count_noun
from .chapter import Chapter, Picture, Table, number, percent
from .draw_gradients import draw_curves, draw_heat

IMAGE = 9  # of the digits that ship with us
RULES = ("left", "trapezoid", "gauss-legendre")
COUNTS = (10, 20, 50, 300)  # captum takes 50 samples by gauss-legendre unless told otherwise
SHOWN, CAPTUM = 20, 50
CURVE = 128
CODE = """import torch
from exactline import zoo
from exactline.attr import IntegratedGradients, plot  # in place of captum.attr

images, labels = zoo.digits_images()
exact = IntegratedGradients(zoo.digits_network()).attribute(images[9:10], baselines=0, target=4)
plot(exact[0], images[9])
"""


@dataclass(frozen=True)
class Sampled:
    """What one rule makes of the attributions with so many samples."""

    rule: str
    count: int
    values: Tensor  # (1, height, width)
    error: float  # mean over pixels of |sampled - exact| / |exact|
    worst: float  # the largest error of a pixel, as a share of the largest attribution
    off: float  # by how much the sum misses the change of the output


def gradients() -> Chapter:
    """Exact integrated gradients of a digit beside three ways to sample them."""
    images, labels = zoo.digits_images()
    image, label = images[IMAGE].double(), int(labels[IMAGE])
    network = zoo.digits_network()
    method = IntegratedGradients(network)
    exact, delta = method.attribute(image[None], baselines=0, target=label, return_convergence_delta=True)
    line = restrict(network, torch.zeros_like(image), image)
    pieces = Pieces.of(line, label)
    found = [_sampled(pieces, rule, n) for rule in RULES for n in COUNTS]
    swept = _compared("exact", len(line), exact[0].flatten(), pieces, float(delta))
    curves = {rule: pieces.errors(rule, range(1, CURVE + 1)) for rule in RULES}
    shown = [s for s in found if s.count == SHOWN]
    usual = next(s for s in found if (s.rule, s.count) == ("gauss-legendre", CAPTUM))
    texts = (
        f"Why does the network read a {label}? Integrated gradients answer with a number for each pixel: the gradient, "
        "averaged on the way from a blank image to this one. Usually that average is taken over samples. But along the "
        f"line there are only {count_noun(len(line), 'piece')} with one gradient each, so it can be added up exactly, and "
        "nobody needs to ask how many steps are enough.",
        f"With {usual.count} samples (captum's default rule and number) a pixel is off by {percent(usual.error)} on "
        f"average, and the attributions miss the change of the output by {abs(usual.off):.2g}. The exact ones "
        f"miss it by {abs(float(delta)):.0e}, which is rounding.",
    )
    return Chapter(
        "gradients",
        "Attributions without samples",
        texts,
        CODE,
        (_table(found, swept, float(exact.sum())),),
        (
            Picture(
                "gradients",
                lambda: draw_heat(image.numpy(), exact[0].numpy(), {s.rule: s.values.numpy() for s in shown}, SHOWN),
                f"The digit, its exact attributions and those of {len(shown)} sampling rules; below, their errors",
                f"Red speaks for a {label}, blue against it. Above: exact, and with {SHOWN} samples. Below: what the "
                "samples are off by, on a scale of its own.",
            ),
            Picture(
                "errors",
                lambda: draw_curves({rule: errors.numpy() for rule, errors in curves.items()}, len(line)),
                f"Mean error of {len(RULES)} rules against the number of samples, both axes in decades: the curves "
                "fall slowly and are jagged",
                "More samples help slowly, and not always: where a sample falls among the breaks is luck. The exact "
                "answer has no such curve.",
            ),
        ),
        (),
        {
            "label": label,
            "pieces": len(line),
            "exact": exact[0].tolist(),
            "exact_sum_off": float(delta),
            "exact_error": swept.error,
            "rules": [_facts(s) for s in found],
        },
    )


def _sampled(pieces: Pieces, rule: str, count: int) -> Sampled:
    flat = pieces.sampled(rule, [count])[0]
    return _compared(rule, count, flat, pieces, float(flat.sum() - pieces.exact.sum()))


def _compared(rule: str, count: int, flat: Tensor, pieces: Pieces, off: float) -> Sampled:
    """Attributions beside the sum over all pieces, each with a gradient of its own."""
    worst = (flat - pieces.exact).abs().max() / pieces.exact.abs().max()
    error = float(relative_error(flat, pieces.exact))
    values = pieces.shaped(flat)
    if not isinstance(values, Tensor):
        raise TypeError("the network has one input")
    return Sampled(rule, count, values, error, float(worst), off)


def _table(found: list[Sampled], exact: Sampled, change: float) -> Table:
    rows = [(s.rule, f"{s.count:,}", percent(s.error), percent(s.worst), f"{s.off:+.2g}") for s in found]
    rows.append(
        (exact.rule, f"{exact.count:,} pieces", percent(exact.error), percent(exact.worst), f"{exact.off:+.2g}")
    )
    title = f"How far samples are off; the attributions should add up to {number(change, 6)}"
    head = ("rule", "gradients", "mean error of a pixel", "worst, of the largest", "sum is off by")
    return Table(title, head, tuple(rows))


def _facts(s: Sampled) -> dict[str, Any]:
    return {"rule": s.rule, "samples": s.count, "error": s.error, "worst": s.worst, "sum_off": s.off}
